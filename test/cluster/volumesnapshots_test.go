//go:build cluster

package cluster_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/test/cluster/controlplane"
	"github.com/podnas/podnas/test/testdisk"
)

const snapshotGroup = "snapshot.storage.k8s.io"

var (
	snapshotsResource = schema.GroupVersionResource{Group: snapshotGroup, Version: "v1", Resource: "volumesnapshots"}
	contentsResource  = schema.GroupVersionResource{Group: snapshotGroup, Version: "v1", Resource: "volumesnapshotcontents"}
)

// snapshotAPI gives the cluster the kinds of VolumeSnapshots and podnas the rights, once for all tests, and returns a client.
var snapshotAPI = sync.OnceValues(func() (dynamic.Interface, error) {
	ctx := context.Background()
	crds, err := controlplane.SnapshotCRDs(ctx, "snapshotcontroller")
	if err != nil {
		return nil, err
	}
	if _, err := kubectl(ctx, nil, "apply", "--server-side", "-k", crds); err != nil {
		return nil, err
	}
	if _, err := kubectl(ctx, nil, "wait", "--for=condition=Established", "--timeout=60s", "crd/volumesnapshots."+snapshotGroup,
		"crd/volumesnapshotcontents."+snapshotGroup, "crd/volumesnapshotclasses."+snapshotGroup); err != nil {
		return nil, err
	}
	rendered, err := kubectl(ctx, nil, "kustomize", "../../deploy/overlays/snapshots")
	if err != nil {
		return nil, err
	}
	var wanted [][]byte
	for _, doc := range bytes.Split(rendered, []byte("\n---\n")) {
		if bytes.Contains(doc, []byte("name: podnas-snapshots\n")) || bytes.Contains(doc, []byte("name: podnas-volumesnapshotcontents\n")) {
			wanted = append(wanted, doc)
		}
	}
	if len(wanted) != 4 {
		return nil, fmt.Errorf("%d objects for VolumeSnapshots in the overlay, want a role, a policy and their bindings", len(wanted))
	}
	objects := bytes.ReplaceAll(bytes.Join(wanted, []byte("\n---\n")), []byte(" == 'podnas.io/nfs'"), []byte(".startsWith('"+testProvisioners+"')"))
	if _, err := kubectl(ctx, objects, "apply", "-f", "-"); err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", cluster.plane.Kubeconfig())
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = -1, -1
	return dynamic.NewForConfig(config)
})

// snapshotController runs the stock one until the test ends.
func snapshotController(t *testing.T) *os.Process {
	t.Helper()
	log, err := os.Create(filepath.Join(cluster.logs, strings.ReplaceAll(t.Name(), "/", "-")+"-controller.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(cluster.bin, "snapshot-controller"), "--kubeconfig="+cluster.plane.Kubeconfig(), "--retry-interval-max=5s", "--kube-api-qps=200", "--kube-api-burst=200")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
	})
	return cmd.Process
}

// snapshots are the VolumeSnapshots of a tenant.
type snapshots struct {
	*tenant

	api dynamic.Interface
}

func newSnapshots(t *testing.T, n *tenant) *snapshots {
	t.Helper()
	api, err := snapshotAPI()
	if err != nil {
		t.Fatal(err)
	}
	return &snapshots{n, api}
}

// snapshotClass makes a class.
func (s *snapshots) snapshotClass(suffix, policy string, isDefault bool) string {
	s.t.Helper()
	name := s.name + suffix
	manifest := fmt.Sprintf(`{apiVersion: snapshot.storage.k8s.io/v1, kind: VolumeSnapshotClass, driver: %s, deletionPolicy: %s,
metadata: {name: %s, annotations: {snapshot.storage.kubernetes.io/is-default-class: "%v"}}}`, s.provisioner, policy, name, isDefault)
	if _, err := kubectl(s.t.Context(), []byte(manifest), "apply", "-f", "-"); err != nil {
		s.t.Fatal(err)
	}
	return name
}

// snapshot asks for one of a claim. Without a class it names none.
func (s *snapshots) snapshot(name, class, claim string) {
	s.t.Helper()
	spec := map[string]any{"source": map[string]any{"persistentVolumeClaimName": claim}}
	if class != "" {
		spec["volumeSnapshotClassName"] = class
	}
	s.create(s.name, snapshotsResource, "VolumeSnapshot", name, spec)
}

