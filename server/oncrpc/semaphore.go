package oncrpc

import (
	"sync"
	"sync/atomic"

	"github.com/podnas/podnas/server/shares"
)

const (
	// permitsMax is how many calls may block on the goroutines that read connections: each
	// then needs a thread, and Go never ends threads.
	permitsMax = 128
	// sharedMax of the permits are shared between volumes and clients. To take one of the
	// others takes no lock.
	sharedMax = permitsMax / 2
	// aheadMax and aheadConn are how many goroutines may wait for a permit while another
	// one reads their connections' next calls: in all, and of one connection.
	aheadMax, aheadConn = 1024, 64
)

// semaphore limits the calls that may block, of all connections. A call that
// finds no permit waits for one without a thread.
//
// Half of the permits are for any call. When they are taken, and while any call waits, the
// other half is shared. So the calls of one volume have three quarters of all permits at
// most, and those of one client seven eighths.
type semaphore struct {
	taken   atomic.Int32 // of the permits for any call
	waiting atomic.Int32 // calls; written with mu
	ahead   atomic.Int32 // goroutines that wait

	mu sync.Mutex
	// +checklocks:mu
	shared *shares.Semaphore[chan permit]
}

// permit is which kind of permit a call has.
type permit uint8

const (
	noPermit permit = iota
	anyPermit
	sharedPermit
)

func newSemaphore() *semaphore { return &semaphore{shared: shares.New[chan permit](sharedMax)} }

// acquire takes a permit if one is free. Otherwise it returns a channel on which the call
// gets one.
func (s *semaphore) acquire(o shares.Owner) (taken permit, later chan permit) {
	if s.waiting.Load() == 0 && s.try() {
		return anyPermit, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	later = make(chan permit, 1)
	if s.shared.Enter(o, later) {
		return sharedPermit, nil
	}
	s.waiting.Add(1)
	// A permit that is released from now on is given to a call that waits. This is for one
	// that was released just before.
	if s.try() {
		s.passLocked()
	}
	return noPermit, later
}

// try takes one of the permits for any call.
func (s *semaphore) try() bool {
	for taken := s.taken.Load(); taken < permitsMax-sharedMax; taken = s.taken.Load() {
		if s.taken.CompareAndSwap(taken, taken+1) {
			return true
		}
	}
	return false
}

// release gives a permit back.
func (s *semaphore) release(taken permit, o shares.Owner) {
	if taken == sharedPermit {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.shared.Leave(o)
		for later, ok := s.shared.Next(); ok; later, ok = s.shared.Next() {
			s.waiting.Add(-1)
			later <- sharedPermit
		}
		return
	}
	s.taken.Add(-1)
	if s.waiting.Load() > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.try() {
			s.passLocked()
		}
	}
}

// passLocked gives a permit that try has taken to the next call that waits.
//
// +checklocks:s.mu
func (s *semaphore) passLocked() {
	later, ok := s.shared.Pop()
	if !ok {
		s.taken.Add(-1)
		return
	}
	s.waiting.Add(-1)
	later <- anyPermit
}

// acquirePermit takes a permit for a call, which Wait or the answer releases. Before it
// waits for one, it sends the replies that are ready, and unless too many wait already,
// another goroutine reads the connection's next calls.
func (c *Call) acquirePermit() {
	conn, s := c.conn, c.conn.server.blocking
	taken, later := s.acquire(c.owner)
	if later != nil {
		conn.flush()
		fewHere, few := conn.ahead.Add(1) <= aheadConn, s.ahead.Add(1) <= aheadMax
		if fewHere && few {
			c.handOn()
		}
		taken = <-later
		conn.ahead.Add(-1)
		s.ahead.Add(-1)
	}
	c.permit = taken
}

// releasePermit releases the call's permit, if it has one.
func (c *Call) releasePermit() {
	if c.permit != noPermit {
		c.conn.server.blocking.release(c.permit, c.owner)
		c.permit = noPermit
	}
}
