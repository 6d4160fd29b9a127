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

// looksPerLimit is how many times the server looks during the shortest limit.
const looksPerLimit = 8

// What a connection waits for its client to do; 0: it does not.
const (
	waitCall   = 1 + iota // make a call
	waitRecord            // send the rest of it
	waitTake              // take replies
	waitKinds
)

// waits are the waits of the goroutine that reads a connection, or that writes to it.
type waits struct {
	current atomic.Uint64 // its number and kind; who waits writes it

	// What the server has seen of it, guarded by Server.mu.
	seen  uint64
	since time.Time
}

func (w *waits) begin(kind uint64) {
	w.current.Store(w.current.Load()/waitKinds*waitKinds + waitKinds + kind)
}

// in tells whether the present wait is of a kind.
func (w *waits) in(kind uint64) bool { return w.current.Load()%waitKinds == kind }

func (w *waits) end() { w.current.Store(w.current.Load() / waitKinds * waitKinds) }

// over tells whether a wait has taken as long as its limit. The caller holds
// Server.mu.
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
	tick := time.NewTicker(max(time.Millisecond, min(l.idle, l.record, l.write)/looksPerLimit))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.endWaits(time.Now())
		}
	}
}

func (s *Server) endWaits(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Load() {
		return // all have their last deadlines
	}
	for c := range s.conns {
		// A closed connection needs no deadline.
		if c.reads.over(now, &s.limits) {
			_ = c.SetReadDeadline(now)
		}
		if c.writes.over(now, &s.limits) {
			_ = c.SetWriteDeadline(now)
		}
	}
}