func (s *snapshots) create(namespace string, resource schema.GroupVersionResource, kind, name string, spec map[string]any) {
	s.t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": snapshotGroup + "/v1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}}
	if _, err := s.api.Resource(resource).Namespace(namespace).Create(s.t.Context(), object, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *snapshots) delete(name string) {
	s.t.Helper()
	if err := s.api.Resource(snapshotsResource).Namespace(s.name).Delete(s.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// get is nil if there is none.
func (s *snapshots) get(resource schema.GroupVersionResource, namespace, name string) *unstructured.Unstructured {
	u, err := s.api.Resource(resource).Namespace(namespace).Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return u
}

// ready waits until a VolumeSnapshot is ready to use, without an error, and returns its snapshot's handle.
func (s *snapshots) ready(namespace, name string) (handle string, content *unstructured.Unstructured) {
	s.t.Helper()
	eventually(s.t, time.Minute, "VolumeSnapshot "+name+" is ready", func() bool {
		u := s.get(snapshotsResource, namespace, name)
		if u == nil {
			return false
		}
		ready, _, _ := unstructured.NestedBool(u.Object, "status", "readyToUse")
		_, failed, _ := unstructured.NestedMap(u.Object, "status", "error")
		bound, _, _ := unstructured.NestedString(u.Object, "status", "boundVolumeSnapshotContentName")
		content = s.get(contentsResource, "", bound)
		return ready && !failed && content != nil
	})
	handle, _, _ = unstructured.NestedString(content.Object, "status", "snapshotHandle")
	return handle, content
}

// statusError is that of an object, or "".
func (s *snapshots) statusError(resource schema.GroupVersionResource, namespace, name string) string {
	u := s.get(resource, namespace, name)
	if u == nil {
		return ""
	}
	message, _, _ := unstructured.NestedString(u.Object, "status", "error", "message")
	return message
}

// copyOfSnapshot makes a claim a copy of a VolumeSnapshot.
func copyOfSnapshot(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		group := snapshotGroup
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: name}
	}
}

