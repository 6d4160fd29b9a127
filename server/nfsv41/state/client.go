package state

import "github.com/podnas/podnas/nfs/nfs4"

// ExchangeID is EXCHANGE_ID. The cases are those of RFC 8881 section 18.35.4.
func (s *State) ExchangeID(a ExchangeIDArgs) (ExchangeIDResult, nfs4.Status) {
	if len(a.Owner) == 0 || len(a.Owner) > OwnerMax {
		return ExchangeIDResult{}, nfs4.ErrInval
	}
	s.mu.Lock()
	defer s.unlock()
	from := addressOf(a.Conn)
	for {
		rec := s.sessions.owners[string(a.Owner)]
		var old *Client
		if rec != nil {
			old = rec.confirmed
		}
		switch {
		case old != nil && !s.sessions.mayBe(old, from) && !s.sessions.mayTry(rec):
			return ExchangeIDResult{}, nfs4.ErrDelay
		case a.Update && old == nil: // 7
			return ExchangeIDResult{}, nfs4.ErrNoEnt
		case a.Update && old.verifier != a.Verifier: // 8
			return ExchangeIDResult{}, nfs4.ErrNotSame
		case a.Update && old.principal != a.Principal: // 9
			return ExchangeIDResult{}, nfs4.ErrPerm
		case old != nil && old.principal != a.Principal: // 3
			// Sessions are state (section 18.50.3 lists it): an idle client would lose them.
			if (s.sessions.hasState(old) || len(old.sessions) > 0) && !s.sessions.leaseOver(old) || !s.sessions.mayBe(old, from) {
				return ExchangeIDResult{}, nfs4.ErrClidInUse
			}
			if e := s.dismissLocked(old, ClientReturned); e != nfs4.OK {
				return ExchangeIDResult{}, e
			}
			continue // as 1
		case old != nil && old.verifier == a.Verifier && (isSecret(a.Verifier) || s.sessions.mayBe(old, from)): // 2, 6
			if old.leaving {
				return ExchangeIDResult{}, nfs4.ErrDelay
			}
			if a.Conn != nil {
				old.address = a.Conn.Address()
			}
			return ExchangeIDResult{ClientID: old.id, Seq: old.createSeq + 1, Confirmed: true}, nfs4.OK
		}
		// 1, 4, 5
		if !s.mayReplaceLocked(string(a.Owner), a.Verifier, from) {
			return ExchangeIDResult{}, nfs4.ErrDelay
		}
		if rec != nil && rec.unconfirmed != nil {
			s.dropLocked(rec.unconfirmed)
			rec = s.sessions.owners[string(a.Owner)] // it goes with its last record
		}
		home := s.sessions.addressOf(from)
		if rec == nil && !s.sessions.roomForClient(home) { // one that starts again replaces itself
			if e := s.makeRoomLocked(home); e != nfs4.OK {
				return ExchangeIDResult{}, e
			}
			continue
		}
		if rec == nil {
			rec = &ownerRecord{}
			s.sessions.owners[string(a.Owner)] = rec
		}
		c := s.sessions.newClient(&a, home)
		rec.unconfirmed = c
		s.sessions.warnOfSharedOwner(rec, c)
		return ExchangeIDResult{ClientID: c.id, Seq: c.createSeq + 1}, nfs4.OK
	}
}

// DestroyClientID is DESTROY_CLIENTID, RFC 8881 section 18.50.
func (s *State) DestroyClientID(id uint64, p Principal, conn Conn) nfs4.Status {
	s.mu.Lock()
	defer s.unlock()
	c := s.sessions.clients[id]
	switch {
	case c == nil:
		return nfs4.ErrStaleClientID
	case c.principal != p, !s.sessions.mayBe(c, addressOf(conn)):
		return nfs4.ErrWrongCred
	case len(c.sessions) > 0 || c.usage.opens > 0:
		return nfs4.ErrClientIDBusy
	}
	return s.dismissLocked(c, ClientLeft)
}

// Evict throws a client out, with all that it has. It need not be silent.
func (s *State) Evict(id uint64) nfs4.Status {
	s.mu.Lock()
	defer s.unlock()
	c := s.sessions.clients[id]
	if c == nil {
		return nfs4.ErrStaleClientID
	}
	return s.dismissLocked(c, ClientEvicted)
}
