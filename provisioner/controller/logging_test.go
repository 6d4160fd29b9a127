package controller

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	library "sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"

	"github.com/podnas/podnas/provisioner/internal/fixture"
)

// The library tries again and again; the log has each reason once.
func TestEachReasonIsLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	p := newProvisioner(t)
	p.Log = slog.New(slog.NewTextHandler(&out, nil))
	logging := &loggingProvisioner{Provisioner: p, client: fake.NewClientset(), permission: &permission{client: fake.NewClientset()}}
	options := library.ProvisionOptions{StorageClass: class(), PVName: "pvc-1", PVC: fixture.Claim("1Ei")}
	for range 3 {
		if _, _, err := logging.Provision(t.Context(), options); err == nil {
			t.Fatal("1Ei was provisioned")
		}
	}
	if lines := strings.Count(out.String(), "\n"); lines != 1 || !strings.Contains(out.String(), "level=WARN") || !strings.Contains(out.String(), "claim=ns/data") {
		t.Errorf("%d lines: %s", lines, &out)
	}
	out.Reset()
	// Another instance's volume is none of ours, and nothing to tell.
	theirs := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}
	theirs.Spec.PersistentVolumeReclaimPolicy, theirs.Status.Phase = v1.PersistentVolumeReclaimDelete, v1.VolumeReleased
	logging.client = fake.NewClientset(theirs)
	if err := logging.Delete(t.Context(), theirs); err == nil {
		t.Error("deleted another's volume")
	}
	if out.Len() > 0 {
		t.Errorf("told: %s", &out)
	}
}

// The files of a volume stay if its PersistentVolume has changed since the library's cache was told of it.
func TestDeleteByAnOldCache(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(*v1.PersistentVolume)
		deletes bool
	}{
		{"unchanged", func(*v1.PersistentVolume) {}, true},
		{"retained", func(pv *v1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
		}, false},
		{"bound again", func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeBound }, false},
		{"another one", func(pv *v1.PersistentVolume) { pv.UID = "other" }, false},
		{"gone", func(pv *v1.PersistentVolume) { pv.Name = "other" }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newProvisioner(t)
			options := library.ProvisionOptions{StorageClass: class(), PVName: "pvc-1", PVC: fixture.Claim("1Mi")}
			pv, _, err := p.Provision(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			pv.UID, pv.Spec.PersistentVolumeReclaimPolicy, pv.Status.Phase = "uid", v1.PersistentVolumeReclaimDelete, v1.VolumeReleased
			now := pv.DeepCopy()
			tt.change(now)
			logging := &loggingProvisioner{Provisioner: p, client: fake.NewClientset(now)}
			err = logging.Delete(t.Context(), pv)
			if _, ignored := err.(*library.IgnoredError); ignored == tt.deletes { //nolint:errorlint // as the library looks at it
				t.Errorf("it ends with %v", err)
			}
			if _, err := p.Store.Get("pvc-1"); (err != nil) != tt.deletes {
				t.Errorf("the volume: %v", err)
			}
		})
	}
}
