//go:build cluster

package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podnas/podnas/nfs/nfs3"
)

// copyOf makes a claim a copy of another.
func copyOf(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: name}
	}
}

func TestClone(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	class := n.class("", nil)
	n.claim("source", class, "2Mi", nil)
	source := n.bound("source")
	for i := range 50 {
		writeFile(t, filepath.Join(p.root, source.Name, fmt.Sprint(i/10), fmt.Sprint(i)), fmt.Sprint("data ", i))
	}
	n.claim("copy", class, "3Mi", copyOf("source"))
	v := n.bound("copy")
	if got := p.record(v.Name).Source; got != source.Name {
		t.Errorf("the copy's record says it is one of %q, want %s", got, source.Name)
	}
	for i := range 50 {
		name := filepath.Join(p.root, v.Name, fmt.Sprint(i/10), fmt.Sprint(i))
		if got := p.find(filepath.Base(name), fmt.Sprint("data ", i)); len(got) != 2 {
			t.Fatalf("file %d is at %q, want the source and the copy", i, got)
		}
	}
	// The copy is its own.
	writeFile(t, filepath.Join(p.root, v.Name, "0", "0"), "changed")
	if got := p.find("0", "data 0"); len(got) != 1 {
		t.Errorf("after a change of the copy the source's file is at %q", got)
	}

	n.claim("too-small", class, "1Mi", copyOf("source"))
	if message := n.failure("too-small"); !strings.Contains(message, "2Mi") || !strings.Contains(message, "1Mi") {
		t.Errorf("the event is %q, want both sizes", message)
	}
	// A claim of a volume that is not podnas's.
	foreign := &corev1.PersistentVolume{}
	foreign.Name = n.name + "-foreign"
	foreign.Spec = corev1.PersistentVolumeSpec{
		AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
		Capacity:         corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")},
		StorageClassName: n.name + "-foreign",
		PersistentVolumeSource: corev1.PersistentVolumeSource{
			NFS: &corev1.NFSVolumeSource{Server: "192.0.2.1", Path: "/" + source.Name},
		},
	}
	n.apply(foreign, nil)
	n.claim("foreign", foreign.Spec.StorageClassName, "1Mi", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = foreign.Name })
	n.bound("foreign")
	n.claim("copy-of-foreign", class, "1Mi", copyOf("foreign"))
	if message := n.failure("copy-of-foreign"); !strings.Contains(message, "not on the disk of this podnas") {
		t.Errorf("the event is %q", message)
	}
}

// waits makes the volumes of a class wait for a consumer.
func waits(c *storagev1.StorageClass) {
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	c.VolumeBindingMode = &mode
}

