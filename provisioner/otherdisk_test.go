package provisioner

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"

	"github.com/podnas/podnas/provisioner/internal/fixture"
)

// On an empty disk in the place of another no volume is made, until somebody says that
// it takes that place.
func TestAnotherDisk(t *testing.T) {
	foreign := func(change func(*v1.PersistentVolume)) *v1.PersistentVolume {
		pv := &v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pvc-lost", Annotations: map[string]string{InstanceAnnotation: "another"}},
			Spec: v1.PersistentVolumeSpec{
				MountOptions:           []string{"nfsvers=3", "port=2049"},
				PersistentVolumeSource: v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "10.96.0.9", Path: "/pvc-lost"}},
			},
			Status: v1.PersistentVolumeStatus{Phase: v1.VolumeBound},
		}
		change(pv)
		return pv
	}
	for _, tt := range []struct {
		name    string
		pv      *v1.PersistentVolume
		newDisk bool
		refused bool
	}{
		{"leads here", foreign(func(*v1.PersistentVolume) {}), false, true},
		{"leads here, and that is told", foreign(func(*v1.PersistentVolume) {}), true, false},
		{"is ours", foreign(func(pv *v1.PersistentVolume) { pv.Annotations[InstanceAnnotation] = "" }), false, false},
		{"was released", foreign(func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeReleased }), false, false},
		{"is being deleted", foreign(func(pv *v1.PersistentVolume) { pv.DeletionTimestamp = &metav1.Time{} }), false, false},
		{"leads elsewhere", foreign(func(pv *v1.PersistentVolume) { pv.Spec.NFS.Server = "10.96.0.10" }), false, false},
		{"leads to another port", foreign(func(pv *v1.PersistentVolume) { pv.Spec.MountOptions = []string{"port=2050"} }), false, false},
		{"is no NFS", foreign(func(pv *v1.PersistentVolume) { pv.Spec.NFS = nil }), false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, _ := newProvisioner(t)
			if tt.name == "is ours" {
				tt.pv.Annotations[InstanceAnnotation] = p.Store.Identity()
			}
			index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			if err := index.Add(tt.pv); err != nil {
				t.Fatal(err)
			}
			p.Volumes, p.NewDisk = corelisters.NewPersistentVolumeLister(index), tt.newDisk
			_, _, err := p.Provision(t.Context(), controller.ProvisionOptions{StorageClass: class(), PVName: "pvc-new", PVC: fixture.Claim("1Mi")})
			if refused := err != nil; refused != tt.refused || len(p.Store.List()) > 0 == refused {
				t.Errorf("%v, with %d volumes made", err, len(p.Store.List()))
			}
			if tt.refused {
				for _, want := range []string{"pvc-lost", "another", p.Store.Identity(), "--new-disk"} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q does not tell %q", err, want)
					}
				}
			}
		})
	}
}
