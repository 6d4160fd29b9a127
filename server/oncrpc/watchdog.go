package oncrpc

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/podnas/podnas/internal/idle"
)

// A client that has begun to send a call, or does not read its replies, holds memory that
// others want, so each wait for a client has a limit. Setting a deadline for each wait would
// read the clock twice per call, which is a system call on some machines. So a connection
// only records that it waits. A watchdog looks at all connections periodically, and ends a
// wait that is the same one for as long as its limit.
//
// Each MiB of replies is a wait of its own. While others want the memory of a connection, all that it writes together is
// one wait, too: a client that reads little at a time would keep the most of it for long.

const (
	// looksPerLimit is how many times the watchdog looks during the shortest limit: every 10 seconds, with
	// other periodic work. looksHurried is how many times it looks during one that Hurry divides.
	looksPerLimit, looksHurried = 3, 6
	// Hurry divides the limits of connections that hold much memory while others wait
	// for some.
	Hurry = 10
)

// What a connection waits for; 0 is nothing.
const (
	waitCall   = 1 + iota // the client's next call
	waitRecord            // the rest of a call
	waitWrite             // the client reads replies
	waitMemory            // the server's memory
	waitKinds
)

// waits are those of the goroutine that reads a connection, or of the one that writes to it.
type waits struct {
	current atomic.Uint64 // number and kind; only that goroutine writes it

	// What the watchdog saw last, guarded by conn.looks.
	seen  uint64
	since time.Time
}

func (w *waits) begin(kind uint64) {
	w.current.Store(w.current.Load()/waitKinds*waitKinds + waitKinds + kind)
}

// in reports whether the current wait is of a kind.
func (w *waits) in(kind uint64) bool { return w.current.Load()%waitKinds == kind }

func (w *waits) end() { w.current.Store(w.current.Load() / waitKinds * waitKinds) }

// kind returns the kind of the current wait, and when the watchdog saw it first, which is
// now if it has not yet. The caller holds conn.looks.
func (w *waits) kind(now time.Time) (kind uint64, since time.Time) {
	current := w.current.Load()
	if current != w.seen {
		return current % waitKinds, now
	}
	return current % waitKinds, w.since
}

// over reports whether the current wait has reached its limit. The caller holds conn.looks.
func (w *waits) over(now time.Time, l *limits) bool {
	current := w.current.Load()
	if current != w.seen {
		w.seen, w.since = current, now
		return false
	}
	took := now.Sub(w.since)
	switch current % waitKinds {
	case waitCall:
		return took >= l.idle
	case waitRecord:
		return took >= l.record
	case waitWrite:
		return took >= l.write
	}
	return false
}

// endLongWaits is the watchdog. It runs until ctx ends.
func (s *Server) endLongWaits(ctx context.Context) {
	l := &s.limits
	shortest := min(l.idle, l.record, l.write)
	every := max(time.Millisecond, shortest/looksPerLimit)
	quick := max(time.Millisecond, shortest/Hurry/looksHurried)
	next := time.Now().Add(idle.UntilTick(time.Now(), every))
	look := time.NewTimer(time.Until(next))
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.budget.short:
			if time.Until(next) < quick {
				continue
			}
			next = time.Now().Add(quick)
		case now := <-look.C:
			s.endWaits(now)
			next = now.Add(idle.UntilTick(now, every))
			if s.budget.waiters.Load() > 0 {
				next = now.Add(quick)
			}
		}
		look.Reset(time.Until(next))
	}
}

func (s *Server) endWaits(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Load() {
		return // all have their last deadlines
	}
	hurried := s.limits
	hurried.record /= Hurry
	hurried.write /= Hurry
	lost := s.beats.Lost()
	for c := range s.conns {
		if lost { // a call that hangs on the disk has no reply that would be held
			_ = c.Close()
			continue
		}
		l, scarce := &s.limits, s.budget.Scarce(c.holding)
		if scarce {
			l = &hurried
		}
		c.looks.Lock()
		// A closed connection needs no deadline.
		if c.reads.over(now, l) {
			_ = c.SetReadDeadline(now)
		}
		late := c.batch.over(now, l)
		if c.writes.over(now, l) || late && scarce {
			_ = c.SetWriteDeadline(now)
		}
		c.looks.Unlock()
	}
}

// Activity returns what the connection does, and since when.
func (c *conn) Activity() (Activity, time.Time) {
	c.looks.Lock()
	defer c.looks.Unlock()
	now := time.Now()
	if kind, since := c.writes.kind(now); kind == waitWrite {
		return Stuck, since
	}
	switch kind, since := c.reads.kind(now); kind {
	case waitRecord, waitMemory:
		return Stuck, since
	case waitCall:
		if len(c.inFlight) == 0 {
			return Idle, since
		}
	}
	return Working, now
}
