package stats

import (
	"sync/atomic"
	"time"
)

// Syncs counts syncs of the disk. The zero Syncs is ready for use.
type Syncs struct {
	Durations Durations // of all, failed ones too
	Failed    atomic.Uint64
}

// Add adds one.
func (s *Syncs) Add(took time.Duration, err error) {
	s.Durations.Add(took)
	if err != nil {
		s.Failed.Add(1)
	}
}
