package controller

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// savedVolumes is the library's view of the informer of PersistentVolumes.
//
// After saving a PersistentVolume, the library adds its own object to the informer's
// store, so that it does not provision the claim again before the watch delivers it.
// But the watch may already have delivered a newer one, which is bound: then the store
// would have the object as sent, without a phase, until the volume changes again. So
// objects that the library adds are kept separately, for the library alone, until the
// watch has delivered them.
type savedVolumes struct {
	cache.SharedIndexInformer
	store *savedStore
}

func newSavedVolumes(informer cache.SharedIndexInformer) *savedVolumes {
	return &savedVolumes{informer, &savedStore{Store: informer.GetStore(), saved: map[string]any{}}}
}

// GetStore returns the store in which the library looks up volumes.
func (v *savedVolumes) GetStore() cache.Store { return v.store }

// savedStore is the informer's store plus the objects that the library has saved.
type savedStore struct {
	cache.Store

	mu    sync.Mutex
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

// GetByKey returns the object from the watch, or else the one that the library has
// saved.
func (s *savedStore) GetByKey(key string) (object any, exists bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if object, exists, err = s.Store.GetByKey(key); exists || err != nil {
		delete(s.saved, key)
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
