package controller

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	library "sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"

	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/internal/fixture"
)

// What differs is told once in ten minutes, and that it is mended is seen within one.
func TestReconcileSeesWhatIsMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvisioner(t)
		index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-lost", Annotations: map[string]string{provisioner.InstanceAnnotation: p.Store.Identity()}}}
		if err := index.Add(pv); err != nil {
			t.Fatal(err)
		}
		events := record.NewFakeRecorder(100)
		c := &comparison{p: p, changed: newBell(), volumes: corelisters.NewPersistentVolumeLister(index), events: events, log: slog.New(slog.DiscardHandler)}
		var r Reconciler
		ctx, stop := context.WithCancel(t.Context())
		go r.run(ctx, c)
		want := func(findings, told int) {
			t.Helper()
			synctest.Wait()
			if n := len(r.Report().Findings); n != findings {
				t.Errorf("%d findings, want %d", n, findings)
			}
			if n := len(events.Events); n != told {
				t.Errorf("%d events, want %d", n, told)
			}
		}
		want(1, 1)
		time.Sleep(9 * findingsPeriod)
		want(1, 1)
		time.Sleep(reconcilePeriod)
		want(1, 2)
		if err := index.Delete(pv); err != nil {
			t.Fatal(err)
		}
		time.Sleep(findingsPeriod)
		want(0, 2)
		stop()
		synctest.Wait()
	})
}

// What an administrator changes in a PersistentVolume, and whose it is, is in the record: a PersistentVolume that is written again has it.
func TestReconcileNotesChanges(t *testing.T) {
	p := newProvisioner(t)
	pv, _, err := p.Provision(t.Context(), library.ProvisionOptions{StorageClass: class(), PVName: "pvc-1", PVC: fixture.Claim("1Mi")})
	if err != nil {
		t.Fatal(err)
	}
	volumes, claims := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	other := fixture.Claim("1Mi")
	other.Name, other.UID, other.Labels = "other", "5678", map[string]string{"app": "other"}
	pv.Spec.ClaimRef, pv.Status.Phase = &v1.ObjectReference{Namespace: other.Namespace, Name: other.Name, UID: other.UID}, v1.VolumeBound
	for i, option := range pv.Spec.MountOptions {
		if option == "nfsvers=4.2" {
			pv.Spec.MountOptions[i] = "nfsvers=4.1"
		}
	}
	if err := errors.Join(volumes.Add(pv), claims.Add(other)); err != nil {
		t.Fatal(err)
	}
	c := &comparison{
		p: p, volumes: corelisters.NewPersistentVolumeLister(volumes), claims: corelisters.NewPersistentVolumeClaimLister(claims),
		events: record.NewFakeRecorder(100), log: slog.New(slog.DiscardHandler),
	}
	if findings, err := c.compare(t.Context()); err != nil || len(findings) > 0 {
		t.Errorf("findings %v, %v", findings, err)
	}
	v, err := p.Store.Get("pvc-1")
	if err != nil {
		t.Fatal(err)
	}
	m, err := provisioner.ManifestOf(v)
	if err != nil || !maps.Equal(m.ClaimLabels, other.Labels) || v.Claim.UID != "5678" {
		t.Errorf("the record has %+v and %+v, %v", m, v.Claim, err)
	}
	if version := provisioner.MountVersion(v); version != "4.1" {
		t.Errorf("it mounts with %s", version)
	}
	again, err := p.PersistentVolume(t.Context(), v)
	if err != nil || !slices.Equal(slices.Sorted(slices.Values(again.Spec.MountOptions)), slices.Sorted(slices.Values(pv.Spec.MountOptions))) {
		t.Errorf("written again it has %v, want %v: %v", again.Spec.MountOptions, pv.Spec.MountOptions, err)
	}
}
