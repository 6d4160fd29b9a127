package state

import "time"

// A deadlock is a circle of lock owners, each of which waits for a lock that the next one
// has (RFC 8881 section 15.1.8.8, fcntl(2)).
//
// That an owner waits is known from its last LOCK, and it may have given up since, by a
// signal, of which the server is not told. So LOCK fails with DEADLOCK only if all owners of
// the circle have asked within freshFor. The others are told that they may ask again. Those
// that do find the circle then.

// freshFor is for how long an owner that has asked is taken to wait.
const freshFor = 2 * time.Second

// searchMax bounds the locks and waiters that one search looks at. A circle that is found by none of
// them is not told, and its owners wait as they would on a server that does not look for any.
const searchMax = 2048

// circle is a search for a circle through start.
type circle struct {
	locks *locks
	start *waiter
	fresh bool // only waiters that have asked lately count
	now   time.Time
	left  int // of searchMax
	seen  map[*waiter]bool
	path  []*waiter // from start
}

// deadlocked reports whether w waits for itself. If it may, others are told to ask again.
func (t *locks) deadlocked(w *waiter) bool {
	now := t.cfg.Now()
	c := circle{locks: t, start: w, fresh: true, now: now, left: searchMax, seen: map[*waiter]bool{}}
	if c.closes(w) {
		return true
	}
	c = circle{locks: t, start: w, now: now, left: searchMax, seen: map[*waiter]bool{}}
	if c.closes(w) {
		for _, other := range c.path[1:] {
			t.askAgain(other, now)
		}
	}
	return false
}

// closes reports whether what w waits for is held by the start's owner, or by one that
// waits, and for which the same is true.
func (c *circle) closes(w *waiter) (found bool) {
	if c.seen[w] {
		return false
	}
	c.seen[w] = true
	c.path = append(c.path, w)
	steps := 0
	defer func() { c.locks.steps += steps }()
	w.open.file.locked.excluding(w.lockRange, &steps, func(i *interval[*lockOwner]) bool {
		l := i.of
		if c.left--; c.left < 0 {
			return false
		}
		if l.open.void() || l.isOf(w.open.client, w.owner) {
			return true
		}
		if found = l.isOf(c.start.open.client, c.start.owner); found {
			return false
		}
		for _, next := range l.open.client.waits[l.owner] {
			if c.left--; c.left < 0 {
				return false
			}
			if found = (!c.fresh || c.now.Sub(next.asked) <= freshFor) && c.closes(next); found {
				return false
			}
		}
		return true
	})
	if !found {
		c.path = c.path[:len(c.path)-1]
	}
	return found
}

// askAgain has the client of a waiter ask again, if it still waits.
func (t *locks) askAgain(w *waiter, now time.Time) {
	if now.Sub(w.asked) <= freshFor || now.Sub(w.prompted) <= freshFor {
		return
	}
	w.prompted = now
	l := t.later()
	l.free = append(l.free, LockFree{ClientID: w.open.client.id, File: w.open.file.key, Owner: w.owner})
}
