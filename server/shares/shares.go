// Package shares shares slots out between the volumes and the clients that calls are
// for, so that no one's calls, however slow they are, take all of them.
//
// A call that finds no slot waits in the queue of its owner. A slot that is given back
// goes to the volume that has the fewest, then to the client that has the fewest, and
// between equals to who has waited for longest. So a volume that has no slot does not
// wait for the calls that came before its own, but for one that ends: any, or if the
// client has all that it may have, for the client's.
package shares

import (
	"cmp"
	"net/netip"
)

// A volume may have half of what is free, and a client three quarters: a client has
// several volumes, and a node's pods are one client.
const (
	volumePart = 2
	clientPart = 4 // of which it may have three
)

// Owner is whom a call is for.
type Owner struct {
	Volume uint64     // its number
	Client netip.Addr // the zero Addr: it is not counted
}

// Semaphore has a number of slots, and those who wait for one. Its user's lock guards
// it.
type Semaphore[W any] struct {
	free    int
	volumes map[uint64]int // the slots that each has
	clients map[netip.Addr]int
	waiting []*queue[W] // none is empty
	queues  map[Owner]*queue[W]
	came    uint64 // so many have waited
}

type queue[W any] struct {
	owner Owner
	who   []waiter[W]
}

type waiter[W any] struct {
	who  W
	came uint64
}

// New makes a semaphore of n slots.
func New[W any](n int) *Semaphore[W] {
	return &Semaphore[W]{free: n, volumes: map[uint64]int{}, clients: map[netip.Addr]int{}, queues: map[Owner]*queue[W]{}}
}

// Enter takes a slot, or has w wait for one: then it is false.
func (s *Semaphore[W]) Enter(o Owner, w W) bool {
	if s.may(&o) {
		s.take(&o)
		return true
	}
	q := s.queues[o]
	if q == nil {
		q = &queue[W]{owner: o}
		s.queues[o] = q
		s.waiting = append(s.waiting, q)
	}
	s.came++
	q.who = append(q.who, waiter[W]{w, s.came})
	return false
}

// Leave gives a slot back. Next tells who has it then.
func (s *Semaphore[W]) Leave(o Owner) {
	s.free++
	if s.volumes[o.Volume]--; s.volumes[o.Volume] == 0 {
		delete(s.volumes, o.Volume)
	}
	if o.Client.IsValid() {
		if s.clients[o.Client]--; s.clients[o.Client] == 0 {
			delete(s.clients, o.Client)
		}
	}
}

// Next takes a slot for one that waits, if there is one and anybody may have it. It is
// called after Leave until it is not ok.
func (s *Semaphore[W]) Next() (w W, ok bool) {
	if s.free == 0 {
		return w, false
	}
	return s.next(true)
}

// Pop ends the wait of the next one, whose slot is another one than the semaphore's.
func (s *Semaphore[W]) Pop() (w W, ok bool) { return s.next(false) }

// next ends the wait of one that may have a slot, if it is to have one.
func (s *Semaphore[W]) next(slot bool) (w W, ok bool) {
	best := -1
	for i, q := range s.waiting {
		if (!slot || s.may(&q.owner)) && (best < 0 || s.before(q, s.waiting[best])) {
			best = i
		}
	}
	if best < 0 {
		return w, false
	}
	q := s.waiting[best]
	w = q.who[0].who
	q.who[0] = waiter[W]{}
	if q.who = q.who[1:]; len(q.who) == 0 {
		last := len(s.waiting) - 1
		s.waiting[best], s.waiting[last] = s.waiting[last], nil
		s.waiting = s.waiting[:last]
		delete(s.queues, q.owner)
	}
	if slot {
		s.take(&q.owner)
	}
	return w, true
}

// before tells whether the first of a queue is to have a slot before that of another.
func (s *Semaphore[W]) before(a, b *queue[W]) bool {
	return cmp.Or(
		cmp.Compare(s.volumes[a.owner.Volume], s.volumes[b.owner.Volume]),
		cmp.Compare(s.clients[a.owner.Client], s.clients[b.owner.Client]),
		cmp.Compare(a.who[0].came, b.who[0].came),
	) < 0
}

// may tells whether somebody may have one more slot.
func (s *Semaphore[W]) may(o *Owner) bool {
	if s.free == 0 {
		return false
	}
	if has := s.volumes[o.Volume]; has >= max(1, (s.free+has)/volumePart) {
		return false
	}
	has := s.clients[o.Client]
	return has < max(1, (s.free+has)*(clientPart-1)/clientPart)
}

func (s *Semaphore[W]) take(o *Owner) {
	s.free--
	s.volumes[o.Volume]++
	if o.Client.IsValid() {
		s.clients[o.Client]++
	}
}
