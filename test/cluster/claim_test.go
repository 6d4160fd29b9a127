//go:build cluster

package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
)

// local is where PVs point in these tests.
const local = "--server-address=127.0.0.1"

func TestPersistentVolume(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()

	class := n.class("", func(c *storagev1.StorageClass) {
		c.MountOptions = []string{"hard", "timeo=50"}
	})
	n.claim("many", class, "3Mi", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany, corev1.ReadOnlyMany}
	})
	v := n.bound("many")

	claim, err := cluster.client.CoreV1().PersistentVolumeClaims(n.name).Get(t.Context(), "many", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := "pvc-" + string(claim.UID); v.Name != want {
		t.Errorf("the volume's name is %s, want %s", v.Name, want)
	}
	if v.Spec.NFS == nil {
		t.Fatalf("the volume is no NFS volume: %+v", v.Spec)
	}
	if v.Spec.NFS.Server != "127.0.0.1" || v.Spec.NFS.Path != "/"+v.Name || v.Spec.NFS.ReadOnly {
		t.Errorf("NFS source %+v, want 127.0.0.1:/%s", *v.Spec.NFS, v.Name)
	}
	port := fmt.Sprintf("port=%d", p.port)
	want := []string{"proto=tcp", port, "nfsvers=4.2", "hard", "timeo=50"}
	if !slices.Equal(v.Spec.MountOptions, want) {
		t.Errorf("mount options %q, want %q", v.Spec.MountOptions, want)
	}
	if got := v.Spec.Capacity.Storage().String(); got != "3Mi" {
		t.Errorf("capacity %s, want 3Mi", got)
	}
	if !slices.Equal(v.Spec.AccessModes, claim.Spec.AccessModes) {
		t.Errorf("access modes %v, want %v", v.Spec.AccessModes, claim.Spec.AccessModes)
	}
	if v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		t.Errorf("reclaim policy %s, want Delete", v.Spec.PersistentVolumeReclaimPolicy)
	}
	if v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != claim.UID {
		t.Errorf("claimRef %+v, want the claim of uid %s", v.Spec.ClaimRef, claim.UID)
	}
	if v.Annotations["pv.kubernetes.io/provisioned-by"] != n.provisioner {
		t.Errorf("provisioned by %q, want %q", v.Annotations["pv.kubernetes.io/provisioned-by"], n.provisioner)
	}
	if by := v.Annotations["podnas.io/quota"]; by != "kernel" && by != "server" || v.Annotations["podnas.io/quota-reason"] == "" {
		t.Errorf("who keeps the size is not told: %v", v.Annotations)
	}
	if v.Annotations["podnas.io/instance"] == "" {
		t.Error("no annotation podnas.io/instance")
	}
	if got := p.volumes(); !slices.Equal(got, []string{v.Name}) {
		t.Errorf("the disk has %q, want the directory %s alone", got, v.Name)
	}
}

func TestIPv6Server(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, "--server-address=fd00::1")
	p.start()
	n.claim("six", n.class("", with3), "1Mi", nil)
	v := n.bound("six")
	if v.Spec.NFS.Server != "fd00::1" {
		t.Errorf("server %q, want fd00::1", v.Spec.NFS.Server)
	}
	for _, option := range []string{"proto=tcp6", "mountproto=tcp6"} {
		if !slices.Contains(v.Spec.MountOptions, option) {
			t.Errorf("mount options %q lack %s", v.Spec.MountOptions, option)
		}
	}
}

func TestReclaimDelete(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	n.claim("short-lived", n.class("", nil), "1Mi", nil)
	v := n.bound("short-lived")
	writeFile(t, filepath.Join(p.root, v.Name, "folder", "file"), "data")

	n.deleteClaim("short-lived")
	n.gone(v.Name)
	if got := p.volumes(); len(got) != 0 {
		t.Errorf("the disk still has %q", got)
	}
	eventually(t, 30*time.Second, "the trash is empty", func() bool { return len(p.state("trash")) == 0 })
}

