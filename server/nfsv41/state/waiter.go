package state

import (
	"cmp"
	"slices"
	"time"
)

// waiter is a blocking LOCK that was denied, RFC 8881 section 9.6: the client asks
// again by itself now and then, and at once when it is told that the lock is free.
type waiter struct {
	lockRange
	number uint64 // in the order in which they asked first
	open   *open
	owner  string
	asked  time.Time // the last time
	told   time.Time // that it is free, since it asked; zero if not
	// reached is set if the client has got that: Told.
	reached bool
	// prompted is when it was told last to ask again, see deadlocked.
	prompted time.Time
}

// waiterKey finds a waiter.
type waiterKey struct {
	open  *open
	owner string
	lockRange
}

func (w *waiter) key() waiterKey { return waiterKey{w.open, w.owner, w.lockRange} }

// fileWaiters are those of a file.
type fileWaiters struct {
	index int                // in State.waiting
	list  []*waiter          // who asked first comes first; at most Limits.FileWaiters
	told  intervals[*waiter] // those that were told and have not asked again since
	gen   uint32             // see logCopy
}

// after returns the index of the first waiter after the one of a number.
func (f *fileWaiters) after(number uint64) int {
	i, _ := slices.BinarySearchFunc(f.list, number+1, func(w *waiter, n uint64) int { return cmp.Compare(w.number, n) })
	return i
}

// waitFor is how long a waiter is remembered that does not ask again. Linux asks at
// least every 30 seconds (NFS4_LOCK_MAXTIMEOUT).
const waitFor = time.Minute

// wait notes that the lock could not be given. If there are too many waiters,
// or the owner's name is too long for it, this one has to ask again by itself. The error is
// ErrDenied, or ErrDeadlock if it would wait for itself.
func (s *State) wait(o *open, owner string, r lockRange) Error {
	w := s.addWaiter(o, owner, r)
	if w == nil || !s.deadlocked(w) {
		return ErrDenied
	}
	s.dropWaiter(w)
	return ErrDeadlock
}

// addWaiter returns nil if there are too many.
func (s *State) addWaiter(o *open, owner string, r lockRange) *waiter {
	f, c, now := o.file, o.client, s.cfg.Now()
	if w := s.waiters[waiterKey{o, owner, r}]; w != nil {
		s.untold(w)
		w.asked = now
		return w
	}
	if !s.roomForWaiter(c) || !s.roomForOwner(c, len(owner)) || f.waits != nil && len(f.waits.list) >= s.cfg.Limits.FileWaiters {
		return nil
	}
	s.waits++
	w := &waiter{lockRange: r, number: s.waits, open: o, owner: owner, asked: now}
	s.waiters[w.key()] = w
	if c.waits == nil {
		c.waits = map[string][]*waiter{}
	}
	c.waits[owner] = append(c.waits[owner], w)
	s.use(c, usage{waiters: 1, ownerBytes: len(owner)})
	if f.waits == nil {
		f.waits = &fileWaiters{index: len(s.waiting), gen: s.gen}
		s.waiting = append(s.waiting, f)
	}
	f.waits.list = append(f.waits.list, w)
	s.soon()
	s.logWait(w)
	return w
}

// dropWaiter forgets a waiter. The caller calls wake, unless it can't have been told.
func (s *State) dropWaiter(w *waiter) {
	s.logWaitEnds(w)
	s.untold(w)
	delete(s.waiters, w.key())
	c, f := w.open.client, w.open.file
	is := func(other *waiter) bool { return other == w }
	s.steps += len(c.waits[w.owner])
	if c.waits[w.owner] = slices.DeleteFunc(c.waits[w.owner], is); len(c.waits[w.owner]) == 0 {
		delete(c.waits, w.owner)
	}
	s.use(c, usage{waiters: -1, ownerBytes: -len(w.owner)})
	i := f.waits.after(w.number) - 1
	f.waits.list = slices.Delete(f.waits.list, i, i+1)
	if len(f.waits.list) == 0 {
		last := s.waiting[len(s.waiting)-1]
		s.waiting[f.waits.index], last.waits.index = last, f.waits.index
		s.waiting[len(s.waiting)-1] = nil
		s.waiting = s.waiting[:len(s.waiting)-1]
		f.waits = nil
	}
}

