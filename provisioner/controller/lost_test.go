package controller

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/internal/fixture"
)

// While the disk may be another podnas's, nobody is told of what this one takes for missing or failed.
func TestNothingIsToldOfALostDisk(t *testing.T) {
	p := newProvisioner(t)
	e := newExpansion(t, p, "1Ei")
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	theirs := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-new", Annotations: map[string]string{provisioner.InstanceAnnotation: p.Store.Identity()}}}
	known, err := e.volumes.Get("pvc-1")
	if err = errors.Join(err, index.Add(theirs), index.Add(known)); err != nil {
		t.Fatal(err)
	}
	missing := record.NewFakeRecorder(100)
	c := &comparison{p: p, volumes: corelisters.NewPersistentVolumeLister(index), events: missing, log: slog.New(slog.DiscardHandler)}
	for _, lost := range []bool{true, false} {
		p.WaitBeat = fixture.OwnDisk
		if lost {
			p.WaitBeat = fixture.LostDisk
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if !lost {
			ctx = t.Context()
		}
		err := e.sync(ctx, "ns/data")
		if err == nil || lost != errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("lost %v: the expansion ends with %v", lost, err)
		}
		if _, err := c.compare(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		failed := false
		for _, reason := range e.seen() {
			failed = failed || reason == "VolumeResizeFailed"
		}
		for _, c := range e.claim().Status.Conditions {
			failed = failed || c.Type == v1.PersistentVolumeClaimControllerResizeError
		}
		if told := len(missing.Events) > 0; failed == lost || told == lost {
			t.Errorf("lost %v: of the expansion is told: %v, of the volume: %v", lost, failed, told)
		}
	}
}