// podnasOn serves a folder of a disk.
func podnasOn(t *testing.T, disk, provisioner string) *podnas {
	t.Helper()
	root := filepath.Join(disk, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	p := newPodnas(t, provisioner, local, "--root="+root)
	p.root = root
	p.start()
	return p
}

func TestVolumeSnapshots(t *testing.T) {
	testdisk.XFS(t, func(t *testing.T, disk string) {
		controller := snapshotController(t)
		n := newTenant(t)
		s := newSnapshots(t, n)
		p := podnasOn(t, disk, n.provisioner)
		class := n.class("", nil)
		deletes, keeps := s.snapshotClass("", "Delete", true), s.snapshotClass("-keep", "Retain", false)
		n.claim("data", class, "2Mi", nil)
		v := n.bound("data")
		file := filepath.Join(p.root, v.Name, "file")
		writeFile(t, file, "before")
		onDisk := func(handle string) string {
			parts := strings.Split(handle, "/")
			found, _ := filepath.Glob(filepath.Join(p.root, ".podnas/snapshots/*/ready", parts[len(parts)-1], "file"))
			return strings.Join(found, " ")
		}

		t.Run("podnas first", func(t *testing.T) {
			signal(t, controller, syscall.SIGSTOP)
			s.snapshot("first", deletes, "data")
			name := "snapcontent-" + string(s.get(snapshotsResource, s.name, "first").GetUID())
			eventually(t, time.Minute, "the content is there", func() bool { return s.get(contentsResource, "", name) != nil })
			signal(t, controller, syscall.SIGCONT)
			handle, content := s.ready(s.name, "first")
			size, _, _ := unstructured.NestedInt64(content.Object, "status", "restoreSize")
			at, _, _ := unstructured.NestedInt64(content.Object, "status", "creationTime")
			if age := time.Since(time.Unix(0, at)); onDisk(handle) == "" || size != 2<<20 || age < 0 || age > time.Minute {
				t.Errorf("handle %s, of %d bytes, %s old; files %q", handle, size, age, onDisk(handle))
			}
		})
		t.Run("the controller first", func(t *testing.T) {
			signal(t, p.cmd.Process, syscall.SIGSTOP)
			s.snapshot("second", deletes, "data")
			eventually(t, time.Minute, "the controller says that it can't", func() bool { return s.statusError(snapshotsResource, s.name, "second") != "" })
			signal(t, p.cmd.Process, syscall.SIGCONT)
			s.ready(s.name, "second")
		})
		t.Run("the default class", func(t *testing.T) {
			s.snapshot("default", "", "data")
			_, content := s.ready(s.name, "default")
			if got, _, _ := unstructured.NestedString(content.Object, "spec", "volumeSnapshotClassName"); got != deletes {
				t.Errorf("the class is %q, want %s", got, deletes)
			}
		})
		t.Run("a claim of it", func(t *testing.T) {
			writeFile(t, file, "after")
			n.claim("restored", class, "2Mi", copyOfSnapshot("first"))
			restored := n.bound("restored")
			if got, err := os.ReadFile(filepath.Join(p.root, restored.Name, "file")); string(got) != "before" {
				t.Errorf("the claim has %q, %v", got, err)
			}
			n.claim("too-small", class, "1Mi", copyOfSnapshot("first"))
			if message := n.failure("too-small"); !strings.Contains(message, "2Mi") || !strings.Contains(message, "1Mi") {
				t.Errorf("the event is %q, want both sizes", message)
			}
			n.claim("of-nothing", class, "2Mi", copyOfSnapshot("nothing"))
			if message := n.failure("of-nothing"); !strings.Contains(message, "VolumeSnapshot nothing does not exist") {
				t.Errorf("the event is %q", message)
			}
		})
		t.Run("the example of a backup", func(t *testing.T) { exampleOfBackup(t, s, p, class) })
		t.Run("both policies", func(t *testing.T) {
			s.snapshot("kept", keeps, "data")
			kept, _ := s.ready(s.name, "kept")
			deleted, _ := s.ready(s.name, "second")
			s.delete("kept")
			s.delete("second")
			eventually(t, time.Minute, "both are gone", func() bool {
				return s.get(snapshotsResource, s.name, "kept") == nil && s.get(snapshotsResource, s.name, "second") == nil && onDisk(deleted) == ""
			})
			if onDisk(kept) == "" {
				t.Error("the snapshot with the policy Retain is gone")
			}
			// Somebody has it in another namespace.
			other := newTenant(t)
			content := map[string]any{
				"driver": s.provisioner, "deletionPolicy": "Retain", "source": map[string]any{"snapshotHandle": kept},
				"volumeSnapshotRef": map[string]any{"namespace": other.name, "name": "found"},
			}
			s.create("", contentsResource, "VolumeSnapshotContent", other.name, content)
			s.create(other.name, snapshotsResource, "VolumeSnapshot", "found", map[string]any{"source": map[string]any{"volumeSnapshotContentName": other.name}})
			s.ready(other.name, "found")
			other.provisioner = s.provisioner
			other.claim("restored", class, "2Mi", copyOfSnapshot("found"))
			if got, err := os.ReadFile(filepath.Join(p.root, other.bound("restored").Name, "file")); string(got) != "after" {
				t.Errorf("the claim in the other namespace has %q, %v", got, err)
			}
		})
		t.Run("handles of nothing", func(t *testing.T) {
			for i, tt := range []struct{ handle, want string }{
				{"nonsense", "none of podnas"},
				{"ffffffffffffffff/" + v.Name + "/x", "on the disk"},
				{strings.SplitN(mustHandle(s, "first"), "/", 2)[0] + "/" + v.Name + "/nothing", "nothing"},
			} {
				name := fmt.Sprintf("%s-bad-%d", s.name, i)
				s.create("", contentsResource, "VolumeSnapshotContent", name, map[string]any{
					"driver": s.provisioner, "deletionPolicy": "Delete", "source": map[string]any{"snapshotHandle": tt.handle},
					"volumeSnapshotRef": map[string]any{"namespace": s.name, "name": "bad"},
				})
				eventually(t, time.Minute, "the content of "+tt.handle+" has an error", func() bool {
					return strings.Contains(s.statusError(contentsResource, "", name), tt.want)
				})
			}
		})
		t.Run("what does not fit together", func(t *testing.T) {
			handle := mustHandle(s, "default")
			_, content := s.ready(s.name, "default")
			snapshot := handle[strings.LastIndex(handle, "/")+1:]
			if _, errs, code := p.run("snapshot", "delete", v.Name, snapshot, "--yes"); code != 0 {
				t.Fatal(errs)
			}
			results, _ := p.doctor()
			if !found(results, "VolumeSnapshotContent "+content.GetName(), doctor.Failed, "no such snapshot") {
				t.Errorf("doctor does not find the content without a snapshot: %+v", results)
			}
			const alone = "0f7c6c5e-8a8f-4dbb-9bd6-1c3f6f9d7a10" // as one that was left
			if _, errs, code := p.run("snapshot", "create", v.Name, alone); code != 0 {
				t.Fatal(errs)
			}
			eventually(t, time.Minute, "doctor finds the snapshot without a content", func() bool {
				results, _ := p.doctor()
				return found(results, "snapshot "+alone+" of volume "+v.Name, doctor.Warning, "no VolumeSnapshotContent has it")
			})
			// It goes all the same.
			s.delete("default")
			eventually(t, time.Minute, "it is gone", func() bool { return s.get(snapshotsResource, s.name, "default") == nil })
		})
		t.Run("without a controller", func(t *testing.T) {
			signal(t, controller, syscall.SIGSTOP)
			defer signal(t, controller, syscall.SIGCONT)
			s.snapshot("unbound", deletes, "data")
			eventually(t, time.Minute, "doctor says that nothing binds it", func() bool {
				results, _ := p.doctor()
				return found(results, "VolumeSnapshot "+s.name+"/unbound", doctor.Failed, "nothing binds it")
			})
		})
		t.Run("many at once", func(t *testing.T) {
			many := 200
			if os.Getenv("SHORT") != "" {
				many = 50
			}
			for i := range many {
				s.snapshot(fmt.Sprintf("many-%d", i), deletes, "data")
			}
			eventually(t, 3*time.Minute, "all are ready", func() bool {
				list, err := s.api.Resource(snapshotsResource).Namespace(s.name).List(t.Context(), metav1.ListOptions{})
				ready := 0
				for i := 0; err == nil && i < len(list.Items); i++ {
					if is, _, _ := unstructured.NestedBool(list.Items[i].Object, "status", "readyToUse"); is && strings.HasPrefix(list.Items[i].GetName(), "many-") {
						ready++
					}
				}
				return ready == many
			})
		})
	})
}

// exampleOfBackup applies the example's VolumeSnapshot, claim and Job at once, and does what the Job would do in a pod.
func exampleOfBackup(t *testing.T, s *snapshots, p *podnas, class string) {
	t.Helper()
	const example = "../../deploy/examples/backup/"
	objects, err := os.ReadFile(example + "volumesnapshot.yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects = bytes.ReplaceAll(objects, []byte("storageClassName: podnas-snapshots"), []byte("storageClassName: "+class))
	if _, err := kubectl(t.Context(), objects, "apply", "-n", s.name, "-f", "-"); err != nil {
		t.Fatal(err)
	}
	pv := s.bound("data-tonight")
	handle := mustHandle(s, "data-tonight")
	found, _ := filepath.Glob(filepath.Join(p.root, ".podnas/snapshots/*/ready", handle[strings.LastIndex(handle, "/")+1:]))
	if len(found) != 1 || pv.Spec.NFS == nil || !pv.Spec.NFS.ReadOnly {
		t.Fatalf("the claim shows %q by %+v", found, pv.Spec.NFS)
	}
	if _, err := exec.LookPath("restic"); err == nil { // Debian's package
		cmd := exec.CommandContext(t.Context(), "sh", example+"backup.sh")
		cmd.Env = append(os.Environ(), "VOLUME="+s.name+"/data", "FOLDER="+found[0], "RESTIC_REPOSITORY="+filepath.Join(t.TempDir(), "repository"),
			"RESTIC_PASSWORD=secret", "RESTIC_CACHE_DIR="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("no errors were found")) {
			t.Errorf("%v:\n%s", err, out)
		}
	}
	if _, err := kubectl(t.Context(), objects, "delete", "-n", s.name, "-f", "-", "--timeout=60s"); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the snapshot is gone", func() bool { _, err := os.Stat(found[0]); return os.IsNotExist(err) })
}

// What can have no snapshots says so on the VolumeSnapshot.
func TestVolumeSnapshotOfADiskThatCannot(t *testing.T) {
	testdisk.Ext4(t, func(t *testing.T, disk string) {
		n := newTenant(t)
		s := newSnapshots(t, n)
		podnasOn(t, disk, n.provisioner)
		n.claim("data", n.class("", nil), "1Mi", nil)
		n.bound("data")
		s.snapshot("cannot", s.snapshotClass("", "Delete", false), "data")
		eventually(t, time.Minute, "an event says why", func() bool {
			events, err := cluster.client.CoreV1().Events(n.name).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=SnapshotFailed"})
			return err == nil && len(events.Items) == 1 && events.Items[0].InvolvedObject.Name == "cannot" && strings.Contains(events.Items[0].Message, "XFS")
		})
	})
}

func mustHandle(s *snapshots, name string) string {
	handle, _ := s.ready(s.name, name)
	return handle
}

func signal(t *testing.T, p *os.Process, sig os.Signal) {
	t.Helper()
	if err := p.Signal(sig); err != nil {
		t.Fatal(err)
	}
}
