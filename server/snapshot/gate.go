package snapshot

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/podnas/podnas/server/disk"
)

// Volume is what snapshots need of a volume's changes. The zero Volume is ready.
type Volume struct {
	// inside has the changes under way. There are several counters, so that calls on many processors do not write to one
	// cache line.
	inside [gateParts]struct {
		changes atomic.Int64
		_       [56]byte
	}
	closed atomic.Pointer[closing] // nil: the gate is open
	taking atomic.Pointer[taking]  // nil: no snapshot is being taken
	busy   atomic.Bool             // from before the cut until the snapshot is complete
}

const gateParts = 8

// closing is a time in which the gate is closed.
type closing struct {
	opened chan struct{} // closed at its end
	held   bool          // it takes long: changes fail instead of waiting
	// drained is whether no change is under way any more that began before.
	drained atomic.Bool
}

// Part is where a change has entered.
type Part uint8

// Enter begins a change of a file, until Leave. It waits for a cut, so a change must not begin in another one. The error is
// EAGAIN while somebody holds the volume, see Hold: then there is no Leave.
func (v *Volume) Enter(id *disk.FileID) (Part, error) {
	p := Part(id.Fold() % gateParts)
	for {
		v.inside[p].changes.Add(1)
		closed := v.closed.Load()
		if closed == nil {
			return p, nil
		}
		v.inside[p].changes.Add(-1)
		if closed.held {
			return 0, syscall.EAGAIN
		}
		<-closed.opened
	}
}

// Leave ends a change.
func (v *Volume) Leave(p Part) { v.inside[p].changes.Add(-1) }

// IsTaking reports whether a snapshot is being taken. For a change that has entered, this stays so.
func (v *Volume) IsTaking() bool { return v.taking.Load() != nil }

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

const (
	// cutWait is how long the gate is closed at most: as long, writers wait.
	cutWait = 50 * time.Millisecond
	// cutPause is how long it is open again before the next try.
	cutPause = 200 * time.Millisecond
	// cutTries is how often it is tried.
	cutTries = 50
	// cutLook is the time between two looks at the changes inside.
	cutLook = 50 * time.Microsecond
)

// ErrNoCut means that there was no moment between two changes, because one took too long at each try.
var ErrNoCut = errors.New("changes that were under way did not end in time: try again when the volume is less busy, or the disk answers faster")

// cut sets what is being taken, at a moment when no change is under way. It returns when that was.
func (v *Volume) cut(ctx context.Context, t *taking) (time.Time, error) {
	for range cutTries {
		if at, ok := v.cutNow(t); ok {
			return at, nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, context.Cause(ctx)
		case <-time.After(cutPause):
		}
	}
	return time.Time{}, ErrNoCut
}

// cutNow is cut, if the changes under way end soon.
func (v *Volume) cutNow(t *taking) (at time.Time, ok bool) {
	cut := &closing{opened: make(chan struct{})}
	if !v.closed.CompareAndSwap(nil, cut) { // it is held, and the holder makes no change meanwhile
		if hold := v.closed.Load(); hold == nil || !hold.drained.Load() {
			return at, false
		}
		v.taking.Store(t)
		return time.Now(), true
	}
	defer v.open(cut)
	if !v.drain(time.Now().Add(cutWait), nil) {
		return at, false
	}
	v.taking.Store(t)
	return time.Now(), true
}

// open ends a closing.
func (v *Volume) open(c *closing) {
	v.closed.Store(nil)
	close(c.opened)
}

// drain waits until all changes that were under way when the gate was closed have ended. It returns false at the time given, or
// when done is closed.
func (v *Volume) drain(until time.Time, done <-chan struct{}) bool {
	// A part that was empty once has no change until the gate is open again: who comes meanwhile leaves at once.
	for part := 0; part < gateParts; {
		switch {
		case v.inside[part].changes.Load() == 0:
			part++
			continue
		case time.Now().After(until):
			return false
		}
		select {
		case <-done:
			return false
		case <-time.After(cutLook):
		}
	}
	return true
}

// holdWait is how long Hold waits for the changes under way.
const holdWait = 30 * time.Second

// Hold has all changes fail with EAGAIN, for which clients try again, until release is called. It waits for those under
// way. Snapshots are still taken: the holder must make no change while one is. The error is ErrBusy if somebody
// else holds the volume, ErrNoCut, or context.Cause of ctx.
func (v *Volume) Hold(ctx context.Context) (release func(), err error) {
	hold := &closing{opened: make(chan struct{}), held: true}
	for !v.closed.CompareAndSwap(nil, hold) {
		if c := v.closed.Load(); c != nil && c.held {
			return nil, ErrBusy
		}
		time.Sleep(cutLook) // a cut
	}
	if !v.drain(time.Now().Add(holdWait), ctx.Done()) {
		v.open(hold)
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, ErrNoCut
	}
	hold.drained.Store(true)
	return func() { v.open(hold) }, nil
}
