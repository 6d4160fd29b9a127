package state

import "slices"

// lockOwner is what a lock owner has locked through one open: lock_owner4 and its
// lock stateid. The same owner may have another through another open of the client;
// they do not exclude each other.
type lockOwner struct {
	number uint64 // of its stateid
	open   *open
	owner  string
	ranges []lockRange // in order, apart
	seqid  uint32
	// uncertain is that of open.
	uncertain bool
}

// conflict returns a lock owner with a range that excludes r, which is for c's owner.
// Its client is silent only if those of all such are: then they can be taken.
func (s *State) conflict(f *file, c *Client, owner string, r lockRange) (holder *lockOwner, silent bool) {
	for _, l := range f.lockers {
		if l.open.client == c && l.owner == owner || firstExcluded(l.ranges, r) == nil {
			continue
		}
		if !s.leaseOver(l.open.client) {
			return l, false
		}
		holder = l
	}
	return holder, holder != nil
}

func denied(c *Client, owner string, r lockRange) Denied {
	return Denied{ClientID: c.id, Owner: owner, Write: r.write, Offset: r.first, Length: r.length()}
}

// Lock is LOCK, RFC 8881 section 18.10. With ErrDenied it says who has the lock, or
// will have it: a lock that became free is kept for a moment for the waiter that
// asked first. ErrDeadlock is for one that would wait for itself. It can wait for the
// disk, as Open can.
func (s *State) Lock(c *Client, a LockArgs) (Stateid, Denied, Error) {
	r, e := newRange(a.Offset, a.Length, a.Write)
	if e != OK || len(a.Owner) > OwnerMax {
		return Stateid{}, Denied{}, ErrInval
	}
	s.mu.Lock()
	defer s.unlock()
	for {
		o, l, e := s.findForLock(c, &a)
		if e != OK {
			return Stateid{}, Denied{}, e
		}
		owner := string(a.Owner)
		if l != nil {
			owner = l.owner
		}
		other, silent := s.conflict(o.file, c, owner, r)
		if silent {
			if e := s.dismiss(other.open.client, ClientRevoked); e != OK {
				return Stateid{}, Denied{}, e
			}
			continue
		}
		if other != nil {
			if a.Reclaim {
				return Stateid{}, Denied{}, ErrReclaimConflict
			}
			e := ErrDenied
			if a.Wait {
				e = s.wait(o, owner, r)
			}
			return Stateid{}, denied(other.open.client, other.owner, *firstExcluded(other.ranges, r)), e
		}
		if w := s.turnOf(o.file, c, owner, r); w != nil && !a.Reclaim {
			if a.Wait {
				s.addWaiter(o, owner, r)
			}
			return Stateid{}, denied(w.open.client, w.owner, w.lockRange), ErrDenied
		}
		if l == nil {
			if !s.roomForLocks(c, 2) || !s.roomForOwner(c, len(owner)) {
				return Stateid{}, Denied{}, ErrServerFault
			}
			l = s.addLockOwner(o, s.newNumber(1), owner)
		}
		if e := s.changeRanges(l, r, setRange); e != OK {
			return Stateid{}, Denied{}, e
		}
		s.dropWaiters(o.file, func(w *waiter) bool {
			return w.open.client == c && w.owner == owner && w.overlaps(r)
		})
		l.seqid, l.uncertain = nextSeqid(l.seqid), false
		s.logRange(l, r, true)
		s.wake(o.file) // it can have changed a write lock to a read lock
		return s.lockID(l), Denied{}, OK
	}
}

// findForLock checks all of a LOCK but the range. The lock owner is nil if it is new.
func (s *State) findForLock(c *Client, a *LockArgs) (o *open, l *lockOwner, e Error) {
	if a.NewOwner {
		if o, e = s.findOpen(c, &a.Stateid, &a.File); e != OK {
			return nil, nil, e
		}
		for _, known := range o.locks {
			if known.owner == string(a.Owner) {
				l = known
			}
		}
	} else {
		if l, e = s.findLock(c, &a.Stateid, &a.File); e != OK {
			return nil, nil, e
		}
		o = l.open
	}
	need := Read
	if a.Write {
		need = Write
	}
	if o.access&need == 0 {
		return nil, nil, ErrOpenMode
	}
	return o, l, s.mayGrant(c, a.Reclaim)
}

// changeRanges sets or clears r, unless the client would have too many.
func (s *State) changeRanges(l *lockOwner, r lockRange, change func([]lockRange, lockRange) []lockRange) Error {
	c := l.open.client
	had := len(l.ranges)
	if !s.roomForLocks(c, 2) {
		if more := len(change(slices.Clone(l.ranges), r)) - had; more > 0 && !s.roomForLocks(c, more) {
			return ErrServerFault
		}
	}
	l.ranges = change(l.ranges, r)
	if len(l.ranges) == 0 {
		l.ranges = nil
	}
	s.use(c, len(l.ranges)-had, 0)
	c.ranges += len(l.ranges) - had
	return OK
}

// TestLock is LOCKT, RFC 8881 section 18.11. What a silent client has could be had.
func (s *State) TestLock(c *Client, owner []byte, f FileKey, write bool, offset, length uint64) (Denied, Error) {
	r, e := newRange(offset, length, write)
	if e != OK || len(owner) > OwnerMax {
		return Denied{}, ErrInval
	}
	s.mu.Lock()
	defer s.unlock()
	if e := c.usable(); e != OK {
		return Denied{}, e
	}
	if s.grace.active {
		return Denied{}, ErrGrace
	}
	file := s.files[f]
	if file == nil {
		return Denied{}, OK
	}
	other, silent := s.conflict(file, c, string(owner), r)
	if other == nil || silent {
		return Denied{}, OK
	}
	return denied(other.open.client, other.owner, *firstExcluded(other.ranges, r)), ErrDenied
}

// Unlock is LOCKU, RFC 8881 section 18.12.
func (s *State) Unlock(c *Client, id Stateid, f FileKey, offset, length uint64) (Stateid, Error) {
	r, e := newRange(offset, length, false)
	if e != OK {
		return Stateid{}, e
	}
	s.mu.Lock()
	defer s.unlock()
	l, e := s.findLock(c, &id, &f)
	if e != OK {
		return Stateid{}, e
	}
	if e := s.changeRanges(l, r, clearRange); e != OK {
		return Stateid{}, e
	}
	l.seqid, l.uncertain = nextSeqid(l.seqid), false
	s.logRange(l, r, false)
	s.wake(l.open.file)
	return s.lockID(l), OK
}

func (s *State) lockID(l *lockOwner) Stateid {
	return Stateid{Seqid: l.seqid, Other: s.other(l.number)}
}

func (s *State) addLockOwner(o *open, number uint64, owner string) *lockOwner {
	l := &lockOwner{number: number, open: o, owner: owner}
	s.locks[l.number] = l
	o.locks = append(o.locks, l)
	o.file.lockers = append(o.file.lockers, l)
	s.use(o.client, 1, len(owner))
	return l
}

// removeLockOwner removes a lock owner and its ranges. The caller calls wake.
func (s *State) removeLockOwner(l *lockOwner) {
	o := l.open
	is := func(other *lockOwner) bool { return other == l }
	o.locks = slices.DeleteFunc(o.locks, is)
	o.file.lockers = slices.DeleteFunc(o.file.lockers, is)
	delete(s.locks, l.number)
	o.client.ranges -= len(l.ranges)
	s.use(o.client, -1-len(l.ranges), -len(l.owner))
}
