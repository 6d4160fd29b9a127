package state

import (
	"cmp"
	"slices"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
)

// waitFor is how long a waiter is remembered that does not ask again. Linux asks at
// least every 30 seconds (NFS4_LOCK_MAXTIMEOUT).
const waitFor = time.Minute

// wait notes that the lock could not be given. If there are too many waiters,
// or the owner's name is too long for it, this one has to ask again by itself. The error is
// nfs4.ErrDenied, or nfs4.ErrDeadlock if it would wait for itself.
func (t *locks) wait(o *openState, owner string, r lockRange) nfs4.Status {
	w := t.addWaiter(o, owner, r)
	if w == nil || !t.deadlocked(w) {
		return nfs4.ErrDenied
	}
	t.dropWaiter(w)
	return nfs4.ErrDeadlock
}

// addWaiter returns nil if there are too many.
func (t *locks) addWaiter(o *openState, owner string, r lockRange) *waiter {
	f, c, now := o.file, o.client, t.cfg.Now()
	if w := t.waiters[waiterKey{o, owner, r}]; w != nil {
		t.untold(w)
		w.asked = now
		return w
	}
	if !t.sessions.roomForWaiter(c) || !t.sessions.roomForOwner(c, len(owner)) || f.waits != nil && len(f.waits.list) >= t.cfg.Limits.FileWaiters {
		return nil
	}
	t.lastWait++
	w := &waiter{lockRange: r, number: t.lastWait, open: o, owner: owner, asked: now}
	t.waiters[w.key()] = w
	if c.waits == nil {
		c.waits = map[string][]*waiter{}
	}
	c.waits[owner] = append(c.waits[owner], w)
	t.sessions.use(c, usage{waiters: 1, ownerBytes: len(owner)})
	if f.waits == nil {
		f.waits = &fileWaiters{index: len(t.waiting), gen: t.log.gen}
		t.waiting = append(t.waiting, f)
	}
	f.waits.list = append(f.waits.list, w)
	t.soon()
	t.logWait(w)
	return w
}

// dropWaiter forgets a waiter. The caller calls wake, unless it can't have been told.
func (t *locks) dropWaiter(w *waiter) {
	t.logWaitEnds(w)
	t.untold(w)
	delete(t.waiters, w.key())
	c, f := w.open.client, w.open.file
	is := func(other *waiter) bool { return other == w }
	t.steps += len(c.waits[w.owner])
	if c.waits[w.owner] = slices.DeleteFunc(c.waits[w.owner], is); len(c.waits[w.owner]) == 0 {
		delete(c.waits, w.owner)
	}
	t.sessions.use(c, usage{waiters: -1, ownerBytes: -len(w.owner)})
	i := f.waits.after(w.number) - 1
	f.waits.list = slices.Delete(f.waits.list, i, i+1)
	if len(f.waits.list) == 0 {
		last := t.waiting[len(t.waiting)-1]
		t.waiting[f.waits.index], last.waits.index = last, f.waits.index
		t.waiting[len(t.waiting)-1] = nil
		t.waiting = t.waiting[:len(t.waiting)-1]
		f.waits = nil
	}
}

// dropWaitersOf forgets those of an open; a client has at most Limits.Waiters.
func (t *locks) dropWaitersOf(c *Client, o *openState) {
	var of []*waiter
	for _, waits := range c.waits {
		for _, w := range waits {
			t.steps++
			if w.open == o {
				of = append(of, w)
			}
		}
	}
	slices.SortFunc(of, func(a, b *waiter) int { return cmp.Compare(a.number, b.number) })
	for _, w := range of {
		t.dropWaiter(w)
	}
}

// untold is for one that has asked again, or goes.
func (t *locks) untold(w *waiter) {
	if !w.told.IsZero() {
		t.steps += w.open.file.waits.told.remove(w.first, w.number)
		w.told, w.reached = time.Time{}, false
	}
}

// turnOf returns a waiter that was told that the lock is free, and that c's owner
// must not overtake. One whose client is gone has no turn, though it takes some steps until it is removed.
func (t *locks) turnOf(f *file, c *Client, owner string, r lockRange) (found *waiter) {
	if f.waits == nil {
		return nil
	}
	now := t.cfg.Now()
	f.waits.told.excluding(r, &t.steps, func(i *interval[*waiter]) bool {
		if w := i.of; !w.open.void() && t.hasTurn(w, now) && (w.open.client != c || w.owner != owner) {
			found = w
		}
		return found == nil
	})
	return found
}

func (t *locks) hasTurn(w *waiter, now time.Time) bool {
	return !w.told.IsZero() && now.Sub(w.told) <= t.cfg.FairFor
}

// wake tells the waiters of a file whose lock has become free. Who asked first is
// told first, and those after it only if both can have theirs.
func (t *locks) wake(f *file) {
	if f.waits == nil {
		return
	}
	number := uint64(0) // of the last that was looked at
	t.begin(func() bool {
		began, now := t.steps, t.cfg.Now()
		for {
			if f.waits == nil {
				return false
			}
			i := f.waits.after(number)
			if i == len(f.waits.list) {
				return false
			}
			if t.steps-began >= stepWork {
				return true
			}
			t.tell(f.waits.list[i], now)
			number = f.waits.list[i].number
			t.steps++
		}
	})
}

// tell tells a waiter, unless somebody has what it waits for, or was told.
func (t *locks) tell(w *waiter, now time.Time) {
	f, c := w.open.file, w.open.client
	if !w.told.IsZero() || w.open.void() || t.turnOf(f, c, w.owner, w.lockRange) != nil {
		return
	}
	if in := t.conflict(f, c, w.owner, w.lockRange); in.holder != nil || in.unknown {
		return
	}
	w.told = now
	t.steps += f.waits.told.add(w.lockRange, w.number, w)
	l := t.later()
	l.free = append(l.free, LockFree{ClientID: c.id, File: f.key, Owner: w.owner})
}

// expired reports whether a waiter is to be forgotten.
func (t *locks) expired(w *waiter, now time.Time) bool {
	return now.Sub(w.asked) > waitFor || w.reached && now.Sub(w.told) > t.cfg.FairFor
}

func (t *locks) logWait(w *waiter) {
	if t.log.out != nil {
		t.log.note(w.open.file.waits.gen, func(b []byte) []byte { return appendWait(b, `{"wait":`, w) })
	}
}

func (t *locks) logWaitEnds(w *waiter) {
	if t.log.out != nil && !w.open.client.gone {
		t.log.note(w.open.file.waits.gen, func(b []byte) []byte { return appendWait(b, `{"waitEnds":`, w) })
	}
}