func TestReclaimRetain(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	n.claim("precious", n.class("", func(c *storagev1.StorageClass) {
		retain := corev1.PersistentVolumeReclaimRetain
		c.ReclaimPolicy = &retain
	}), "1Mi", nil)
	v := n.bound("precious")
	file := filepath.Join(p.root, v.Name, "file")
	writeFile(t, file, "data")

	n.deleteClaim("precious")
	n.released(v.Name)
	// A volume that goes after it shows that podnas has had its turn.
	n.claim("other", n.class("-delete", nil), "1Mi", nil)
	other := n.bound("other")
	n.deleteClaim("other")
	n.gone(other.Name)
	if got, err := os.ReadFile(file); string(got) != "data" {
		t.Errorf("the retained volume's file has %q (%v), want %q", got, err, "data")
	}

	// The administrator has looked at it, and lets it go.
	n.update(v.Name, func(v *corev1.PersistentVolume) {
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	})
	n.gone(v.Name)
	if got := p.volumes(); len(got) != 0 {
		t.Errorf("the disk still has %q", got)
	}
}

// A client has written to a volume and holds a file handle. After a restart of
// podnas the data is there, under the very handle; after the claim's deletion
// the handle leads nowhere.
func TestRestartKeepsData(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	class := n.class("", nil)
	n.claim("before", class, "1Mi", nil)
	v := n.bound("before")
	file := createFile(t, p, v, "file", "data")

	p.stop()
	n.claim("while-down", class, "1Mi", nil)
	p.start()
	read := readFile(t, p, file)
	if read.Status != nfs3.OK || string(read.Data) != "data" {
		t.Errorf("after the restart the file answers %s with %q, want %q", read.Status, read.Data, "data")
	}
	after := n.bound("while-down")
	if after.Annotations["podnas.io/instance"] != v.Annotations["podnas.io/instance"] {
		t.Errorf("the instance was %s and is %s after the restart",
			v.Annotations["podnas.io/instance"], after.Annotations["podnas.io/instance"])
	}

	n.deleteClaim("before")
	n.gone(v.Name)
	if got := p.volumes(); !slices.Equal(got, []string{after.Name}) {
		t.Errorf("the disk has %q, want %s alone", got, after.Name)
	}
	if read := readFile(t, p, file); read.Status != nfs3.ErrStale {
		t.Errorf("a file of the deleted volume answers %s with %q, want %s", read.Status, read.Data, nfs3.ErrStale)
	}
}

func TestTooLargeClaim(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	class := n.class("", nil)
	n.claim("too-large", class, "1Pi", nil)
	message := n.failure("too-large")
	t.Log(message)
	sizes := regexp.MustCompile(`\b[0-9.]+[KMGTP]i\b`).FindAllString(message, -1)
	if len(sizes) != 2 || !slices.Contains(sizes, "1Pi") {
		t.Errorf("the event %q names the sizes %q, want 1Pi and what is free", message, sizes)
	}
	n.claim("fits", class, "1Mi", nil)
	v := n.bound("fits")
	if got := p.volumes(); !slices.Equal(got, []string{v.Name}) {
		t.Errorf("the disk has %q, want %s alone", got, v.Name)
	}
}

// What podnas has no way to give is told, and no volume is made.
func TestRefusedClaim(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	class := n.class("", nil)
	for _, tt := range []struct {
		name   string
		change func(*corev1.PersistentVolumeClaim)
		want   string
	}{
		{"attributes", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = new("fast") }, "volumeAttributesClassName fast: podnas's volumes have no attributes"},
		{"block", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) }, "use volumeMode: Filesystem"},
	} {
		n.claim(tt.name, class, "1Mi", tt.change)
		if message := n.failure(tt.name); !strings.Contains(message, tt.want) {
			t.Errorf("%s: the event is %q, want %q in it", tt.name, message, tt.want)
		}
	}
	if got := p.volumes(); len(got) != 0 || len(n.volumes()) != 0 {
		t.Errorf("the disk has %q, and the cluster %d volumes", got, len(n.volumes()))
	}
	n.claim("without", class, "1Mi", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = new("") })
	n.bound("without")
}

