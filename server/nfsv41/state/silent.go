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
func (t *sessions) noticeSilent(c *Client) {
	if !c.confirmed || !t.leaseOver(c) {
		return
	}
	push := func(kind int) {
		if c.silentAt[kind] == 0 {
			heap.Push(&t.silent[kind], c)
		}
	}
	if t.hasState(c) {
		push(silentHolding)
	} else {
		push(silentIdle)
	}
	if c.usage.more > 0 {
		push(silentSessions)
	}
}

// notSilent takes a client out of all heaps.
func (t *sessions) notSilent(c *Client) {
	for kind, at := range c.silentAt {
		if at > 0 {
			heap.Remove(&t.silent[kind], at-1)
		}
	}
}

// nextSilent returns the client that has to go first, but this one; or nil. Between two ticks it
// looks at a few clients each time, so that those of a small cluster are found at once.
func (t *sessions) nextSilent(kind int, not *Client) *Client {
	h := &t.silent[kind]
	if h.Len() == 0 {
		for range min(len(t.list), stepWork) {
			t.steps++
			t.looked++
			t.noticeSilent(t.list[t.looked%len(t.list)])
		}
	}
	for range stepWork {
		if h.Len() == 0 {
			return nil
		}
		t.steps++
		c := h.list[0]
		if c != not && t.leaseOver(c) && (kind == silentSessions && c.usage.more > 0 || kind == silentHolding && t.hasState(c) || kind == silentIdle && !t.hasState(c)) {
			return c
		}
		t.notSilent(c)
	}
	return nil
}

// makeRoomForSession takes the sessions of a client whose lease is over. What it has open stays its own.
func (t *sessions) makeRoomForSession(not *Client) bool {
	c := t.nextSilent(silentSessions, not)
	if c == nil {
		return false
	}
	for len(c.sessions) > 0 {
		t.removeSession(c.sessions[len(c.sessions)-1])
	}
	return true
}
