package oncrpc

import (
	"context"
	"sync/atomic"
	"time"
)

// A client that has begun to send a call, or does not take its replies, holds memory
// that others want, so there is a limit to each wait for one. To set a deadline for
// each would read the clock twice for a call, which is a system call on some machines.
// So a connection only notes that it waits, the server looks at all of them every so
// often, and where it finds one in the same wait for as long as the limit, it ends it.

const (
	// looksPerLimit is how many times the server looks during the shortest limit.
	looksPerLimit = 8
	// Hurry is which part of their time those have that hold much memory while
	// others wait for some.
	Hurry = 10
)

// What a connection waits for its client to do; 0: it does not.
const (
	waitCall   = 1 + iota // make a call
	waitRecord            // send the rest of it
	waitTake              // take replies
	waitMemory            // nothing: the server has no memory for it
	waitKinds
)

// waits are the waits of the goroutine that reads a connection, or that writes to it.
type waits struct {
	current atomic.Uint64 // its number and kind; who waits writes it

	// What the server has seen of it, guarded by conn.looks.
	seen  uint64
	since time.Time
}

func (w *waits) begin(kind uint64) {
	w.current.Store(w.current.Load()/waitKinds*waitKinds + waitKinds + kind)
}

// in tells whether the present wait is of a kind.
func (w *waits) in(kind uint64) bool { return w.current.Load()%waitKinds == kind }

func (w *waits) end() { w.current.Store(w.current.Load() / waitKinds * waitKinds) }

// kind is that of the present wait, and since is when it was seen first, now if it
// was not. The caller holds conn.looks.
func (w *waits) kind(now time.Time) (kind uint64, since time.Time) {
	current := w.current.Load()
	if current != w.seen {
		return current % waitKinds, now
	}
	return current % waitKinds, w.since
}

// over tells whether a wait has taken as long as its limit. The caller holds
// conn.looks.
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
	case waitTake:
		return took >= l.write
	}
	return false
}

// losePatience ends the waits that take too long, until ctx ends.
func (s *Server) losePatience(ctx context.Context) {
	l := &s.limits
	every := max(time.Millisecond, min(l.idle, l.record, l.write)/looksPerLimit)
	quick := max(time.Millisecond, every/Hurry)
	look, next := time.NewTimer(every), time.Now().Add(every)
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
			next = now.Add(every)
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
	for c := range s.conns {
		l := &s.limits
		if s.budget.Scarce(c.holding) {
			l = &hurried
		}
		c.looks.Lock()
		// A closed connection needs no deadline.
		if c.reads.over(now, l) {
			_ = c.SetReadDeadline(now)
		}
		if c.writes.over(now, l) {
			_ = c.SetWriteDeadline(now)
		}
		c.looks.Unlock()
	}
}

// Activity tells what the connection does, and since when.
func (c *conn) Activity() (Activity, time.Time) {
	c.looks.Lock()
	defer c.looks.Unlock()
	now := time.Now()
	if kind, since := c.writes.kind(now); kind == waitTake {
		return Stuck, since
	}
	switch kind, since := c.reads.kind(now); kind {
	case waitRecord, waitMemory:
		return Stuck, since
	case waitCall:
		if c.calls.TryAcquire(c.server.limits.connCalls) { // none is in flight
			c.calls.Release(c.server.limits.connCalls)
			return Idle, since
		}
	}
	return Working, now
}
