package controller

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// What the watch has brought is never what the library has sent, and the library finds
// what it has saved at once.
func TestSavedVolumes(t *testing.T) {
	informer := cache.NewSharedIndexInformer(nil, &v1.PersistentVolume{}, 0, cache.Indexers{})
	watched := informer.GetStore()
	lister := corelisters.NewPersistentVolumeLister(informer.GetIndexer())
	saved := newSavedVolumes(informer, "disk", "podnas").GetStore()
	volume := func(name string, phase v1.PersistentVolumePhase) *v1.PersistentVolume {
		return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.PersistentVolumeStatus{Phase: phase}}
	}
	// phase is that of the volume that the library finds, "none" if it finds none.
	phase := func(name string) v1.PersistentVolumePhase {
		t.Helper()
		object, exists, err := saved.GetByKey(name)
		if err != nil {
			t.Fatal(err)
		}
		if !exists {
			return "none"
		}
		return object.(*v1.PersistentVolume).Status.Phase
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	// The watch is faster.
	do(watched.Add(volume("a", v1.VolumeBound)))
	do(saved.Add(volume("a", "")))
	if pv, err := lister.Get("a"); err != nil || pv.Status.Phase != v1.VolumeBound {
		t.Errorf("a bound volume is listed as %v, %v", pv, err)
	}
	if got := phase("a"); got != v1.VolumeBound {
		t.Errorf("the library finds a bound volume in phase %q", got)
	}
	// What the library changes, it changes for itself alone.
	if object, _, err := saved.GetByKey("a"); err != nil {
		t.Error(err)
	} else if pv := object.(*v1.PersistentVolume); pv != nil {
		pv.Finalizers = []string{finalizer}
		if pv, err := lister.Get("a"); err != nil || len(pv.Finalizers) != 0 {
			t.Errorf("others have what the library has changed: %v, %v", pv, err)
		}
	}
	// The library is.
	do(saved.Add(volume("b", "")))
	if got := phase("b"); got != "" {
		t.Errorf("the library finds what it has saved in phase %q", got)
	}
	if pv, err := lister.Get("b"); err == nil {
		t.Errorf("listed before the watch brings it: %v", pv)
	}
	do(watched.Add(volume("b", v1.VolumeBound)))
	if got := phase("b"); got != v1.VolumeBound {
		t.Errorf("after the watch has brought it, in phase %q", got)
	}
	// What is gone does not come back.
	for _, name := range []string{"a", "b"} {
		do(watched.Delete(volume(name, "")))
	}
	do(saved.Add(volume("c", "")))
	do(saved.Delete(volume("c", "")))
	for _, name := range []string{"a", "b", "c"} {
		if got := phase(name); got != "none" {
			t.Errorf("%s is found when it is gone, in phase %q", name, got)
		}
	}
	// Nothing is kept for longer than it takes.
	do(saved.Add(volume("d", "")))
	do(watched.Add(volume("d", v1.VolumeBound)))
	do(saved.Add(volume("e", "")))
	if n := len(saved.(*savedStore).saved); n != 1 {
		t.Errorf("%d volumes are kept, want the one that the watch has not brought", n)
	}
}
