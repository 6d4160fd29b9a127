//go:build cluster

package cluster_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestOutOfService: after a crash podnas waits for a client whose node is NotReady, and no longer when the node is out of service.
func TestOutOfService(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the native engine needs root")
	}
	const address = "192.0.2.33"
	n := newTenant(t)
	name, ctx := n.name+"-dead", t.Context()
	nodes := cluster.client.CoreV1().Nodes()
	if _, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nodes.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	setNodeStatus(t, name, corev1.NodeStatus{
		Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}},
	})

	const right = "../../deploy/components/node-failure/rbac.yaml"
	if out, err := kubectl(ctx, nil, "apply", "-f", right); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := kubectl(context.Background(), nil, "delete", "-f", right); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	p := newPodnas(t, n.provisioner, local, "--lease=2m")
	p.start()
	p.kill()
	entry, err := json.Marshal(map[string]any{"owner": []byte("Linux NFSv4.2 " + name), "address": address, "lease": time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.root, ".podnas/clients/00000000000000aa.json"), entry, 0o600); err != nil {
		t.Fatal(err)
	}
	p.start()
	awaited := func() bool { return slices.Contains(p.state("clients"), "00000000000000aa.json") }
	for began := time.Now(); time.Since(began) < 8*time.Second; time.Sleep(time.Second) {
		if !awaited() {
			t.Fatal("a node that is only NotReady is not waited for")
		}
	}
	if out, err := kubectl(ctx, nil, "taint", "node", name, corev1.TaintNodeOutOfService+"=nodeshutdown:NoExecute"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	began := time.Now()
	eventually(t, time.Minute, "the client is not waited for", func() bool { return !awaited() })
	t.Logf("the grace period ended %v after the taint", time.Since(began).Round(100*time.Millisecond))
}
