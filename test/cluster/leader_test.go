//go:build cluster

package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Of two podnas with one provisioner name only the holder of the Lease answers
// claims. When it dies, the other takes over.
func TestLeaderElection(t *testing.T) {
	grantLeases(t)
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
	leases, err := cluster.client.CoordinationV1().Leases(podnasNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(leases.Items) != 1 {
		t.Errorf("%d leases in %s (%v), want 1", len(leases.Items), podnasNamespace, err)
	}
}

// grantLeases gives podnas the rights that deploy/components/leader-election
// adds, for one test.
func grantLeases(t *testing.T) {
	t.Helper()
	// A kustomization names its parts relative to itself, as it really lies.
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	deploy, err := filepath.Abs("../../deploy")
	if err != nil {
		t.Fatal(err)
	}
	if deploy, err = filepath.Rel(dir, deploy); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "kustomization.yaml"), fmt.Sprintf(`apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%[1]s/base]
components: [%[1]s/components/leader-election]
`, deploy))
	if err := applyRBAC(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := applyRBAC(context.Background(), "../../deploy/base"); err != nil {
			t.Error(err)
		}
	})
}
