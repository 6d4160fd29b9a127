package provisioner

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/internal/fixture"
)

// oneSnapshot is a cluster with one VolumeSnapshot.
type oneSnapshot SourceSnapshot

func (s oneSnapshot) SnapshotFor(context.Context, string, string) (SourceSnapshot, error) {
	return SourceSnapshot(s), nil
}

// VolumeOf implements Claims: every claim has the volume.
func (s oneSnapshot) VolumeOf(string, string) (string, error) { return s.Volume, nil }

// withSnapshot returns a provisioner with the volume source and its snapshot.
func withSnapshot(t *testing.T) *Provisioner {
	t.Helper()
	root := t.TempDir()
	store, err := volume.Open(volume.Config{Root: root, Exports: fixture.NoExports{}, Snapshots: fixture.Snapshots{Root: root}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	v, err := store.Create(t.Context(), volume.Spec{Name: "source", Size: 2 << 20})
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "source", "file"), []byte("content"), 0o600)
	}
	if err == nil {
		_, err = store.CreateSnapshot(t.Context(), "source", "first")
	}
	if err != nil {
		t.Fatal(err)
	}
	of := oneSnapshot{Volume: "source", Name: "first", Size: v.Size, Manifest: v.Manifest}
	return &Provisioner{
		Store: store, Endpoint: StaticEndpoint{IP: netip.MustParseAddr("10.96.0.9"), Port: 2049}, Log: slog.New(slog.DiscardHandler),
		Claims: of, Snapshots: of,
	}
}

// ofSnapshot is a claim with a VolumeSnapshot as its source.
func ofSnapshot(size string, modes ...v1.PersistentVolumeAccessMode) *v1.PersistentVolumeClaim {
	claim, group := fixture.Claim(size), "snapshot.storage.k8s.io"
	claim.Spec.AccessModes = modes
	claim.Spec.DataSource = &v1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: "before"}
	return claim
}

// A claim of a snapshot that nobody may write to shows it. All others are copies.
func TestProvisionView(t *testing.T) {
	none := func(*v1.PersistentVolumeClaim) {}
	for _, tt := range []struct {
		name  string
		modes []v1.PersistentVolumeAccessMode
		alter func(*v1.PersistentVolumeClaim)
		view  bool
	}{
		{"read by many", []v1.PersistentVolumeAccessMode{v1.ReadOnlyMany}, none, true},
		{"written by many", []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}, none, false},
		{"both", []v1.PersistentVolumeAccessMode{v1.ReadOnlyMany, v1.ReadWriteMany}, none, false},
		{"written by one", []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, none, false},
		{"a claim that is read by many", []v1.PersistentVolumeAccessMode{v1.ReadOnlyMany}, func(c *v1.PersistentVolumeClaim) {
			c.Spec.DataSource = &v1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "data"}
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := withSnapshot(t)
			claim := ofSnapshot("2Mi", tt.modes...)
			tt.alter(claim)
			c := class()
			c.MountOptions = []string{"rw", "hard"}
			c.Parameters = map[string]string{"onDelete": "archive", "snapshots": "daily=1", "overcommit": "0.000001", "uid": "5"}
			if !tt.view {
				delete(c.Parameters, "overcommit")
			}
			options := controller.ProvisionOptions{StorageClass: c, PVName: "pvc-1234", PVC: claim}
			pv, _, err := p.Provision(t.Context(), options)
			if !tt.view {
				if copying := new(volume.CopyingError); !errors.As(err, &copying) {
					t.Errorf("it is no copy: %v, %v", pv, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !pv.Spec.NFS.ReadOnly || !slices.Contains(pv.Spec.MountOptions, "ro") || slices.Contains(pv.Spec.MountOptions, "rw") ||
				!slices.Equal(pv.Spec.AccessModes, tt.modes) || pv.Annotations[QuotaAnnotation] != "off" {
				t.Errorf("%+v, %v", pv.Spec, pv.Annotations)
			}
			v, err := p.Store.Get("pvc-1234")
			if err != nil || !v.View || v.Claim == nil || v.OnDelete != "" || !v.Schedule.IsZero() {
				t.Errorf("%+v, %v", v, err)
			}
			// Its source may be gone by then.
			p.Snapshots = nil
			if again, _, err := p.Provision(t.Context(), options); err != nil || again.Spec.NFS.Path != pv.Spec.NFS.Path {
				t.Errorf("again: %v, %v", again, err)
			}
			if err := p.Store.DeleteSnapshot(t.Context(), "source", "first"); !errors.Is(err, volume.ErrBusy) || !strings.Contains(err.Error(), "claim ns/data") {
				t.Errorf("the snapshot is deleted: %v", err)
			}
			if err := p.Delete(t.Context(), pv); err != nil {
				t.Error(err)
			}
			if err := p.Store.DeleteSnapshot(t.Context(), "source", "first"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestProvisionViewRefused(t *testing.T) {
	p := withSnapshot(t)
	claim := ofSnapshot("1Mi", v1.ReadOnlyMany)
	_, _, err := p.Provision(t.Context(), controller.ProvisionOptions{StorageClass: class(), PVName: "pvc-1", PVC: claim})
	if err == nil || !strings.Contains(err.Error(), "a claim that shows it") || !strings.Contains(err.Error(), "at least that, not 1Mi") {
		t.Errorf("one that is smaller: %v", err)
	}
	// Its snapshot is deleted after it was looked for.
	if err := p.Store.DeleteSnapshot(t.Context(), "source", "first"); err != nil {
		t.Fatal(err)
	}
	claim.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse("2Mi")
	_, state, err := p.Provision(t.Context(), controller.ProvisionOptions{StorageClass: class(), PVName: "pvc-1", PVC: claim})
	if !errors.Is(err, volume.ErrNoSnapshot) || state != controller.ProvisioningFinished || len(p.Store.List()) != 1 {
		t.Errorf("one of a snapshot that is gone: %s, %v, left %v", state, err, p.Store.List())
	}
}