// untold is for one that has asked again, or goes.
func (s *State) untold(w *waiter) {
	if !w.told.IsZero() {
		s.steps += w.open.file.waits.told.remove(w.first, w.number)
		w.told, w.reached = time.Time{}, false
	}
}

// turnOf returns a waiter that was told that the lock is free, and that c's owner
// must not overtake. One whose client is gone has no turn, though it takes some steps until it is removed.
func (s *State) turnOf(f *file, c *Client, owner string, r lockRange) (found *waiter) {
	if f.waits == nil {
		return nil
	}
	now := s.cfg.Now()
	f.waits.told.excluding(r, &s.steps, func(i *interval[*waiter]) bool {
		if w := i.of; !w.open.void() && s.hasTurn(w, now) && (w.open.client != c || w.owner != owner) {
			found = w
		}
		return found == nil
	})
	return found
}

func (s *State) hasTurn(w *waiter, now time.Time) bool {
	return !w.told.IsZero() && now.Sub(w.told) <= s.cfg.FairFor
}

// wake tells the waiters of a file whose lock has become free. Who asked first is
// told first, and those after it only if both can have theirs.
func (s *State) wake(f *file) {
	if f.waits == nil {
		return
	}
	number := uint64(0) // of the last that was looked at
	s.begin(func() bool {
		began, now := s.steps, s.cfg.Now()
		for {
			if f.waits == nil {
				return false
			}
			i := f.waits.after(number)
			if i == len(f.waits.list) {
				return false
			}
			if s.steps-began >= stepWork {
				return true
			}
			s.tell(f.waits.list[i], now)
			number = f.waits.list[i].number
			s.steps++
		}
	})
}

// tell tells a waiter, unless somebody has what it waits for, or was told.
func (s *State) tell(w *waiter, now time.Time) {
	f, c := w.open.file, w.open.client
	if !w.told.IsZero() || w.open.void() || s.turnOf(f, c, w.owner, w.lockRange) != nil {
		return
	}
	if in := s.conflict(f, c, w.owner, w.lockRange); in.holder != nil || in.unknown {
		return
	}
	w.told = now
	s.steps += f.waits.told.add(w.lockRange, w.number, w)
	l := s.later()
	l.free = append(l.free, LockFree{ClientID: c.id, File: f.key, Owner: w.owner})
}

// Told notes that a client has got what Config.LockFree was called with. Until then a waiter is not
// forgotten, though its turn is over: if this process dies, the next one tells it.
func (s *State) Told(free LockFree) {
	s.mu.Lock()
	defer s.unlock()
	c := s.clients[free.ClientID]
	if c == nil {
		return
	}
	for _, w := range c.waits[free.Owner] { // at most Limits.Waiters
		s.steps++
		if w.open.file.key == free.File && !w.told.IsZero() {
			w.reached = true
		}
	}
}

// expired reports whether a waiter is to be forgotten.
func (s *State) expired(w *waiter, now time.Time) bool {
	return now.Sub(w.asked) > waitFor || w.reached && now.Sub(w.told) > s.cfg.FairFor
}

// expireWaiters forgets who has not asked again for long, takes locks from clients whose lease is over
// if somebody waits for them, and tells those whose turn it is now.
func (s *State) expireWaiters(now time.Time) {
	inSteps(s, func() []*file { return s.waiting }, func(f *file) {
		number := uint64(0)
		s.begin(func() bool {
			for began := s.steps; f.waits != nil; s.steps++ {
				i := f.waits.after(number)
				if i == len(f.waits.list) {
					s.wake(f)
					return false
				}
				if s.steps-began >= stepWork {
					return true
				}
				w := f.waits.list[i]
				if number = w.number; s.expired(w, now) {
					s.dropWaiter(w)
				} else {
					s.takeFromSilent(w)
					began = min(began, s.steps) // dismiss lets go of mu
				}
			}
			return false
		})
	})
}

// takeFromSilent dismisses clients whose lease is over and that have a lock that w
// waits for, as long as w does: dismiss lets go of mu, and w can be of such a client.
func (s *State) takeFromSilent(w *waiter) {
	for s.waiters[w.key()] == w {
		in := s.conflict(w.open.file, w.open.client, w.owner, w.lockRange)
		if !in.silent || s.dismiss(in.holder.open.client, ClientRevoked) != OK {
			return
		}
	}
}
