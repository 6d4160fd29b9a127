package snapshot

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

const (
	// cutWait is how long the gate is closed at the first tries, and cutWaitMost at the last ones: as long, writers wait. The
	// kernel holds a write for 200 ms, and perhaps again, when there is more to be written than the disk takes, and some
	// system calls take as long as a file has extents.
	cutWait     = 50 * time.Millisecond
	cutWaitMost = 2 * time.Second
	// cutShort is how often cutWait is tried. Then a try is half as long again as the one before.
	cutShort = 5
	cutTries = 25
	// cutPause is how long the gate is open between two tries, and at least cutOpen times as long as it was closed.
	cutPause = 200 * time.Millisecond
	cutOpen  = 4
	// longWait is how long a cut waits for changes that take long, while other changes go on.
	longWait = time.Minute
)

// ErrNoCut means that there was no moment between two changes, because one took too long at each try.
var ErrNoCut = errors.New("changes that were under way did not end in time: try again when the volume is less busy, or the disk answers faster")

// cut sets what is being taken, at a moment when no change is under way. It returns when that was. paused gets the longest time
// that the gate was closed.
func (v *Volume) cut(ctx context.Context, t *taking, paused *atomic.Int64) (time.Time, error) {
	long := &closing{opened: make(chan struct{})}
	v.long.close(long) // which nobody else does: one snapshot is taken at a time
	defer v.long.open(long)
	v.long.drain(longWait, ctx.Done()) // else it may be possible all the same
	wait := cutWait
	for try := range cutTries {
		began := time.Now()
		at, ok := v.cutNow(t, wait)
		took := time.Since(began)
		paused.Store(max(paused.Load(), int64(took)))
		if ok {
			return at, nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, context.Cause(ctx)
		case <-time.After(max(cutPause, cutOpen*took)):
		}
		if try >= cutShort {
			wait = min(wait*3/2, cutWaitMost)
		}
	}
	return time.Time{}, ErrNoCut
}

// cutNow is cut, if the changes under way end soon.
func (v *Volume) cutNow(t *taking, wait time.Duration) (at time.Time, ok bool) {
	cut := &closing{opened: make(chan struct{})}
	if !v.changes.close(cut) { // it is held, and the holder makes no change meanwhile
		hold := v.changes.closed.Load()
		ok = hold != nil && hold.whileDrained(&v.changes, func() { v.taking.Store(t) })
		return time.Now(), ok
	}
	defer v.changes.open(cut)
	if !v.changes.drain(wait, nil) {
		return at, false
	}
	v.taking.Store(t)
	return time.Now(), true
}

// holdWait is how long Hold waits for the changes under way.
const holdWait = 30 * time.Second

// Hold has all changes fail with EAGAIN, for which clients try again, until release is called. It waits for those under
// way. Snapshots are still taken: the holder must make no change while one is. The error is ErrBusy if somebody
// else holds the volume, ErrNoCut, or context.Cause of ctx.
func (v *Volume) Hold(ctx context.Context) (release func(), err error) {
	hold := &closing{opened: make(chan struct{}), held: true}
	for !v.changes.close(hold) {
		if c := v.changes.closed.Load(); c != nil && c.held {
			return nil, ErrBusy
		}
		time.Sleep(drainLook) // a cut
	}
	if !v.changes.drain(holdWait, ctx.Done()) {
		v.changes.open(hold)
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, ErrNoCut
	}
	hold.mu.Lock()
	hold.drained = true
	hold.mu.Unlock()
	return func() {
		hold.mu.Lock()
		defer hold.mu.Unlock()
		v.changes.open(hold)
	}, nil
}