// use does the scheduler's part for a claim of such a class.
func (n *tenant) use(claim string) {
	n.t.Helper()
	patch := fmt.Sprintf(`{"metadata": {"annotations": {"volume.kubernetes.io/selected-node": %q}}}`, n.name)
	_, err := cluster.client.CoreV1().PersistentVolumeClaims(n.name).Patch(n.t.Context(), claim, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
}

// fails waits until the latest reason why a claim has no volume contains a text.
func (n *tenant) fails(claim, says string) {
	n.t.Helper()
	eventually(n.t, time.Minute, "claim "+claim+" is told: "+says, func() bool {
		return slices.ContainsFunc(n.events(n.name, claim, "ProvisioningFailed"), func(m string) bool { return strings.Contains(m, says) })
	})
}

// A copy waits for its source, whatever is missing of that, and is then a whole one: of the
// size that it requests, and its own.
func TestCloneWaitsForItsSource(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	class, waiting := n.class("", expandable), n.class("-wait", waits)
	n.claim("source", class, "2Mi", nil)
	source := n.bound("source")
	fillSource := func(volume string) {
		t.Helper()
		for i := range 50 {
			writeFile(t, filepath.Join(p.root, volume, fmt.Sprint(i)), fmt.Sprint("data ", i))
		}
	}
	fillSource(source.Name)
	isWhole := func(claim, size string) *corev1.PersistentVolume {
		t.Helper()
		v := n.bound(claim)
		for i := range 50 {
			if data, err := os.ReadFile(filepath.Join(p.root, v.Name, fmt.Sprint(i))); err != nil || string(data) != fmt.Sprint("data ", i) {
				t.Fatalf("file %d of %s is %q, %v", i, claim, data, err)
			}
		}
		want := resource.MustParse(size)
		if got := p.record(v.Name).Size; got != want.Value() || v.Spec.Capacity.Storage().Cmp(want) != 0 {
			t.Errorf("%s has %d bytes on the disk and %s in the cluster, want %s", claim, got, v.Spec.Capacity.Storage(), size)
		}
		return v
	}

	// Of another copy the source is deleted in the middle of it.
	n.claim("doomed", class, "64Mi", nil)
	doomed := n.bound("doomed")
	const many = 5000
	fillSource(doomed.Name)
	for i := range many {
		writeFile(t, filepath.Join(p.root, doomed.Name, "many", fmt.Sprint(i%100), fmt.Sprint(i)), "data")
	}
	n.claim("orphan", class, "1Gi", copyOf("doomed"))
	eventually(t, time.Minute, "it is being copied", func() bool {
		out, _, _ := p.run("volume", "list", "-o", "json")
		return strings.Contains(out, `"copying"`)
	})
	n.deleteVolume(doomed.Name)
	n.deleteClaim("doomed")

	// last is a copy of middle, which is not there, then waits, then is a copy itself.
	n.claim("last", class, "4Mi", copyOf("middle"))
	n.fails("last", "does not exist in namespace "+n.name)
	n.claim("middle", waiting, "3Mi", copyOf("source"))
	n.fails("last", "is not bound to a volume")
	if _, err := os.Stat(filepath.Join(p.root, "pvc-"+string(n.claimNow("last").UID))); err == nil {
		t.Error("the copy has a directory while its source is not bound")
	}
	n.use("middle")
	isWhole("middle", "3Mi")
	// The source has grown meanwhile.
	n.grow("source", "5Mi")
	n.grown("source", "5Mi")
	n.claim("as-before", class, "2Mi", copyOf("source"))
	n.fails("as-before", "has a size of 5Mi, which does not fit into 2Mi")
	n.claim("as-now", class, "5Mi", copyOf("source"))
	isWhole("as-now", "5Mi")

	last := isWhole("last", "4Mi")
	// It can be filled up to its own size, and no further.
	fill := func(name string, bytes int) nfs3.Status {
		t.Helper()
		file := createFile(t, p, last, name, "x")
		client := p.dial()
		defer client.Close()
		for offset := 0; offset < bytes; offset += 1 << 18 {
			written, err := client.Write(t.Context(), file, uint64(offset), nfs3.FileSync, make([]byte, 1<<18))
			if err != nil {
				t.Fatal(err)
			}
			if written.Status != nfs3.OK {
				return written.Status
			}
		}
		return nfs3.OK
	}
	if status := fill("larger-than-its-source", 3<<20); status != nfs3.OK {
		t.Errorf("3 MiB in a copy of 4Mi: %s", status)
	}
	if status := fill("too-large", 2<<20); status != nfs3.ErrDQuot && status != nfs3.ErrNoSpc {
		t.Errorf("5 MiB in a copy of 4Mi: %s", status)
	}

	// The one whose source was deleted.
	v := isWhole("orphan", "1Gi")
	files, err := filepath.Glob(filepath.Join(p.root, v.Name, "many", "*", "*"))
	if err != nil || len(files) != many {
		t.Errorf("the copy has %d files, %v, want %d", len(files), err, many)
	}
	n.gone(doomed.Name)
	if _, err := os.Stat(filepath.Join(p.root, doomed.Name)); err == nil {
		t.Error("the source is there after the copy")
	}
	for _, message := range n.events(n.name, "orphan", "ProvisioningFailed") {
		if !strings.Contains(message, "is being copied") {
			t.Errorf("the copy was told %q", message)
		}
	}
}
