package controller

import (
	"log/slog"
	"net/netip"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/volume"
)

type noExports struct{}

func (noExports) Export(volume.Volume) error { return nil }
func (noExports) Check(volume.Options) error { return nil }
func (noExports) Unexport(volume.Volume)     {}

func newProvisioner(t *testing.T) *provisioner.Provisioner {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	store, err := volume.Open(volume.Config{
		Root: t.TempDir(), Exports: noExports{}, Log: log, Quota: quota.Choice{Server: true, Reason: "this test counts"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return &provisioner.Provisioner{
		Store: store, Endpoint: provisioner.StaticEndpoint{IP: netip.MustParseAddr("10.96.0.9"), Port: 2049}, Log: log,
	}
}

func class() *storagev1.StorageClass {
	retain := v1.PersistentVolumeReclaimRetain
	return &storagev1.StorageClass{
		ObjectMeta:    metav1.ObjectMeta{Name: "podnas"},
		Provisioner:   provisioner.DefaultName,
		ReclaimPolicy: &retain,
		MountOptions:  []string{"hard", "actimeo=1"},
	}
}

func claim(size string) *v1.PersistentVolumeClaim {
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "1234"},
		Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteMany},
			Resources: v1.VolumeResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)},
			},
		},
	}
}
