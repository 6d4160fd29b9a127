package state

import "cmp"

// findOpen returns the open of a stateid that must be of an open.
func (s *State) findOpen(c *Client, id *Stateid, f *FileKey) (*open, Error) {
	if e := c.usable(); e != OK {
		return nil, e
	}
	o := s.opens[s.number(id)]
	if o == nil || o.client != c || o.file.key != *f {
		return nil, ErrBadStateid
	}
	e := checkSeqid(id.Seqid, o.seqid, o.uncertain)
	if e == OK && o.repeatable != 0 && (id.Seqid == o.seqid || o.seqid == 1) {
		s.notRepeated(o) // the client has the reply to its last OPEN
	}
	return o, e
}

// findLock returns the lock owner of a stateid that must be of one.
func (s *State) findLock(c *Client, id *Stateid, f *FileKey) (*lockOwner, Error) {
	if e := c.usable(); e != OK {
		return nil, e
	}
	l := s.locks[s.number(id)]
	if l == nil || l.open.void() || l.open.client != c || l.open.file.key != *f {
		return nil, ErrBadStateid
	}
	return l, checkSeqid(id.Seqid, l.seqid, l.uncertain)
}

// Check checks the stateid of a READ, WRITE or the like, of an open or of a lock
// owner, and returns the open's descriptor for access: one member of Access, or
// Both, which gives the one for writing. The descriptor has one user more, which the
// caller ends with Release. It is nil if Open got none.
func (s *State) Check(c *Client, id Stateid, f FileKey, access Access) (Held, Error) {
	s.mu.Lock()
	defer s.unlock()
	var o *open
	var e Error
	if isLock(s.number(&id)) {
		var l *lockOwner
		if l, e = s.findLock(c, &id, &f); e == OK {
			o = l.open
		}
	} else {
		o, e = s.findOpen(c, &id, &f)
	}
	if e != OK {
		return nil, e
	}
	if access&^o.access != 0 {
		return nil, ErrOpenMode
	}
	h := o.held[0]
	if access&Write != 0 {
		h = o.held[1]
	}
	if h != nil {
		h.Retain()
	}
	return h, OK
}

// CheckSpecial checks a READ, WRITE, or SETATTR of the size with a special stateid.
// Bypass reads what is denied.
func (s *State) CheckSpecial(id Stateid, f FileKey, access Access) Error {
	switch {
	case !id.IsSpecial():
		return ErrBadStateid
	case s.InGrace():
		return ErrGrace
	case id == Bypass && access == Read:
		return OK
	case s.Denies(f, access):
		return ErrLocked
	}
	return OK
}

// Denies reports whether an open denies access, one that has no open itself: it
// is for version 3 as well, and nearly free while nobody denies anything.
func (s *State) Denies(f FileKey, access Access) bool {
	if s.denying.Load() == 0 {
		return false
	}
	s.mu.Lock()
	defer s.unlock()
	for {
		again, e := s.shareConflict(s.files[f], access, 0)
		if !again {
			return e != OK
		}
	}
}

// Find returns the descriptor of any open of a file, best one that can write, with Retain
// called; or nil.
func (s *State) Find(f FileKey) Held {
	s.mu.Lock()
	defer s.unlock()
	found := s.findHeld(s.files[f])
	if found != nil {
		found.Retain()
	}
	return found
}

// findHeld looks at a bounded number of opens.
func (s *State) findHeld(f *file) (found Held) {
	if f == nil {
		return nil
	}
	looked := 0
	for _, of := range [...]Access{Both, Write, denying, Read} {
		for o := f.opens[of]; o != nil && looked < silentMax; o = o.nextOfFile {
			looked++
			s.steps++
			if o.held[1] != nil {
				return o.held[1]
			}
			found = cmp.Or(found, o.held[0])
		}
	}
	return found
}

// TestStateid is TEST_STATEID of one stateid, RFC 8881 section 18.48.
func (s *State) TestStateid(c *Client, id Stateid) Error {
	s.mu.Lock()
	defer s.unlock()
	n := s.number(&id)
	if o := s.opens[n]; o != nil && o.client == c && !c.gone {
		return checkSeqid(id.Seqid, o.seqid, o.uncertain)
	}
	if l := s.locks[n]; l != nil && l.open.client == c && !l.open.void() {
		return checkSeqid(id.Seqid, l.seqid, l.uncertain)
	}
	return ErrBadStateid
}

// FreeStateid is FREE_STATEID, RFC 8881 section 18.38.
func (s *State) FreeStateid(c *Client, id Stateid) Error {
	s.mu.Lock()
	defer s.unlock()
	if e := c.usable(); e != OK {
		return e
	}
	n := s.number(&id)
	if o := s.opens[n]; o != nil && o.client == c {
		if e := checkSeqid(id.Seqid, o.seqid, o.uncertain); e != OK {
			return e
		}
		return ErrLocksHeld
	}
	if l := s.locks[n]; l != nil && l.open.client == c && !l.open.void() {
		if e := checkSeqid(id.Seqid, l.seqid, l.uncertain); e != OK {
			return e
		}
		if len(l.ranges) > 0 {
			return ErrLocksHeld
		}
		s.removeLockOwner(l)
		s.logFreed(l)
		return OK
	}
	return ErrBadStateid
}
