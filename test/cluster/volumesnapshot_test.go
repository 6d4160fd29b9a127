//go:build cluster

package cluster_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/podnas/podnas/test/testdisk"
)

var (
	snapshotClasses  = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotclasses"}
	volumeSnapshots  = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}
	snapshotContents = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotcontents"}
)

// snapshotAPI is the snapshot-controller of Kubernetes, with its CRDs and podnas's rights.
type snapshotAPI struct {
	objects dynamic.Interface
	cmd     *exec.Cmd
	kill    func()
}

// installSnapshots installs the CRDs and podnas's rights, and starts the snapshot-controller.
func installSnapshots(t *testing.T) *snapshotAPI {
	t.Helper()
	module := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubernetes-csi/external-snapshotter/client/v8")
	module.Dir, module.Env = "snapshotcontroller", append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	dir, err := module.Output()
	if err != nil {
		t.Fatal(err)
	}
	crds := filepath.Join(strings.TrimSpace(string(dir)), "config", "crd")
	for _, args := range [][]string{
		{"apply", "--server-side", "-k", crds},
		{"wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"},
		{"apply", "-f", "../../deploy/components/snapshots/rbac.yaml"},
	} {
		if _, err := kubectl(t.Context(), nil, args...); err != nil {
			t.Fatal(err)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", cluster.plane.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = -1, -1
	a := &snapshotAPI{}
	if a.objects, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(cluster.logs, "snapshot-controller.log"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.cmd = exec.CommandContext(ctx, filepath.Join(cluster.bin, "snapshot-controller"),
		"--kubeconfig="+cluster.plane.Kubeconfig(), "--kube-api-qps=500", "--kube-api-burst=500", "--retry-interval-start=200ms")
	a.cmd.Stdout, a.cmd.Stderr = log, log
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a.kill = sync.OnceFunc(func() {
		cancel()
		_ = a.cmd.Wait() // it was killed
		_ = log.Close()
	})
	t.Cleanup(a.kill)
	return a
}

func (a *snapshotAPI) create(t *testing.T, resource schema.GroupVersionResource, kind, namespace string, object map[string]any) {
	t.Helper()
	object["apiVersion"], object["kind"] = "snapshot.storage.k8s.io/v1", kind
	if _, err := a.objects.Resource(resource).Namespace(namespace).Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// status returns a field of an object's status, or nil.
func (a *snapshotAPI) status(t *testing.T, resource schema.GroupVersionResource, namespace, name string, field ...string) any {
	t.Helper()
	o, err := a.objects.Resource(resource).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	field = append([]string{"status"}, field...)
	found, _, err := unstructured.NestedFieldNoCopy(o.Object, field...)
	if err != nil {
		return nil
	}
	return found
}

func (a *snapshotAPI) ready(t *testing.T, namespace, name string) {
	t.Helper()
	eventually(t, 30*time.Second, "VolumeSnapshot "+name+" is ready", func() bool {
		return a.status(t, volumeSnapshots, namespace, name, "readyToUse") == true
	})
}

// A VolumeSnapshot of a volume of podnas becomes ready beside the stock snapshot-controller, and goes with its snapshot.
func TestVolumeSnapshot(t *testing.T) {
	testdisk.XFS(t, func(t *testing.T, disk string) {
		api := installSnapshots(t)
		n := newTenant(t)
		p := newPodnas(t, n.provisioner, local, "--root="+disk)
		p.root = disk
		p.start()
		class := n.class("", nil)
		n.claim("data", class, "20Mi", nil)
		v := n.bound("data")
		writeFile(t, filepath.Join(p.root, v.Name, "file"), "before")
		api.create(t, snapshotClasses, "VolumeSnapshotClass", "", map[string]any{
			"metadata": map[string]any{"name": n.name, "annotations": map[string]any{"snapshot.storage.kubernetes.io/is-default-class": "true"}},
			"driver":   n.provisioner, "deletionPolicy": "Delete",
		})
		source := map[string]any{"persistentVolumeClaimName": "data"}
		api.create(t, volumeSnapshots, "VolumeSnapshot", n.name, map[string]any{
			"metadata": map[string]any{"name": "named"}, "spec": map[string]any{"source": source, "volumeSnapshotClassName": n.name},
		})
		api.ready(t, n.name, "named")
		api.create(t, volumeSnapshots, "VolumeSnapshot", n.name, map[string]any{
			"metadata": map[string]any{"name": "by-default"}, "spec": map[string]any{"source": source},
		})
		api.ready(t, n.name, "by-default")
		out, _, _ := p.run("snapshot", "list", "-o", "name")
		if got := strings.Count(out, "\n"); got != 2 {
			t.Errorf("there are %d snapshots, want 2: %s", got, out)
		}
		for _, name := range []string{"named", "by-default"} {
			if err := api.objects.Resource(volumeSnapshots).Namespace(n.name).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, 30*time.Second, "the snapshots are gone", func() bool {
			list, err := api.objects.Resource(snapshotContents).List(t.Context(), metav1.ListOptions{})
			out, _, _ := p.run("snapshot", "list", "-o", "name")
			return err == nil && len(list.Items) == 0 && out == ""
		})
	})
}
