package oncrpc

import (
	"sync"
	"sync/atomic"

	"github.com/podnas/podnas/server/shares"
)

const (
	// slotsMax is how many calls may block on the goroutines that read connections: each
	// then needs a thread, and Go never ends threads.
	slotsMax = 128
	// sharedMax of the slots are shared between volumes and clients. To take one of the
	// others takes no lock.
	sharedMax = slotsMax / 2
	// aheadMax and aheadConn are how many goroutines may wait for a slot while another
	// one reads their connections' next calls: in all, and of one connection.
	aheadMax, aheadConn = 1024, 64
)

// slots is a semaphore for the calls that may block, of all connections. A call that
// finds no slot waits for one without a thread.
//
// Half of the slots are for any call. When they are taken, and while any call waits, the
// other half is shared. So the calls of one volume have three quarters of all slots at
// most, and those of one client seven eighths.
type slots struct {
	taken   atomic.Int32 // of the slots for any call
	waiting atomic.Int32 // calls; written with mu
	ahead   atomic.Int32 // goroutines that wait

	mu sync.Mutex
	// +checklocks:mu
	shared *shares.Semaphore[chan slot]
}

// slot is the kind of slot that a call has.
type slot uint8

const (
	noSlot slot = iota
	anySlot
	sharedSlot
)

func newSlots() *slots { return &slots{shared: shares.New[chan slot](sharedMax)} }

// acquire takes a slot if one is free. Otherwise it returns a channel on which the call
// gets one.
func (s *slots) acquire(o shares.Owner) (taken slot, later chan slot) {
	if s.waiting.Load() == 0 && s.try() {
		return anySlot, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	later = make(chan slot, 1)
	if s.shared.Enter(o, later) {
		return sharedSlot, nil
	}
	s.waiting.Add(1)
	// A slot that is released from now on is given to a call that waits. This is for one
	// that was released just before.
	if s.try() {
		s.passLocked()
	}
	return noSlot, later
}

// try takes one of the slots for any call.
func (s *slots) try() bool {
	for taken := s.taken.Load(); taken < slotsMax-sharedMax; taken = s.taken.Load() {
		if s.taken.CompareAndSwap(taken, taken+1) {
			return true
		}
	}
	return false
}

// release gives a slot back.
func (s *slots) release(taken slot, o shares.Owner) {
	if taken == sharedSlot {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.shared.Leave(o)
		for later, ok := s.shared.Next(); ok; later, ok = s.shared.Next() {
			s.waiting.Add(-1)
			later <- sharedSlot
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

// passLocked gives a slot that try has taken to the next call that waits.
//
// +checklocks:s.mu
func (s *slots) passLocked() {
	later, ok := s.shared.Pop()
	if !ok {
		s.taken.Add(-1)
		return
	}
	s.waiting.Add(-1)
	later <- anySlot
}

// acquireSlot takes a slot for a call, which Wait or the answer releases. Before it
// waits for one, it sends the replies that are ready, and unless too many wait already,
// another goroutine reads the connection's next calls.
func (c *Call) acquireSlot() {
	conn, s := c.conn, c.conn.server.slots
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
	c.slot = taken
}

// releaseSlot releases the call's slot, if it has one.
func (c *Call) releaseSlot() {
	if c.slot != noSlot {
		c.conn.server.slots.release(c.slot, c.owner)
		c.slot = noSlot
	}
}
