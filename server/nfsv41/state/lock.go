package state

import "slices"

// lockOwner is what a lock owner has locked through one open: lock_owner4 and its
// lock stateid. The same owner may have another through another open of the client;
// they do not exclude each other.
type lockOwner struct {
	number uint64 // of its stateid
	open   *open
	at     int // in open.locks
	owner  string
	ranges []lockRange // in order, apart; file.locked has them, too
	seqid  uint32
	// uncertain is that of open.
	uncertain bool
	gen       uint32 // see logCopy
}

// lockerKey finds a lock owner.
type lockerKey struct {
	open  *open
	owner string
}

// Of the locks in the way of another, so many are looked at: those of silent clients, and those of
// the owner itself, or that are being released.
const (
	silentMax = 256
	ownMax    = 4096
)

// conflict is what is in the way of a lock.
type conflict struct {
	holder *lockOwner // nil: nothing
	at     lockRange
	silent bool // the holder's client is, and so are those of all others that were looked at: they can be taken
	// unknown is set if there was nothing among as much as may be looked at.
	unknown bool
}

// conflict returns what excludes r, which is for c's owner.
func (s *State) conflict(f *file, c *Client, owner string, r lockRange) (found conflict) {
	if f.locked.root == nil {
		return found
	}
	silent, own := 0, 0
	f.locked.excluding(r, &s.steps, func(i *interval[*lockOwner]) bool {
		l := i.of
		if l.open.void() || l.isOf(c, owner) {
			own++
			found.unknown = own >= ownMax
			return !found.unknown
		}
		found.holder, found.at, found.silent = l, i.lockRange, s.leaseOver(l.open.client)
		silent++
		return found.silent && silent < silentMax
	})
	return found
}

func (in *conflict) denied() Denied { return denied(in.holder.open.client, in.holder.owner, in.at) }

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
		other := s.conflict(o.file, c, owner, r)
		switch {
		case other.silent:
			if e := s.dismiss(other.holder.open.client, ClientRevoked); e != OK {
				return Stateid{}, Denied{}, e
			}
			continue
		case other.holder != nil && a.Reclaim:
			return Stateid{}, Denied{}, ErrReclaimConflict
		case other.holder != nil:
			e := ErrDenied
			if a.Wait {
				e = s.wait(o, owner, r)
			}
			return Stateid{}, other.denied(), e
		case other.unknown:
			return Stateid{}, Denied{}, ErrDelay
		}
		if w := s.turnOf(o.file, c, owner, r); w != nil && !a.Reclaim {
			if a.Wait {
				s.addWaiter(o, owner, r)
			}
			return Stateid{}, denied(w.open.client, w.owner, w.lockRange), ErrDenied
		}
		if l == nil {
			if !s.roomForLocks(c, 2) || !s.roomForOwner(c, len(owner)) {
				if again, e := s.makeRoomFor(c, usage{locks: 2, ownerBytes: len(owner)}); again || e != OK {
					if e != OK {
						return Stateid{}, Denied{}, e
					}
					continue
				}
				return Stateid{}, Denied{}, ErrServerFault
			}
			l = s.addLockOwner(o, s.newNumber(1), owner)
		}
		if e := s.changeRanges(l, r, setRange); e != OK {
			return Stateid{}, Denied{}, e
		}
		if len(c.waits) > 0 {
			for _, w := range slices.Clone(c.waits[owner]) {
				if w.open.file == o.file && w.overlaps(r) {
					s.dropWaiter(w)
				}
			}
		}
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
		l = s.lockers[lockerKey{o, string(a.Owner)}]
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
func (s *State) changeRanges(l *lockOwner, r lockRange, change func([]lockRange, lockRange) edit) Error {
	e := change(l.ranges, r)
	more := e.more()
	if more > 0 && (!s.roomForLocks(l.open.client, more) || len(l.ranges)+more > s.cfg.Limits.Ranges) {
		return ErrServerFault
	}
	s.edit(l, e)
	return OK
}

// edit changes what a lock owner has.
func (s *State) edit(l *lockOwner, e edit) {
	more := e.more()
	locked := &l.open.file.locked
	for _, old := range l.ranges[e.from:e.to] {
		s.steps += locked.remove(old.first, l.number)
	}
	for _, piece := range e.pieces[:e.n] {
		s.steps += locked.add(piece, l.number, l)
	}
	l.ranges = e.apply(l.ranges)
	if len(l.ranges) == 0 {
		l.ranges = nil
	}
	s.useRanges(l.open.client, more)
}

func (s *State) useRanges(c *Client, n int) {
	if n == 0 {
		return
	}
	c.ranges += n
	s.ranges += n
	s.use(c, usage{locks: n})
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
	other := s.conflict(file, c, string(owner), r)
	switch {
	case other.unknown:
		return Denied{}, ErrDelay
	case other.holder == nil || other.silent:
		return Denied{}, OK
	}
	return other.denied(), ErrDenied
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
	l := &lockOwner{number: number, open: o, at: len(o.locks), owner: owner, gen: o.gen}
	s.locks[l.number] = l
	s.lockers[lockerKey{o, owner}] = l
	o.locks = append(o.locks, l)
	o.file.lockers++
	s.use(o.client, usage{locks: 1, ownerBytes: len(owner)})
	return l
}

// removeLockOwner removes a lock owner that has no ranges.
func (s *State) removeLockOwner(l *lockOwner) {
	o := l.open
	last := o.locks[len(o.locks)-1]
	o.locks[l.at], last.at = last, l.at
	o.locks[len(o.locks)-1] = nil
	o.locks = o.locks[:len(o.locks)-1]
	o.file.lockers--
	delete(s.locks, l.number)
	delete(s.lockers, lockerKey{o, l.owner})
	s.use(o.client, usage{locks: -1, ownerBytes: -len(l.owner)})
}

// releaseLocks is the task that releases the locks of an open that is void.
func (s *State) releaseLocks(o *open) (more bool) {
	for began := s.steps; len(o.locks) > 0; s.steps++ {
		if s.steps-began >= stepWork {
			return true
		}
		l := o.locks[len(o.locks)-1]
		n := len(l.ranges)
		if n == 0 {
			s.removeLockOwner(l)
			continue
		}
		s.steps += o.file.locked.remove(l.ranges[n-1].first, l.number)
		l.ranges = l.ranges[:n-1]
		s.useRanges(o.client, -1)
	}
	s.dropFile(o.file)
	s.wake(o.file)
	return false
}
