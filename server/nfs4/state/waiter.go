package state

import (
	"slices"
	"time"
)

// waiter is a blocking LOCK that was denied, RFC 8881 section 9.6: the client asks
// again by itself now and then, and at once when it is told that the lock is free.
type waiter struct {
	lockRange
	open  *open
	owner string
	asked time.Time // the last time
	told  time.Time // that it is free, since it asked; zero if not
	// reached is set if the client has got that: Told.
	reached bool
	// prompted is when it was told last to ask again, see deadlocked.
	prompted time.Time
}

// waitFor is how long a waiter is remembered that does not ask again. Linux asks at
// least every 30 seconds (NFS4_LOCK_MAXTIMEOUT).
const waitFor = time.Minute

// wait notes that the lock could not be given. If the client has too many waiters,
// or the owner's name is too long for it, this one has to ask again by itself. The error is
// ErrDenied, or ErrDeadlock if it would wait for itself.
func (s *State) wait(o *open, owner string, r lockRange) Error {
	w := s.addWaiter(o, owner, r)
	if w == nil || !s.deadlocked(w) {
		return ErrDenied
	}
	s.dropWaiters(o.file, func(other *waiter) bool { return other == w })
	return ErrDeadlock
}

// addWaiter returns nil if the client has too many.
func (s *State) addWaiter(o *open, owner string, r lockRange) *waiter {
	f, now := o.file, s.cfg.Now()
	for _, w := range f.waiters {
		if w.open == o && w.owner == owner && w.lockRange == r {
			w.asked, w.told, w.reached = now, time.Time{}, false
			return w
		}
	}
	c := o.client
	if len(c.waits) >= s.cfg.Limits.Waiters || !s.roomForOwner(c, len(owner)) {
		return nil
	}
	w := &waiter{lockRange: r, open: o, owner: owner, asked: now}
	c.waits = append(c.waits, w)
	s.use(c, 0, len(owner))
	f.waiters = append(f.waiters, w)
	s.waiting[f] = struct{}{}
	s.soon()
	s.logWait(w)
	return w
}

// turnOf returns the waiter that was told that the lock is free, and that c's owner
// must not overtake.
func (s *State) turnOf(f *file, c *Client, owner string, r lockRange) *waiter {
	if len(f.waiters) == 0 {
		return nil
	}
	now := s.cfg.Now()
	for _, w := range f.waiters {
		if s.hasTurn(w, now) && w.excludes(r) && (w.open.client != c || w.owner != owner) {
			return w
		}
	}
	return nil
}

func (s *State) hasTurn(w *waiter, now time.Time) bool {
	return !w.told.IsZero() && now.Sub(w.told) <= s.cfg.FairFor
}

// wake tells the waiters of a file whose lock has become free. Who asked first is
// told first, and those after it only if both can have theirs.
func (s *State) wake(f *file) {
	if len(f.waiters) == 0 {
		return
	}
	now := s.cfg.Now()
	for _, w := range f.waiters {
		if !w.told.IsZero() || s.turnOf(f, w.open.client, w.owner, w.lockRange) != nil {
			continue
		}
		if other, _ := s.conflict(f, w.open.client, w.owner, w.lockRange); other != nil {
			continue
		}
		w.told = now
		l := s.later()
		l.free = append(l.free, LockFree{ClientID: w.open.client.id, File: f.key, Owner: w.owner})
	}
}

// Told notes that a client has got what Config.LockFree was called with. Until then a waiter is not
// forgotten, though its turn is over: if this process dies, the next one tells it.
func (s *State) Told(free LockFree) {
	s.mu.Lock()
	defer s.unlock()
	f := s.files[free.File]
	if f == nil {
		return
	}
	for _, w := range f.waiters {
		if w.open.client.id == free.ClientID && w.owner == free.Owner && !w.told.IsZero() {
			w.reached = true
		}
	}
}

// expired reports whether a waiter is to be forgotten.
func (s *State) expired(w *waiter, now time.Time) bool {
	return now.Sub(w.asked) > waitFor || w.reached && now.Sub(w.told) > s.cfg.FairFor
}

// dropWaiters forgets some of the waiters of a file. The caller calls wake, unless
// none can have been told.
func (s *State) dropWaiters(f *file, drop func(*waiter) bool) {
	if len(f.waiters) == 0 {
		return
	}
	f.waiters = slices.DeleteFunc(f.waiters, func(w *waiter) bool {
		if !drop(w) {
			return false
		}
		s.logWaitEnds(w)
		c := w.open.client
		c.waits = slices.DeleteFunc(c.waits, func(other *waiter) bool { return other == w })
		s.use(c, 0, -len(w.owner))
		return true
	})
	if len(f.waiters) == 0 {
		f.waiters = nil
		delete(s.waiting, f)
	}
}

// forgetWaiters forgets all waiters of a client.
func (s *State) forgetWaiters(c *Client) {
	for len(c.waits) > 0 {
		f := c.waits[0].open.file
		s.dropWaiters(f, func(w *waiter) bool { return w.open.client == c })
		s.wake(f)
	}
}
