package controller

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/podnas/podnas/provisioner"
)

// savedVolumes is the library's view of the informer of PersistentVolumes.
//
// After saving a PersistentVolume, the library adds its own object to the informer's
// store, so that it does not provision the claim again before the watch delivers it.
// But the watch may already have delivered a newer one, which is bound: then the store
// would have the object as sent, without a phase, until the volume changes again. So
// objects that the library adds are kept separately, for the library alone, until the
// watch has delivered them.
//
// The library changes the finalizers of the objects that it gets before it writes them to
// the API server. If that fails, they would be wrong in the informer's store until the next
// change, for the library and for all others; so it gets copies. And it would put its
// finalizer on the PersistentVolumes of another disk, and on those of a provisioner of another
// name, which it never deletes: so it hears of its own alone.
type savedVolumes struct {
	cache.SharedIndexInformer
	store    *savedStore
	identity string // of this disk
	name     string // of this provisioner
}

func newSavedVolumes(informer cache.SharedIndexInformer, identity, name string) *savedVolumes {
	return &savedVolumes{informer, &savedStore{Store: informer.GetStore(), saved: map[string]any{}}, identity, name}
}

// AddEventHandlerWithResyncPeriod adds the library's handler.
func (v *savedVolumes) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, period time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return v.SharedIndexInformer.AddEventHandlerWithResyncPeriod(cache.FilteringResourceEventHandler{
		FilterFunc: func(object any) bool {
			pv := volumeOf(object)
			return pv != nil && pv.Annotations[provisioner.InstanceAnnotation] == v.identity && pv.Annotations[provisioner.ProvisionedBy] == v.name
		},
		Handler: handler,
	}, period)
}

// volumeOf returns the PersistentVolume that a handler got, or nil. Of one that was deleted
// while the watch was interrupted it returns the last known state.
func volumeOf(object any) *v1.PersistentVolume {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	pv, _ := object.(*v1.PersistentVolume)
	return pv
}

// GetStore returns the store in which the library looks up volumes.
func (v *savedVolumes) GetStore() cache.Store { return v.store }

// savedStore is the informer's store plus the objects that the library has saved.
type savedStore struct {
	cache.Store

	mu sync.Mutex
	// +checklocks:mu
	saved map[string]any // by key: not yet delivered by the watch when last checked
}

// Add keeps an object that the library has saved.
func (s *savedStore) Add(object any) error {
	key, err := cache.MetaNamespaceKeyFunc(object)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved[key] = object
	for key := range s.saved {
		if _, brought, err := s.Store.GetByKey(key); brought || err != nil {
			delete(s.saved, key)
		}
	}
	return nil
}

// GetByKey returns a copy of the object from the watch, or else the one that the library
// has saved.
func (s *savedStore) GetByKey(key string) (object any, exists bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if object, exists, err = s.Store.GetByKey(key); exists || err != nil {
		delete(s.saved, key)
		if pv, ok := object.(*v1.PersistentVolume); ok {
			object = pv.DeepCopy()
		}
		return object, exists, err
	}
	object, exists = s.saved[key]
	return object, exists, nil
}

// Delete removes an object that the library has deleted.
func (s *savedStore) Delete(object any) error {
	key, err := cache.MetaNamespaceKeyFunc(object)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.saved, key)
	return s.Store.Delete(object)
}