// A volume that says it is another instance's is not deleted, whatever its
// directory is called.
func TestAnotherInstancesVolume(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	class := n.class("", nil)
	n.claim("foreign", class, "1Mi", nil)
	v := n.bound("foreign")
	n.update(v.Name, func(v *corev1.PersistentVolume) { v.Annotations["podnas.io/instance"] = "somebody-else" })
	n.deleteClaim("foreign")
	n.released(v.Name)

	n.claim("own", class, "1Mi", nil)
	own := n.bound("own")
	n.deleteClaim("own")
	n.gone(own.Name)
	if got := p.volumes(); !slices.Equal(got, []string{v.Name}) {
		t.Errorf("the disk has %q, want %s left alone", got, v.Name)
	}
	n.released(v.Name)
}

// Another disk under the same provisioner name answers new claims, and leaves
// the volumes of the first to the first.
func TestTwoDisksOneProvisioner(t *testing.T) {
	n := newTenant(t)
	first := newPodnas(t, n.provisioner, local)
	first.start()
	class := n.class("", nil)
	n.claim("on-first", class, "1Mi", nil)
	v := n.bound("on-first")
	first.stop()

	second := newPodnas(t, n.provisioner, local)
	second.start()
	n.deleteClaim("on-first")
	n.released(v.Name)
	n.claim("on-second", class, "1Mi", nil)
	own := n.bound("on-second")
	n.deleteClaim("on-second")
	n.gone(own.Name)
	n.released(v.Name)
	second.stop()

	first.start()
	n.gone(v.Name)
	if got := first.volumes(); len(got) != 0 {
		t.Errorf("the first disk still has %q", got)
	}
}

func TestWaitForFirstConsumer(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	wait := n.class("-wait", func(c *storagev1.StorageClass) {
		mode := storagev1.VolumeBindingWaitForFirstConsumer
		c.VolumeBindingMode = &mode
	})
	n.claim("nobody-uses", wait, "1Mi", nil)
	n.claim("used", wait, "1Mi", nil)
	// The scheduler's part: a pod that uses the claim goes to this node. It is gone since,
	// which is nothing to a volume that every node can mount.
	eventually(t, 10*time.Second, "the claim has a node", func() bool {
		api := cluster.client.CoreV1().PersistentVolumeClaims(n.name)
		claim, err := api.Get(t.Context(), "used", metav1.GetOptions{})
		if err != nil {
			return false
		}
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, "volume.kubernetes.io/selected-node", n.name)
		_, err = api.Update(t.Context(), claim, metav1.UpdateOptions{})
		return err == nil
	})
	v := n.bound("used")
	if v.Spec.NodeAffinity != nil {
		t.Errorf("the volume is tied to a node: %+v", v.Spec.NodeAffinity)
	}
	if got := p.volumes(); !slices.Equal(got, []string{v.Name}) {
		t.Errorf("the disk has %q, want %s alone: a claim waits for its first consumer", got, v.Name)
	}
}

// createFile makes a file in the volume over NFS, as the volume's own mount
// would, and returns its handle.
func createFile(t *testing.T, p *podnas, v *corev1.PersistentVolume, name, data string) nfs3.FH {
	t.Helper()
	client := p.dial()
	defer client.Close()
	root, err := client.Mount(t.Context(), v.Spec.NFS.Path)
	if err != nil || root.Status != mount3.OK {
		t.Fatalf("mount %s: %s (%v)", v.Spec.NFS.Path, root.Status, err)
	}
	where := nfs3.DirOpArgs{Dir: root.Handle, Name: []byte(name)}
	file, err := client.Create(t.Context(), nfs3.CreateArgs{Where: where, Mode: nfs3.Guarded})
	if err != nil || file.Status != nfs3.OK || file.Object == nil {
		t.Fatalf("create %s: %s (%v)", name, file.Status, err)
	}
	written, err := client.Write(t.Context(), file.Object, 0, nfs3.FileSync, []byte(data))
	if err != nil || written.Status != nfs3.OK || int(written.Count) != len(data) {
		t.Fatalf("write %s: %s, %d of %d bytes (%v)", name, written.Status, written.Count, len(data), err)
	}
	return file.Object
}

func readFile(t *testing.T, p *podnas, file nfs3.FH) nfs3.ReadRes {
	t.Helper()
	client := p.dial()
	defer client.Close()
	read, err := client.Read(t.Context(), file, 0, 4096)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func writeFile(t testing.TB, path, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}
