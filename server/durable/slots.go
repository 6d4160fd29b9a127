package durable

import (
	"sync"

	"github.com/podnas/podnas/server/shares"
)

// slots bounds the syncs at a time, and shares them out between volumes.
type slots struct {
	mu sync.Mutex
	// +checklocks:mu
	semaphore *shares.Semaphore[chan struct{}]
}

// take waits until a volume may sync.
func (s *slots) take(volume uint64) {
	s.mu.Lock()
	now := make(chan struct{})
	taken := s.semaphore.Enter(shares.Owner{Volume: volume}, now)
	s.mu.Unlock()
	if !taken {
		<-now
	}
}

// give ends it.
func (s *slots) give(volume uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.semaphore.Leave(shares.Owner{Volume: volume})
	for next, ok := s.semaphore.Next(); ok; next, ok = s.semaphore.Next() {
		close(next)
	}
}
