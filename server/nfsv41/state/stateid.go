package state

import "github.com/podnas/podnas/nfs/nfs4"

// Check checks the stateid of a READ, WRITE or the like, of an open or of a lock
// owner, which the caller has put in the place of nfs4.CurrentStateid, and returns the open's descriptor for access: one member of Access, or
// Both, which gives the one for writing; with 0 any open will do. The descriptor has one user more, which the
// caller ends with Release. It is nil if Open got none.
func (s *State) Check(c *Client, id nfs4.Stateid, f FileKey, access Access) (Descriptor, nfs4.Status) {
	s.mu.Lock()
	defer s.unlock()
	var o *openState
	var e nfs4.Status
	if isLock(s.opens.number(&id)) {
		var l *lockOwner
		if l, e = s.locks.findLock(c, &id, &f); e == nfs4.OK {
			o = l.open
		}
	} else {
		o, e = s.opens.findOpen(c, &id, &f)
	}
	if e != nfs4.OK {
		return nil, e
	}
	if access&^o.access != 0 {
		return nil, nfs4.ErrOpenMode
	}
	h := o.descriptors[0]
	if access&Write != 0 || access == 0 && h == nil {
		h = o.descriptors[1]
	}
	if h != nil {
		h.Retain()
	}
	return h, nfs4.OK
}

// CheckSpecial checks a READ, WRITE, or SETATTR of the size with a special stateid.
// The bypass stateid reads what is denied.
func (s *State) CheckSpecial(id nfs4.Stateid, f FileKey, access Access) nfs4.Status {
	switch {
	case !id.IsSpecial():
		return nfs4.ErrBadStateid
	case s.InGrace():
		return nfs4.ErrGrace
	case id == nfs4.BypassStateid() && access == Read:
		return nfs4.OK
	case s.Denies(f, access):
		return nfs4.ErrLocked
	}
	return nfs4.OK
}

// Denies reports whether an open denies access, one that has no open itself: it
// is for version 3 as well, and nearly free while nobody denies anything.
func (s *State) Denies(f FileKey, access Access) bool {
	if s.denying.Load() == 0 {
		return false
	}
	s.mu.Lock()
	defer s.unlock()
	if s.opens.isReserved(f, access, 0) {
		return true
	}
	for {
		again, e := s.shareConflictLocked(s.opens.files[f], nil, access, 0)
		if !again {
			return e != nfs4.OK
		}
	}
}

// Find returns the descriptor of any open of a file, best one that can write, with Retain
// called; or nil.
func (s *State) Find(f FileKey) Descriptor {
	s.mu.Lock()
	defer s.unlock()
	found := s.opens.findDescriptor(s.opens.files[f])
	if found != nil {
		found.Retain()
	}
	return found
}

// TestStateid is TEST_STATEID of one stateid, RFC 8881 section 18.48.
func (s *State) TestStateid(c *Client, id nfs4.Stateid) nfs4.Status {
	s.mu.Lock()
	defer s.unlock()
	n := s.opens.number(&id)
	if o := s.opens.byNumber[n]; o != nil && o.client == c && !c.gone {
		return checkSeqid(id.Seqid, o.seqid, o.uncertain)
	}
	if l := s.locks.byNumber[n]; l != nil && l.open.client == c && !l.open.void() {
		return checkSeqid(id.Seqid, l.seqid, l.uncertain)
	}
	return nfs4.ErrBadStateid
}

// FreeStateid is FREE_STATEID, RFC 8881 section 18.38.
func (s *State) FreeStateid(c *Client, id nfs4.Stateid) nfs4.Status {
	s.mu.Lock()
	defer s.unlock()
	if e := c.usable(); e != nfs4.OK {
		return e
	}
	n := s.opens.number(&id)
	if o := s.opens.byNumber[n]; o != nil && o.client == c {
		if e := checkSeqid(id.Seqid, o.seqid, o.uncertain); e != nfs4.OK {
			return e
		}
		return nfs4.ErrLocksHeld
	}
	if l := s.locks.byNumber[n]; l != nil && l.open.client == c && !l.open.void() {
		if e := checkSeqid(id.Seqid, l.seqid, l.uncertain); e != nfs4.OK {
			return e
		}
		if len(l.ranges) > 0 {
			return nfs4.ErrLocksHeld
		}
		s.locks.removeLockOwner(l)
		s.locks.logFreed(l)
		return nfs4.OK
	}
	return nfs4.ErrBadStateid
}
