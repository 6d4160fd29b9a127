package state

import "container/heap"

// What a client whose lease is over has goes before another is refused anything: see silentHeap.
const (
	silentIdle     = iota // all, of one that holds nothing
	silentHolding         // all
	silentSessions        // its sessions: if it returns, it makes another and goes on
	silentKinds
)

// silentHeap has the clients whose lease is over, as the last tick has seen them, and that have something of
// a kind. Those that hold most come first, so who holds the least goes last; of those that hold the
// same, who was silent for longest. A client that is silent gets nothing more, and one that comes back, or that ends a
// session, is taken out: so places stay right, and the first is nearly always one that can go.
//
// It implements heap.Interface. Client.silentAt is the index in the heap of each kind, and 1 more.
type silentHeap struct {
	kind int
	list []*Client
}

// held is how much a client has that goes.
func (c *Client) held(kind int) int {
	switch kind {
	case silentHolding:
		return c.usage.opens + c.usage.locks
	case silentSessions:
		return c.usage.more
	}
	return 0
}

func (h *silentHeap) Len() int { return len(h.list) }

func (h *silentHeap) Less(i, j int) bool {
	a, b := h.list[i], h.list[j]
	if x, y := a.held(h.kind), b.held(h.kind); x != y {
		return x > y
	}
	return a.seen.Before(b.seen)
}

func (h *silentHeap) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.list[i].silentAt[h.kind], h.list[j].silentAt[h.kind] = i+1, j+1
}

// Push appends a *Client.
func (h *silentHeap) Push(v any) {
	c := v.(*Client) //nolint:forcetypeassert // only noticeSilent calls it
	h.list = append(h.list, c)
	c.silentAt[h.kind] = len(h.list)
}

// Pop removes the last.
func (h *silentHeap) Pop() any {
	last := h.list[len(h.list)-1]
	h.list[len(h.list)-1] = nil
	h.list = h.list[:len(h.list)-1]
	last.silentAt[h.kind] = 0
	return last
}

// noticeSilent puts a client whose lease is over where it belongs.
func (s *State) noticeSilent(c *Client) {
	if !c.confirmed || !s.leaseOver(c) {
		return
	}
	push := func(kind int) {
		if c.silentAt[kind] == 0 {
			heap.Push(&s.silent[kind], c)
		}
	}
	if s.hasState(c) {
		push(silentHolding)
	} else {
		push(silentIdle)
	}
	if c.usage.more > 0 {
		push(silentSessions)
	}
}

// notSilent takes a client out of all heaps.
func (s *State) notSilent(c *Client) {
	for kind, at := range c.silentAt {
		if at > 0 {
			heap.Remove(&s.silent[kind], at-1)
		}
	}
}

// nextSilent returns the client that has to go first, but this one; or nil. Between two ticks it
// looks at a few clients each time, so that those of a small cluster are found at once.
func (s *State) nextSilent(kind int, not *Client) *Client {
	h := &s.silent[kind]
	if h.Len() == 0 {
		for range min(len(s.list), stepWork) {
			s.steps++
			s.looked++
			s.noticeSilent(s.list[s.looked%len(s.list)])
		}
	}
	for range stepWork {
		if h.Len() == 0 {
			return nil
		}
		s.steps++
		c := h.list[0]
		if c != not && s.leaseOver(c) && (kind == silentSessions && c.usage.more > 0 || kind == silentHolding && s.hasState(c) || kind == silentIdle && !s.hasState(c)) {
			return c
		}
		s.notSilent(c)
	}
	return nil
}

// makeRoom removes a client, when there are too many for one more from an address: of those that
// did not come back after EXCHANGE_ID the oldest, its own if the address has much, or else one whose lease
// is over, at first of those that hold nothing.
func (s *State) makeRoom(home *address) Error {
	waiting := &s.unconfirmed
	if home.clients > s.cfg.Limits.Clients/8/(len(s.addresses)+1) {
		waiting = &home.unconfirmed
	}
	if front := waiting.Front(); front != nil {
		s.drop(front.Value.(*Client)) //nolint:forcetypeassert // addClient has put it there
		return OK
	}
	for _, kind := range [...]int{silentIdle, silentHolding} {
		if c := s.nextSilent(kind, nil); c != nil {
			return s.dismiss(c, ClientExpired)
		}
	}
	return ErrDelay
}

// makeRoomFor dismisses a client whose lease is over, for what another wants to have more, if its own limits
// let it. again means that mu was let go.
func (s *State) makeRoomFor(c *Client, more usage) (again bool, e Error) {
	l := &s.cfg.Limits
	if c.usage.opens+more.opens > l.Opens || c.usage.locks+more.locks > l.Locks || c.usage.ownerBytes+more.ownerBytes > l.OwnerBytes {
		return false, OK
	}
	other := s.nextSilent(silentHolding, c)
	if other == nil {
		return false, OK
	}
	e = s.dismiss(other, ClientExpired)
	return e == OK, e
}

// makeRoomForSession takes the sessions of a client whose lease is over. What it has open stays its own.
func (s *State) makeRoomForSession(not *Client) bool {
	c := s.nextSilent(silentSessions, not)
	if c == nil {
		return false
	}
	for len(c.sessions) > 0 {
		s.removeSession(c.sessions[len(c.sessions)-1])
	}
	return true
}
