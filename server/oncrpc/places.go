package oncrpc

import (
	"sync"
	"sync/atomic"
)

const (
	// waitsMax is how many calls may wait for the disk on the goroutines that read
	// connections: each then takes a thread, and Go keeps threads for good.
	waitsMax = 128
	// placeGroups is how many counts there are of them, so that connections seldom
	// meet at one.
	placeGroups = 16
)

// places bounds the calls that may wait, of all connections. Whoever finds no place
// waits for one without a thread.
type places struct {
	groups  [placeGroups]placeGroup
	conns   atomic.Uint32 // so far
	waiting atomic.Int32  // for a place; written with mu
	mu      sync.Mutex
	free    *sync.Cond // a place may be
}

// placeGroup counts the places taken of its own, on a cache line of its own.
type placeGroup struct {
	taken atomic.Int32
	_     [60]byte
}

// place is one that is taken: which group's, counted from 1; 0 is none.
type place int32

func newPlaces() *places {
	p := &places{}
	p.free = sync.NewCond(&p.mu)
	return p
}

// take takes a place, and waits until there is one.
func (p *places) take(near uint32) place {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting.Add(1)
	defer p.waiting.Add(-1)
	for {
		// After it said that it waits: a place that is given back from now on
		// is told.
		if taken := p.try(near); taken != 0 {
			return taken
		}
		p.free.Wait()
	}
}

// try takes a place if there is one, at best in the group that is near.
func (p *places) try(near uint32) place {
	for i := range uint32(placeGroups) {
		n := (near + i) % placeGroups
		group := &p.groups[n].taken
		for taken := group.Load(); taken < waitsMax/placeGroups; taken = group.Load() {
			if group.CompareAndSwap(taken, taken+1) {
				return place(n + 1)
			}
		}
	}
	return 0
}

// give gives a place back.
func (p *places) give(taken place) {
	p.groups[taken-1].taken.Add(-1)
	if p.waiting.Load() > 0 {
		p.mu.Lock()
		p.free.Signal()
		p.mu.Unlock()
	}
}

// enter takes a place for a call, which Later or Finish gives back. Until there is
// one, the connection is not read, and what was answered before is on its way.
func (c *Call) enter() {
	if c.place != 0 {
		return
	}
	p := c.conn.server.places
	if c.place = p.try(c.conn.near); c.place == 0 {
		c.conn.flush()
		c.place = p.take(c.conn.near)
	}
}

// leave gives a call's place back, and tells whether it had one.
func (c *Call) leave() bool {
	had := c.place != 0
	if had {
		c.conn.server.places.give(c.place)
		c.place = 0
	}
	return had
}
