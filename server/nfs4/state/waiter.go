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
	told  time.Time // that it is free; zero if not
}

// waitFor is how long a waiter is remembered that does not ask again. Linux asks at
// least every 30 seconds (NFS4_LOCK_MAXTIMEOUT).
const waitFor = time.Minute

// wait notes that the lock could not be given. If the client has too many waiters,
// or the owner's name is too long for it, this one has to ask again by itself.
func (s *State) wait(o *open, owner string, r lockRange) {
	f, now := o.file, s.cfg.Now()
	for _, w := range f.waiters {
		if w.open == o && w.owner == owner && w.lockRange == r {
			w.asked = now
			return
		}
	}
	c, l := o.client, &s.cfg.Limits
	if c.waiters >= l.Waiters || c.ownerBytes+len(owner) > l.OwnerBytes {
		return
	}
	c.waiters++
	c.ownerBytes += len(owner)
	f.waiters = append(f.waiters, &waiter{lockRange: r, open: o, owner: owner, asked: now})
	s.waiting[f] = struct{}{}
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
		w.open.client.waiters--
		w.open.client.ownerBytes -= len(w.owner)
		return true
	})
	if len(f.waiters) == 0 {
		f.waiters = nil
		delete(s.waiting, f)
	}
}

// forgetWaiters forgets all waiters of a client.
func (s *State) forgetWaiters(c *Client) {
	if c.waiters == 0 {
		return
	}
	for f := range s.waiting {
		s.dropWaiters(f, func(w *waiter) bool { return w.open.client == c })
		s.wake(f)
	}
}
