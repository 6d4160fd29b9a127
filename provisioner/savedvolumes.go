package provisioner

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// savedVolumes is the informer of PersistentVolumes as the library gets it.
//
// When the library has saved a PersistentVolume it puts its own object into the
// informer's store, so that it does not provision the claim again before the watch
// brings it. But the watch may have brought it by then, and that it is bound: then the
// store would have what was sent, without a phase, until something else of the volume
// changes. So what the library adds is kept apart, for the library alone, until the
// watch has brought it.
type savedVolumes struct {
	cache.SharedIndexInformer
	store *savedStore
}

func newSavedVolumes(informer cache.SharedIndexInformer) *savedVolumes {
	return &savedVolumes{informer, &savedStore{Store: informer.GetStore(), saved: map[string]any{}}}
}

// GetStore is what the library looks volumes up in.
func (v *savedVolumes) GetStore() cache.Store { return v.store }

// savedStore is the informer's store, and what the library has saved.
type savedStore struct {
	cache.Store

	mu    sync.Mutex
	saved map[string]any // by key: not brought by the watch yet, when last looked
}

// Add keeps what the library has saved.
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

// GetByKey tells what the watch has brought, else what the library has saved.
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

// Delete forgets what the library has deleted.
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
