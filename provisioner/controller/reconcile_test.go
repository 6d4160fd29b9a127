package controller

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/podnas/podnas/provisioner"
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
		c := &comparison{p: p, changed: make(chan struct{}, 1), volumes: corelisters.NewPersistentVolumeLister(index), events: events, log: slog.New(slog.DiscardHandler)}
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
