// Package shares has a semaphore that shares its slots between the volumes and the
// clients of calls, so that slow calls of one can't take all of them.
//
// A call that finds no slot waits in its owner's queue. A released slot goes to the
// volume with the fewest, then to the client with the fewest, and between equals to
// the call that has waited for longest. So a volume without slots does not wait for
// all earlier calls, but only until one ends: any, or one of the client's if the client
// has its maximum.
package shares

import (
	"cmp"
	"net/netip"
)

// A volume may take half of the free slots, and a client three quarters: a client has
// several volumes, and a node's pods are one client.
const (
	volumePart = 2
	clientPart = 4 // of which it may have three
)

// Owner is a call's volume and client.
type Owner struct {
	Volume uint64     // its ID
	Client netip.Addr // the zero Addr: not limited
}

// Semaphore has a number of slots, and queues for them. Its user's lock guards it.
type Semaphore[W any] struct {
	free    int
	volumes map[uint64]int // slots of each
	clients map[netip.Addr]int
	waiting []*queue[W] // none is empty
	queues  map[Owner]*queue[W]
	came    uint64 // how many have waited
}

type queue[W any] struct {
	owner Owner
	who   []waiter[W]
}

type waiter[W any] struct {
	who  W
	came uint64
}

// New returns a semaphore of n slots.
func New[W any](n int) *Semaphore[W] {
	return &Semaphore[W]{free: n, volumes: map[uint64]int{}, clients: map[netip.Addr]int{}, queues: map[Owner]*queue[W]{}}
}

// Enter takes a slot, or queues w and returns false.
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

// Leave releases a slot. The caller calls Next then.
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

// Next takes a slot for the next waiting w, if there is a slot and one that may have it.
// It is called after Leave until ok is false.
func (s *Semaphore[W]) Next() (w W, ok bool) {
	if s.free == 0 {
		return w, false
	}
	return s.next(true)
}

// Pop ends the wait of the next w without taking a slot of the semaphore.
func (s *Semaphore[W]) Pop() (w W, ok bool) { return s.next(false) }

// next removes the next w from its queue. If slot is set, it takes a slot for it.
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

// before reports whether the first of queue a gets a slot before that of b.
func (s *Semaphore[W]) before(a, b *queue[W]) bool {
	return cmp.Or(
		cmp.Compare(s.volumes[a.owner.Volume], s.volumes[b.owner.Volume]),
		cmp.Compare(s.clients[a.owner.Client], s.clients[b.owner.Client]),
		cmp.Compare(a.who[0].came, b.who[0].came),
	) < 0
}

// may reports whether an owner may have one more slot.
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
