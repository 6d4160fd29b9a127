package snapshot

import (
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/podnas/podnas/server/disk"
)

// Volume is what snapshots need of a volume's changes. The zero Volume is ready.
type Volume struct {
	// Syncs is what the volumes of a disk share. It must be set before Take.
	Syncs *DiskSyncs

	changes gate                   // all changes
	long    gate                   // those that may take long have entered here before
	taking  atomic.Pointer[taking] // nil: no snapshot is being taken
	busy    atomic.Bool            // from before the cut until the snapshot is complete
}

// Enter begins a change of a file, or several that are one, until Leave. It waits for a cut, so it must not be in another
// one. The error is EAGAIN while somebody holds the volume, see Hold: then there is no Leave.
func (v *Volume) Enter(id *disk.FileID) (Part, error) { return v.changes.enter(id) }

// Leave ends a change.
func (v *Volume) Leave(p Part) { v.changes.leave(p) }

// EnterLong comes before Enter, and before any lock that changes take, for a change that may take long by itself. It waits for a
// cut from when that is asked for, so that the pause is not as long as the change.
func (v *Volume) EnterLong(id *disk.FileID) Part {
	p, _ := v.long.enter(id) // it is never held
	return p
}

// LeaveLong ends EnterLong, after Leave.
func (v *Volume) LeaveLong(p Part) { v.long.leave(p) }

// IsTaking reports whether a snapshot is being taken. For a change that has entered, this stays so.
func (v *Volume) IsTaking() bool { return v.taking.Load() != nil }

// IsCutting reports whether a cut is asked for, and not made yet: EnterLong waits.
func (v *Volume) IsCutting() bool { return v.long.closed.Load() != nil }

// Awaited returns a channel that is closed when a change of a file has to wait for something no more, and nil if it would wait for nothing
// now. long is whether the change begins with EnterLong. A call that waits by it holds up nobody: in EnterLong, Enter and Before it has a permit to
// block, of which there are few, and often locks.
func (v *Volume) Awaited(file *disk.FileID, long bool) <-chan struct{} {
	if c := v.long.closed.Load(); long && c != nil {
		return c.opened
	}
	if c := v.changes.closed.Load(); c != nil && !c.held {
		return c.opened
	}
	if t := v.taking.Load(); t != nil {
		return t.claimed(t.files.FS.NumberIn(file))
	}
	return nil
}

// Before captures files that are about to change, if a snapshot is being taken that does not have them yet. The change
// has entered. Files with the zero FileID do not exist.
func (v *Volume) Before(files ...*disk.FileID) {
	if t := v.taking.Load(); t != nil {
		for _, file := range files {
			t.before(*file)
		}
	}
}

// Moves says that a file is about to get another name, or to move to another directory.
func (v *Volume) Moves(file *disk.FileID) {
	if t := v.taking.Load(); t != nil && !file.IsZero() {
		t.moves(*file)
	}
}

// Made says that a file was made, with an inode number on the volume's device: no snapshot that is being taken has it.
func (v *Volume) Made(inode uint64) {
	if t := v.taking.Load(); t != nil {
		t.made(inode)
	}
}

// gate lets changes in, until it is closed. The zero gate is open.
type gate struct {
	// inside has the changes under way. There are several counters, so that calls on many processors do not write to one
	// cache line.
	inside [gateParts]struct {
		changes atomic.Int64
		_       [56]byte
	}
	closed atomic.Pointer[closing] // nil: the gate is open
}

const gateParts = 8

// closing is a time in which a gate is closed.
type closing struct {
	opened chan struct{} // closed at its end
	held   bool          // it takes long: changes fail instead of waiting

	mu sync.Mutex // keeps what is held from being opened
	// drained is whether no change is under way any more that began before.
	//
	// +checklocks:mu
	drained bool
}

// whileDrained calls cut, if no change is under way, and none comes before it has returned.
func (c *closing) whileDrained(g *gate, cut func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.drained || g.closed.Load() != c {
		return false
	}
	cut()
	return true
}

// Part is where a change has entered.
type Part uint8

// enter waits while the gate is closed. The error is EAGAIN while it is held: then there is no leave.
func (g *gate) enter(id *disk.FileID) (Part, error) {
	p := Part(id.Fold() % gateParts)
	for {
		g.inside[p].changes.Add(1)
		closed := g.closed.Load()
		if closed == nil {
			return p, nil
		}
		g.inside[p].changes.Add(-1)
		if closed.held {
			return 0, syscall.EAGAIN
		}
		<-closed.opened
	}
}

func (g *gate) leave(p Part) { g.inside[p].changes.Add(-1) }

// close closes the gate, until open. It returns false if it is closed already.
func (g *gate) close(c *closing) bool { return g.closed.CompareAndSwap(nil, c) }

// open ends a closing.
func (g *gate) open(c *closing) {
	g.closed.Store(nil)
	close(c.opened)
}

// drainLook is the time between two looks at the changes inside.
const drainLook = 50 * time.Microsecond

// drain waits until all changes that were under way when the gate was closed have ended. It returns false after the time given, or
// when done is closed.
func (g *gate) drain(wait time.Duration, done <-chan struct{}) bool {
	until := time.Now().Add(wait)
	// A part that was empty once has no change until the gate is open again: who comes meanwhile leaves at once.
	for part := 0; part < gateParts; {
		switch {
		case g.inside[part].changes.Load() == 0:
			part++
			continue
		case time.Now().After(until):
			return false
		}
		select {
		case <-done:
			return false
		case <-time.After(drainLook):
		}
	}
	return true
}
