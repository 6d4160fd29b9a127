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

// searchMax bounds the waiters that one search looks at.
const searchMax = 256

// circle is a search for a circle through start.
type circle struct {
	state *State
	start *waiter
	fresh bool // only waiters that have asked lately count
	now   time.Time
	seen  map[*waiter]bool
	path  []*waiter // from start
}

// deadlocked reports whether w waits for itself. If it may, others are told to ask again.
func (s *State) deadlocked(w *waiter) bool {
	now := s.cfg.Now()
	c := circle{state: s, start: w, fresh: true, now: now, seen: map[*waiter]bool{}}
	if c.closes(w) {
		return true
	}
	c = circle{state: s, start: w, now: now, seen: map[*waiter]bool{}}
	if c.closes(w) {
		for _, other := range c.path[1:] {
			s.askAgain(other, now)
		}
	}
	return false
}

// closes reports whether what w waits for is held by the start's owner, or by one that
// waits, and for which the same is true.
func (c *circle) closes(w *waiter) bool {
	if c.seen[w] || len(c.seen) >= searchMax {
		return false
	}
	c.seen[w] = true
	c.path = append(c.path, w)
	for _, l := range w.open.file.lockers {
		if l.isOf(w.open.client, w.owner) || firstExcluded(l.ranges, w.lockRange) == nil {
			continue
		}
		if l.isOf(c.start.open.client, c.start.owner) {
			return true
		}
		for _, next := range l.open.client.waits {
			if next.owner == l.owner && (!c.fresh || c.now.Sub(next.asked) <= freshFor) && c.closes(next) {
				return true
			}
		}
	}
	c.path = c.path[:len(c.path)-1]
	return false
}

// isOf reports whether it is the lock owner of this name.
func (l *lockOwner) isOf(c *Client, owner string) bool { return l.open.client == c && l.owner == owner }

// askAgain has the client of a waiter ask again, if it still waits.
func (s *State) askAgain(w *waiter, now time.Time) {
	if now.Sub(w.asked) <= freshFor || now.Sub(w.prompted) <= freshFor {
		return
	}
	w.prompted = now
	l := s.later()
	l.free = append(l.free, LockFree{ClientID: w.open.client.id, File: w.open.file.key, Owner: w.owner})
}
