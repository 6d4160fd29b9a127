package volume

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// When the disk fills up, the oldest scheduled snapshots are deleted, one after the other, until there is room again: before
// a client is told that the disk is full. A client that fills it faster than their files are removed waits meanwhile, see GivesRoom. A
// snapshot that somebody has asked for never goes.

const (
	// LeastFreePercent is the part of the disk below which scheduled snapshots are deleted, and leastFreeMax limits it.
	LeastFreePercent = 5
	leastFreeMax     = 32 << 30
	// fullBelow is so little free space that a client's write may have failed for it.
	fullBelow = 64 << 20
	// roomLook is the time between two looks at the free space, and roomLookNear that when it may soon be too little:
	// when fillRate would make it so.
	roomLook     = 30 * time.Second
	roomLookNear = time.Second
	fillRate     = 1 << 30
	// roomAfter is how long after the removal of files the file system may go on freeing their blocks.
	roomAfter = time.Second
	// givesFor is how long GivesRoom repeats what it has found.
	givesFor = 100 * time.Millisecond
	// givenMax is how many deleted snapshots are remembered.
	givenMax = 100
)

// leastFree is the free space below which scheduled snapshots are deleted.
func (s *Space) leastFree() int64 { return min(s.Size/100*LeastFreePercent, leastFreeMax) }

// room is what KeepRoom keeps in memory.
type room struct {
	look   chan struct{} // wakes it
	gives  atomic.Pointer[gives]
	settle time.Time   // until then the file system frees blocks; of KeepRoom's goroutine alone
	stuck  atomic.Bool // no scheduled snapshot could be deleted
	// given has the latest snapshots that were deleted, and givens is how many there were; guarded by Store.mu.
	given  []Snapshot
	givens int
}

// gives is what GivesRoom has found.
type gives struct {
	at  time.Time
	yes bool
}

// GivesRoom reports whether the disk is full, but will not be for long, because scheduled snapshots are being deleted: then what
// a client asks for is worth another try.
func (s *Store) GivesRoom() bool {
	if g := s.giving.gives.Load(); g != nil && time.Since(g.at) < givesFor {
		return g.yes
	}
	found := &gives{at: time.Now()}
	if space, err := s.Space(); err == nil && space.Free < min(fullBelow, space.leastFree()) {
		found.yes = s.hasRoomToGive()
		s.wakeRoom()
	}
	s.giving.gives.Store(found)
	return found.yes
}

// hasRoomToGive reports whether there are scheduled snapshots, or files of deleted ones.
func (s *Store) hasRoomToGive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.trashedTrees, (*trashedTree).goes) {
		return true
	}
	if s.giving.stuck.Load() {
		return false
	}
	return len(s.deletableLocked()) > 0
}

func (s *Store) wakeRoom() {
	select {
	case s.giving.look <- struct{}{}:
	default: // it is awake already
	}
}

// KeepRoom deletes scheduled snapshots when the disk fills up, until ctx ends.
func (s *Store) KeepRoom(ctx context.Context) {
	for {
		var again <-chan time.Time
		if wait := s.giveRoom(ctx); wait > 0 {
			again = time.After(wait)
		}
		select {
		case <-again:
		case <-s.giving.look:
		case <-ctx.Done():
			return
		}
	}
}

// giveRoom deletes the oldest scheduled snapshot if the disk has too little room. It returns when to look again; 0: when there
// is a scheduled snapshot.
func (s *Store) giveRoom(ctx context.Context) time.Duration {
	oldest := s.oldestScheduled()
	if len(oldest) == 0 {
		return 0
	}
	space, err := s.Space()
	if err != nil {
		return roomLook // the checks report it
	}
	least := space.leastFree()
	if more := space.Free - least; more >= 0 {
		return max(roomLookNear, min(roomLook, time.Duration(more/fillRate)*time.Second))
	}
	now := time.Now()
	if s.emptiesTrees() { // its room comes first
		s.giving.settle = now.Add(roomAfter)
	}
	if wait := s.giving.settle.Sub(now); wait > 0 {
		return wait
	}
	for _, r := range oldest {
		if err := s.DeleteSnapshot(ctx, r.volume(), r.Name); err != nil { // it is in use, or gone
			continue
		}
		s.log.Warn("snapshot: deleted the oldest scheduled one, as the disk fills up", "volume", r.Volume, "snapshot", r.Name,
			"free", FormatSize(space.Free), "needed", FormatSize(least))
		s.mu.Lock()
		s.giving.givens++
		s.giving.given = append(s.giving.given, r.Snapshot)
		if len(s.giving.given) > givenMax {
			s.giving.given = s.giving.given[1:]
		}
		s.mu.Unlock()
		s.giving.stuck.Store(false)
		return roomAfter
	}
	s.giving.stuck.Store(true)
	return roomLook
}

// oldestScheduled returns the scheduled snapshots of all volumes, the oldest first.
func (s *Store) oldestScheduled() []*snapshotRecord {
	s.mu.Lock()
	all := slices.DeleteFunc(s.deletableLocked(), func(r *snapshotRecord) bool { return r.deleting })
	s.mu.Unlock()
	sortByAge(all, s.schedules.now())
	return all
}

// deletableLocked returns the scheduled snapshots that no volume shows, also those that are being deleted.
//
// +checklocks:s.mu
func (s *Store) deletableLocked() (all []*snapshotRecord) {
	for _, of := range s.snapshots {
		for _, r := range of {
			if len(r.Scheduled) > 0 && s.views[r.id()] == nil {
				all = append(all, r)
			}
		}
	}
	return all
}

// emptiesTrees reports whether files of deleted snapshots are still to be removed, and can be.
func (s *Store) emptiesTrees() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.trashedTrees, (*trashedTree).goes)
}

// goes reports whether its files are being removed, or will be soon. The caller holds Store.mu.
func (t *trashedTree) goes() bool { return t.retry.IsZero() }

// Given returns the scheduled snapshots that were deleted for room after the first so many, and how many there were in
// all.
func (s *Store) Given(after int) (given []Snapshot, all int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := len(s.giving.given)
	return slices.Clone(s.giving.given[known-min(known, max(0, s.giving.givens-after)):]), s.giving.givens
}
