package state

import (
	"slices"

	"github.com/podnas/podnas/nfs/nfs4"
)

// Lock is LOCK, RFC 8881 section 18.10. With nfs4.ErrDenied it says who has the lock, or
// will have it: a lock that became free is kept for a moment for the waiter that
// asked first. One that does not wait gets it all the same: it asks whether the lock is free, and nobody knows
// whether that waiter has been killed meanwhile. nfs4.ErrDeadlock is for one that would wait for itself. It can wait for the
// disk, as Open can.
func (s *State) Lock(c *Client, a LockArgs) (nfs4.Stateid, Denied, nfs4.Status) {
	r, e := newRange(a.Offset, a.Length, a.Write)
	if e != nfs4.OK || len(a.Owner) > OwnerMax {
		return nfs4.Stateid{}, Denied{}, nfs4.ErrInval
	}
	s.mu.Lock()
	defer s.unlock()
	for {
		o, l, e := s.findForLockLocked(c, &a)
		if e != nfs4.OK {
			return nfs4.Stateid{}, Denied{}, e
		}
		owner := string(a.Owner)
		if l != nil {
			owner = l.owner
		}
		other := s.locks.conflict(o.file, c, owner, r)
		switch {
		case other.silent:
			if e := s.dismissLocked(other.holder.open.client, ClientRevoked); e != nfs4.OK {
				return nfs4.Stateid{}, Denied{}, e
			}
			continue
		case other.holder != nil && a.Reclaim:
			return nfs4.Stateid{}, Denied{}, nfs4.ErrReclaimConflict
		case other.holder != nil:
			e := nfs4.ErrDenied
			if a.Wait {
				e = s.locks.wait(o, owner, r)
			}
			return nfs4.Stateid{}, s.locks.deniedBy(&other, c), e
		case other.unknown:
			return nfs4.Stateid{}, Denied{}, nfs4.ErrDelay
		}
		if a.Wait && !a.Reclaim {
			if w := s.locks.turnOf(o.file, c, owner, r); w != nil {
				s.locks.addWaiter(o, owner, r)
				return nfs4.Stateid{}, s.locks.denied(c, w.open.client, w.owner, w.lockRange), nfs4.ErrDenied
			}
		}
		if l == nil {
			has, more := s.locks.elsewhere(o, owner, r)
			if _, opens := s.locks.throughOpen(o, owner); opens >= ownerOpens || !s.locks.roomForRanges(has, 1+more) {
				return nfs4.Stateid{}, Denied{}, nfs4.ErrServerFault
			}
			more = 2 + max(more, 0)
			if !s.sessions.roomForLocks(c, more) || !s.sessions.roomForOwner(c, len(owner)) {
				if again, e := s.makeRoomForLocked(c, usage{locks: more, ownerBytes: len(owner)}); again || e != nfs4.OK {
					if e != nfs4.OK {
						return nfs4.Stateid{}, Denied{}, e
					}
					continue
				}
				return nfs4.Stateid{}, Denied{}, nfs4.ErrServerFault
			}
			l = s.locks.addLockOwner(o, s.opens.newNumber(1), owner)
		}
		if e := s.locks.changeRanges(l, r, setRange); e != nfs4.OK {
			return nfs4.Stateid{}, Denied{}, e
		}
		if len(c.waits) > 0 {
			for _, w := range slices.Clone(c.waits[owner]) {
				if w.open.file == o.file && w.overlaps(r) {
					s.locks.dropWaiter(w)
				}
			}
		}
		l.seqid, l.uncertain = nextSeqid(l.seqid), false
		s.locks.logRange(l, r, true)
		s.locks.wake(o.file) // it can have changed a write lock to a read lock
		return s.locks.lockID(l), Denied{}, nfs4.OK
	}
}

// findForLockLocked checks all of a LOCK but the range. The lock owner is nil if it is new.
//
// +checklocks:s.mu
func (s *State) findForLockLocked(c *Client, a *LockArgs) (o *openState, l *lockOwner, e nfs4.Status) {
	if a.NewOwner {
		if o, e = s.opens.findOpen(c, &a.Stateid, &a.File); e != nfs4.OK {
			return nil, nil, e
		}
		l, _ = s.locks.throughOpen(o, string(a.Owner))
	} else {
		if l, e = s.locks.findLock(c, &a.Stateid, &a.File); e != nfs4.OK {
			return nil, nil, e
		}
		o = l.open
	}
	need := Read
	if a.Write {
		need = Write
	}
	if o.access&need == 0 {
		return nil, nil, nfs4.ErrOpenMode
	}
	return o, l, s.grace.mayGrant(c, a.Reclaim)
}

// TestLock is LOCKT, RFC 8881 section 18.11. What a silent client has could be had.
func (s *State) TestLock(c *Client, owner []byte, f FileKey, write bool, offset, length uint64) (Denied, nfs4.Status) {
	r, e := newRange(offset, length, write)
	if e != nfs4.OK || len(owner) > OwnerMax {
		return Denied{}, nfs4.ErrInval
	}
	s.mu.Lock()
	defer s.unlock()
	if e := c.usable(); e != nfs4.OK {
		return Denied{}, e
	}
	if s.grace.active {
		return Denied{}, nfs4.ErrGrace
	}
	file := s.opens.files[f]
	if file == nil {
		return Denied{}, nfs4.OK
	}
	other := s.locks.conflict(file, c, string(owner), r)
	switch {
	case other.unknown:
		return Denied{}, nfs4.ErrDelay
	case other.holder == nil || other.silent:
		return Denied{}, nfs4.OK
	}
	return s.locks.deniedBy(&other, c), nfs4.ErrDenied
}

// Unlock is LOCKU, RFC 8881 section 18.12.
func (s *State) Unlock(c *Client, id nfs4.Stateid, f FileKey, offset, length uint64) (nfs4.Stateid, nfs4.Status) {
	r, e := newRange(offset, length, false)
	if e != nfs4.OK {
		return nfs4.Stateid{}, e
	}
	s.mu.Lock()
	defer s.unlock()
	l, e := s.locks.findLock(c, &id, &f)
	if e != nfs4.OK {
		return nfs4.Stateid{}, e
	}
	if e := s.locks.changeRanges(l, r, clearRange); e != nfs4.OK {
		return nfs4.Stateid{}, e
	}
	l.seqid, l.uncertain = nextSeqid(l.seqid), false
	s.locks.logRange(l, r, false)
	s.locks.wake(l.open.file)
	return s.locks.lockID(l), nfs4.OK
}

// Told notes that a client has got what Config.LockFree was called with. Until then a waiter is not
// forgotten, though its turn is over: if this process dies, the next one tells it.
func (s *State) Told(free LockFree) {
	s.mu.Lock()
	defer s.unlock()
	c := s.sessions.clients[free.ClientID]
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
