package snapshot

import (
	"os"
	"sync"
	"time"

	"github.com/podnas/podnas/internal/tree"
)

// fresh is how long a disk is as good as synced. What is written in that time can be written by the clones while its writer waits.
const fresh = 2 * time.Second

// DiskSyncs remembers when the whole disk was synced last, for the snapshots of all volumes on it. The sync at the end of one snapshot
// is the one before the next, so a round of schedules has about one for each volume. Beside another volume's writer each takes some
// hundred milliseconds to seconds (BenchmarkRound).
type DiskSyncs struct {
	mu sync.Mutex
	// began and ended are those of the last sync.
	// +checklocks:mu
	began, ended time.Time
}

// before writes what is dirty, so that not the first clone of each file does, while its writer waits. If the first sync takes long,
// there is a second one, for what was written meanwhile.
func (s *DiskSyncs) before(disk *os.File) error {
	began, ended := s.last()
	most := 2
	if time.Since(ended) < fresh {
		most = 1
	}
	for range most {
		if time.Since(began) < fresh {
			return nil
		}
		began = time.Now()
		if err := s.sync(disk); err != nil {
			return err
		}
	}
	return nil
}

// sync syncs the disk that a file is on.
func (s *DiskSyncs) sync(f *os.File) error {
	began := time.Now()
	if err := tree.SyncAll(f); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if began.After(s.began) {
		s.began, s.ended = began, time.Now()
	}
	return nil
}

func (s *DiskSyncs) last() (began, ended time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.began, s.ended
}
