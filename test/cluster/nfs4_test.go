//go:build cluster

package cluster_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// with41 makes a class one whose volumes mount with version 4.1.
func with3(c *storagev1.StorageClass)  { c.MountOptions = []string{"nfsvers=3"} }
func with41(c *storagev1.StorageClass) { c.MountOptions = []string{"nfsvers=4.1", "hard"} }

// A claim of a class with nfsvers=4.1 gets a PersistentVolume that kubelet mounts with it, and
// that has nothing of version 3. Where 4.1 is not served, the claim waits and says why.
func TestNFS4(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the native engine needs root")
	}
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	class := n.class("-nfs4", with41)
	n.claim("locks", class, "1Mi", nil)
	v := n.bound("locks")
	want := []string{"proto=tcp", fmt.Sprintf("port=%d", p.port), "nfsvers=4.1", "hard"}
	if !slices.Equal(v.Spec.MountOptions, want) {
		t.Errorf("mount options %q, want %q", v.Spec.MountOptions, want)
	}
	n.claim("plain", n.class("", nil), "1Mi", nil)
	if got := n.bound("plain").Spec.MountOptions; !slices.Contains(got, "nfsvers=4.2") || slices.Contains(got, "nolock") {
		t.Errorf("without a version the mount options are %q", got)
	}
	n.claim("three", n.class("-nfs3", with3), "1Mi", nil)
	if got := n.bound("three").Spec.MountOptions; !slices.Contains(got, "nfsvers=3") || !slices.Contains(got, "nolock") {
		t.Errorf("with nfsvers=3 the mount options are %q", got)
	}

	p.stop()
	p.flags = append(p.flags, "--nfs4=false")
	p.start()
	n.claim("too-late", class, "1Mi", nil)
	message := n.failure("too-late")
	if !strings.Contains(message, "mount option nfsvers=4.1: NFSv4.1 is turned off by --nfs4=false; use nfsvers=3, or remove it") {
		t.Errorf("the event is %q", message)
	}
	if bound := n.bound("locks"); bound.Name != v.Name {
		t.Errorf("the volume that was there is %s, want %s", bound.Name, v.Name)
	}
}

// A PersistentVolume of version 3 can be told to mount with 4.1, as docs/storageclass.md says.
func TestMountOptionsCanBeChanged(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	n.claim("data", n.class("", with3), "1Mi", nil)
	v := n.bound("data")
	patch := fmt.Sprintf(`{"spec":{"mountOptions":["proto=tcp","port=%d","nfsvers=4.1"]}}`, p.port)
	changed, err := cluster.client.CoreV1().PersistentVolumes().Patch(t.Context(), v.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil || len(changed.Spec.MountOptions) != 3 {
		t.Fatalf("%v, %v", changed, err)
	}
	if v := n.bound("data"); v.Status.Phase != corev1.VolumeBound {
		t.Errorf("the volume is %s", v.Status.Phase)
	}
}
