package export

import (
	"sync"

	"github.com/podnas/podnas/server/shares"
)

// syncSlots bounds the syncs at a time, and shares them out between volumes.
type syncSlots struct {
	mu    sync.Mutex
	slots *shares.Semaphore[chan struct{}]
}

// take waits until a volume may sync.
func (s *syncSlots) take(v *Volume) {
	s.mu.Lock()
	now := make(chan struct{})
	taken := s.slots.Enter(shares.Owner{Volume: v.ID}, now)
	s.mu.Unlock()
	if !taken {
		<-now
	}
}

// give ends it.
func (s *syncSlots) give(v *Volume) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots.Leave(shares.Owner{Volume: v.ID})
	for next, ok := s.slots.Next(); ok; next, ok = s.slots.Next() {
		close(next)
	}
}
