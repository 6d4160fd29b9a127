package state

import "github.com/podnas/podnas/nfs/nfs4"

// Open is OPEN for CLAIM_NULL, CLAIM_FH and CLAIM_PREVIOUS. An owner that has the file
// open already gets more of it, by the same stateid. isNew reports that it had not.
//
// It may call Tracking, so it can wait for the disk.
func (s *State) Open(c *Client, a OpenArgs) (id nfs4.Stateid, isNew bool, e nfs4.Status) {
	s.mu.Lock()
	defer s.unlock()
	s.opens.unreserve(a.Reserved) // it is not in the way of its own OPEN
	o, e := s.mayOpenLocked(c, &a)
	if e != nfs4.OK {
		return nfs4.Stateid{}, false, e
	}
	if isNew = o == nil; isNew {
		o = s.opens.addOpen(c, s.opens.newNumber(0), &a)
	}
	if o.repeatable == 0 || o.repeatable != combo(a.Access, a.Deny) {
		s.opens.upgrade(o, a.Access, a.Deny)
	}
	s.opens.keepDescriptor(o, a.Access, a.Descriptor)
	o.repeatable, o.unanswered = 0, 0
	if a.Slot != nil {
		o.unanswered = combo(a.Access, a.Deny)
		a.Slot.opened, a.Slot.seqid = o.number, o.seqid
	}
	s.opens.logOpen(o)
	return s.opens.openID(o), isNew, nfs4.OK
}

// mayOpenLocked checks an OPEN until nothing is in its way and its client is in the client tracking, or there is an error. It returns the
// open that it is to be added to, if any. mu may have been let go meanwhile, and is held since the last check.
//
// +checklocks:s.mu
func (s *State) mayOpenLocked(c *Client, a *OpenArgs) (*openState, nfs4.Status) {
	for {
		o, again, e := s.tryOpenLocked(c, a)
		switch {
		case e != nfs4.OK:
			return nil, e
		case again:
		case c.recorded:
			return o, nfs4.OK
		default:
			if e := s.recordLocked(c); e != nfs4.OK {
				return nil, e
			}
		}
	}
}

// MayOpen returns the error of an Open, and changes nothing: for an OPEN that
// makes a file.
func (s *State) MayOpen(c *Client, a OpenArgs) nfs4.Status {
	s.mu.Lock()
	defer s.unlock()
	for {
		if _, again, e := s.tryOpenLocked(c, &a); !again {
			return e
		}
	}
}

// tryOpenLocked checks an OPEN, and returns the open that it is to be added to, if any.
// again means that mu was let go, to take the file from a silent client.
//
// +checklocks:s.mu
func (s *State) tryOpenLocked(c *Client, a *OpenArgs) (o *openState, again bool, e nfs4.Status) {
	if !validShare(a.Access, a.Deny) || len(a.Owner) > OwnerMax {
		return nil, false, nfs4.ErrInval
	}
	if e := c.usable(); e != nfs4.OK {
		return nil, false, e
	}
	if e := s.grace.mayGrant(c, a.Reclaim); e != nfs4.OK {
		return nil, false, e
	}
	if s.opens.isReserved(a.File, a.does(), a.Deny) {
		return nil, false, nfs4.ErrDelay
	}
	f := s.opens.files[a.File]
	if f != nil {
		o = s.opens.byOwner[openKey{c, f, string(a.Owner)}]
	}
	var own *openState
	if o != nil && o.repeatable == combo(a.Access, a.Deny) {
		own = o // it is this very OPEN's, which is sent again
	}
	if again, e := s.shareConflictLocked(f, own, a.does(), a.Deny); again || e != nfs4.OK {
		if e == nfs4.ErrShareDenied && a.Reclaim {
			e = nfs4.ErrReclaimConflict
		}
		return nil, again, e
	}
	if o == nil && (!s.sessions.roomForOpen(c) || !s.sessions.roomForOwner(c, len(a.Owner))) {
		if again, e := s.makeRoomForLocked(c, usage{opens: 1, ownerBytes: len(a.Owner)}); again || e != nfs4.OK {
			return nil, again, e
		}
		return nil, false, nfs4.ErrNoSpc
	}
	return o, false, nfs4.OK
}

