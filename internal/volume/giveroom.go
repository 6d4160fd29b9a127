package volume

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// When the disk fills up, of blocks or of inodes, the oldest scheduled snapshots are deleted, one after the other, until there is room
// again: before a client is told that the disk is full. A client that fills it faster than their files are removed waits meanwhile, see
// GivesRoom. So does one that asks for much room at once. A snapshot that somebody has asked for never goes.

const (
	// LeastFreePercent is the part of the disk below which scheduled snapshots are deleted, and leastFreeMax limits it. Of inodes it is
	// the same part, and leastInodesMax.
	LeastFreePercent = 5
	leastFreeMax     = 32 << 30
	leastInodesMax   = 1 << 20
	// fullBelow is so little free space that a client's write may have failed for it, and fullInodes so few inodes.
	fullBelow  = 64 << 20
	fullInodes = 1 << 10
	// wantedFor is for how long room is made for what a client has asked for: it asks again within that.
	wantedFor = 30 * time.Second
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

// leastInodes is the number of free inodes below which scheduled snapshots are deleted; 0: the disk has no limit.
func (s *Space) leastInodes() uint64 { return min(s.Inodes/100*LeastFreePercent, leastInodesMax) }

// enough returns nil, or why podnas takes no snapshots by itself.
func (s *Space) enough() error {
	const then = "podnas takes no snapshots by itself, and deletes the oldest ones that it has taken"
	if least := s.leastFree(); s.Free < least {
		return fmt.Errorf("%s of the disk's %s are free: below %s, %s", FormatSize(s.Free), FormatSize(s.Size), FormatSize(least), then)
	}
	if least := s.leastInodes(); s.InodesFree < least {
		return fmt.Errorf("%d of the disk's %d inodes are free: below %d, %s", s.InodesFree, s.Inodes, least, then)
	}
	return nil
}

// room is what KeepRoom keeps in memory.
type room struct {
	look   chan struct{} // wakes it
	gives  atomic.Pointer[gives]
	wanted atomic.Pointer[wanted]
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

// wanted is so many free bytes that a client's call needs.
type wanted struct {
	at    time.Time
	bytes int64
}

// GivesRoom reports whether the disk is full, but will not be for long, because scheduled snapshots are being deleted: then what
// a client asks for in a volume is worth another try. bytes is how much that is, 0 if it is little.
func (s *Store) GivesRoom(volume uint64, bytes int64) bool {
	if bytes > 0 {
		return s.givesMuch(volume, bytes)
	}
	if g := s.giving.gives.Load(); g != nil && time.Since(g.at) < givesFor {
		return g.yes
	}
	found := &gives{at: time.Now()}
	space, err := s.Space()
	if err == nil && (space.Free < min(fullBelow, space.leastFree()) || space.InodesFree < min(fullInodes, space.leastInodes())) {
		found.yes = s.hasRoomToGive()
		s.wakeRoom()
	}
	s.giving.gives.Store(found)
	return found.yes
}

// givesMuch is GivesRoom for a call that takes much. If the volume's size or all scheduled snapshots are too small for it, none is deleted
// for it.
func (s *Store) givesMuch(volume uint64, bytes int64) bool {
	space, err := s.Space()
	if err != nil || space.Free >= bytes || bytes > space.Size {
		return false
	}
	var name string
	held := int64(0) // at most
	s.mu.Lock()
	for _, r := range s.records {
		if r.ID == volume {
			name = r.Name
		}
	}
	for _, r := range s.deletableLocked() {
		held += r.Bytes
	}
	emptied := slices.ContainsFunc(s.trashedTrees, (*trashedTree).goes)
	s.mu.Unlock()
	u, err := s.Usage(name)
	switch {
	case err != nil, u.Limit.Bytes > 0 && u.Bytes+bytes > u.Limit.Bytes:
		return false
	case space.Free+held < bytes:
		return emptied // what that gives is not known
	case !emptied && !s.hasRoomToGive():
		return false
	}
	s.giving.wanted.Store(&wanted{time.Now(), bytes + fullBelow})
	s.wakeRoom()
	return true
}

// lacks reports whether scheduled snapshots are to be deleted, and says which free space is needed.
func (s *Store) lacks(space *Space) (lacks bool, least int64) {
	least = space.leastFree()
	switch w := s.giving.wanted.Load(); {
	case w == nil:
	case space.Free >= w.bytes, time.Since(w.at) >= wantedFor: // who has not got it asks again
		s.giving.wanted.CompareAndSwap(w, nil)
	default:
		least = max(least, w.bytes)
	}
	return space.Free < least || space.InodesFree < space.leastInodes(), least
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
	lacks, least := s.lacks(&space)
	if !lacks {
		return max(roomLookNear, min(roomLook, time.Duration((space.Free-least)/fillRate)*time.Second))
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
			"free", FormatSize(space.Free), "needed", FormatSize(least), "freeInodes", space.InodesFree, "neededInodes", space.leastInodes())
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
