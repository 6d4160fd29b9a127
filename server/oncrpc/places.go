package oncrpc

import (
	"sync"
	"sync/atomic"

	"github.com/podnas/podnas/server/shares"
)

const (
	// waitsMax is how many calls may wait for the disk on the goroutines that read
	// connections: each then takes a thread, and Go keeps threads for good.
	waitsMax = 128
	// sharedMax of them are shared out between volumes and clients. To take one of the
	// others takes no lock.
	sharedMax = waitsMax / 2
	// placeGroups is how many counts there are of the others, so that connections seldom
	// meet at one.
	placeGroups = 16
	// aheadMax is how many goroutines may wait for a place while another one reads their
	// connections' next calls, of one connection and of all.
	aheadMax, aheadConn = 1024, 64
)

// places bounds the calls that may wait, of all connections. Whoever finds no place
// waits for one without a thread.
//
// Half of the places are for who comes first. When they are taken, and while anybody
// waits, the other half is shared out. So the calls of one volume have three quarters of
// all at most, and those of one client seven eighths.
type places struct {
	groups  [placeGroups]placeGroup
	conns   atomic.Uint32 // so far
	waiting atomic.Int32  // for a place; written with mu
	ahead   atomic.Int32  // goroutines that do

	mu     sync.Mutex
	shared *shares.Semaphore[chan place]
}

// placeGroup counts the places taken of its own, on a cache line of its own.
type placeGroup struct {
	taken atomic.Int32
	_     [60]byte
}

// place is one that is taken: which group's, counted from 1, or sharedPlace; 0 is none.
type place int32

const sharedPlace place = -1

func newPlaces() *places {
	return &places{shared: shares.New[chan place](sharedMax)}
}

// enter takes a place if there is one, at best in the group that is near. Else it
// returns where the place is told when there is one.
func (p *places) enter(near uint32, o shares.Owner) (taken place, later chan place) {
	if p.waiting.Load() == 0 {
		if taken := p.try(near); taken != 0 {
			return taken, nil
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	later = make(chan place, 1)
	if p.shared.Enter(o, later) {
		return sharedPlace, nil
	}
	p.waiting.Add(1)
	// After it said that it waits: a place that is given back from now on is told.
	if taken := p.try(near); taken != 0 {
		p.pass(taken)
	}
	return 0, later
}

// try takes a place of the groups if there is one.
func (p *places) try(near uint32) place {
	for i := range uint32(placeGroups) {
		n := (near + i) % placeGroups
		group := &p.groups[n].taken
		for taken := group.Load(); taken < (waitsMax-sharedMax)/placeGroups; taken = group.Load() {
			if group.CompareAndSwap(taken, taken+1) {
				return place(n + 1)
			}
		}
	}
	return 0
}

// give gives a place back.
func (p *places) give(taken place, o shares.Owner) {
	if taken == sharedPlace {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.shared.Leave(o)
		for later, ok := p.shared.Next(); ok; later, ok = p.shared.Next() {
			p.waiting.Add(-1)
			later <- sharedPlace
		}
		return
	}
	p.groups[taken-1].taken.Add(-1)
	if p.waiting.Load() > 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		if taken := p.try(uint32(taken - 1)); taken != 0 {
			p.pass(taken)
		}
	}
}

// pass gives a place of the groups to the next one that waits. The caller holds p.mu.
func (p *places) pass(taken place) {
	later, ok := p.shared.Pop()
	if !ok {
		p.groups[taken-1].taken.Add(-1)
		return
	}
	p.waiting.Add(-1)
	later <- taken
}

// enter takes a place for a call, which Later or the answer gives back. Until there is
// one, what was answered before is on its way, and unless so many wait already, another
// goroutine reads the connection's next calls.
func (c *Call) enter() {
	conn, p := c.conn, c.conn.server.places
	taken, later := p.enter(conn.near, c.owner)
	if later != nil {
		conn.flush()
		fewHere, few := conn.ahead.Add(1) <= aheadConn, p.ahead.Add(1) <= aheadMax
		if fewHere && few {
			c.watch()
		}
		taken = <-later
		conn.ahead.Add(-1)
		p.ahead.Add(-1)
	}
	c.place = taken
}

// leave gives a call's place back, if it has one.
func (c *Call) leave() {
	if c.place != 0 {
		c.conn.server.places.give(c.place, c.owner)
		c.place = 0
	}
}