// shareConflictLocked compares with all opens of the file but own, as RFC 8881 section 9.7 does:
// those of the same owner, too. again means that a silent client lost the file, and
// mu was let go meanwhile.
//
// It looks at a bounded number of opens. That is enough, as the lists leave out most that are not in the way: of those that deny
// something, each denies the same, since they exclude each other otherwise, but for two at most.
//
// +checklocks:s.mu
func (s *State) shareConflictLocked(f *file, own *openState, access, deny Access) (again bool, e nfs4.Status) {
	if f == nil || access&f.counts.deny() == 0 && deny&f.counts.access() == 0 {
		return false, nfs4.OK
	}
	var silent *Client
	more, void := false, false
	for of, first := range f.opens {
		if of != denying && deny&Access(of) == 0 {
			continue
		}
		o := first
		for looked := 0; o != nil && looked < silentMax; o, looked = o.nextOfFile, looked+1 {
			s.steps++
			switch {
			case o == own:
			case o.void():
				void = true
			case access&o.deny == 0 && deny&o.access == 0:
			case !s.sessions.leaseOver(o.client):
				return false, nfs4.ErrShareDenied
			default:
				silent = o.client
			}
		}
		more = more || o != nil
	}
	switch {
	case silent == nil && !more: // all that are in the way go at this moment
		return false, nfs4.OK
	case silent == nil && void:
		return false, nfs4.ErrDelay
	case silent == nil:
		return false, nfs4.ErrShareDenied
	}
	if e := s.dismissLocked(silent, ClientRevoked); e != nfs4.OK {
		return false, e
	}
	return true, nfs4.OK
}

// Downgrade is OPEN_DOWNGRADE, RFC 8881 section 18.18: access and deny must be the
// union of what some of the OPENs had.
func (s *State) Downgrade(c *Client, id nfs4.Stateid, f FileKey, access, deny Access) (nfs4.Stateid, nfs4.Status) {
	s.mu.Lock()
	defer s.unlock()
	o, e := s.opens.findOpen(c, &id, &f)
	if e != nfs4.OK {
		return nfs4.Stateid{}, e
	}
	if !validShare(access, deny) {
		return nfs4.Stateid{}, nfs4.ErrInval
	}
	left, leftAccess, leftDeny := uint16(0), Access(0), Access(0)
	for a := Read; a <= Both; a++ {
		for d := Access(0); d <= Both; d++ {
			if o.combos&combo(a, d) != 0 && a&^access == 0 && d&^deny == 0 {
				left |= combo(a, d)
				leftAccess |= a
				leftDeny |= d
			}
		}
	}
	if leftAccess != access || leftDeny != deny {
		return nfs4.Stateid{}, nfs4.ErrInval
	}
	s.opens.setShare(o, access, deny)
	o.combos = left
	o.seqid, o.uncertain = nextSeqid(o.seqid), false
	o.repeatable, o.unanswered = 0, 0
	s.opens.releaseDescriptors(o)
	s.opens.logOpen(o)
	return s.opens.openID(o), nfs4.OK
}

// ForgetVolume removes the opens of a volume's files, with their locks and descriptors, when the volume has ended: a client
// gets NFS4ERR_STALE for the files before it comes as far as a CLOSE, which Linux sends in one COMPOUND with GETATTR.
func (s *State) ForgetVolume(volume uint64) {
	s.mu.Lock()
	defer s.unlock()
	held := &s.locks
	s.begin(func() bool { return held.releaseVolume(volume) })
}

// Close is CLOSE, RFC 8881 section 18.2. Locks that are left are released. The
// stateid to answer is nfs4.InvalidStateid.
func (s *State) Close(c *Client, id nfs4.Stateid, f FileKey) nfs4.Status {
	s.mu.Lock()
	defer s.unlock()
	o, e := s.opens.findOpen(c, &id, &f)
	if e != nfs4.OK {
		return e
	}
	s.locks.removeOpen(o)
	return nfs4.OK
}
