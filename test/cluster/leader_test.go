//go:build cluster

package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Of two podnas with one provisioner name only the holder of the Lease answers
// claims. When it dies, the other takes over.
func TestLeaderElection(t *testing.T) {
	n := newTenant(t)
	flags := []string{local, "--leader-elect", "--leader-elect-namespace=" + podnasNamespace}
	first, second := newPodnas(t, n.provisioner, flags...), newPodnas(t, n.provisioner, flags...)
	first.start()
	class := n.class("", nil)
	n.claim("for-first", class, "1Mi", nil)
	n.bound("for-first")
	// The second serves its disk, and waits.
	second.start()
	for i := range 10 {
		name := fmt.Sprintf("still-for-first-%d", i)
		n.claim(name, class, "1Mi", nil)
	}
	n.allBound(time.Minute, 11)
	if a, b := len(first.volumes()), len(second.volumes()); a != 11 || b != 0 {
		t.Fatalf("the holder of the Lease has %d volumes and the other %d, want 11 and 0", a, b)
	}

	first.kill()
	begin := time.Now()
	n.claim("for-second", class, "1Mi", nil)
	v := n.bound("for-second")
	t.Logf("taken over %s after the holder's death", time.Since(begin).Round(time.Second))
	if _, err := os.Stat(filepath.Join(second.root, v.Name)); err != nil {
		t.Error(err)
	}

	// The holder that ends well gives the Lease back, so nobody waits for it
	// to expire.
	first.start()
	second.stop()
	begin = time.Now()
	n.claim("for-first-again", class, "1Mi", nil)
	v = n.bound("for-first-again")
	t.Logf("taken back %s after the holder's end", time.Since(begin).Round(time.Second))
	if _, err := os.Stat(filepath.Join(first.root, v.Name)); err != nil {
		t.Error(err)
	}
	lease := strings.ReplaceAll(n.provisioner, "/", "-")
	if _, err := cluster.client.CoordinationV1().Leases(podnasNamespace).Get(t.Context(), lease, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// An API server that is away longer than the Lease lasts does not end podnas, which serves its volumes. It starts again when it has
// the Lease, as another podnas may have provisioned meanwhile.
func TestLeaderWithoutAPIServer(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local, "--leader-elect", "--leader-elect-namespace="+podnasNamespace)
	p.start()
	class := n.class("", nil)
	n.claim("before", class, "1Mi", nil)
	n.bound("before")
	goOn, err := cluster.plane.HangAPIServer()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = goOn() }()
	eventually(t, time.Minute, "podnas stands aside", func() bool { return strings.Contains(p.logged(), "this podnas stands aside") })
	select {
	case <-p.done:
		t.Fatal("podnas has ended with the API server")
	case <-time.After(2 * time.Second):
	}
	if !p.ready() {
		t.Error("podnas is not ready while the API server is away")
	}
	if err := goOn(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		t.Fatal("podnas has not started again with the Lease")
	}
	p.start()
	n.claim("after", class, "1Mi", nil)
	n.bound("after")
}
