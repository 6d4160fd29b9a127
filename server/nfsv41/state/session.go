package state

import "github.com/podnas/podnas/nfs/nfs4"

// CreateSession is CREATE_SESSION, RFC 8881 section 18.36: look up, sequence,
// confirmation, creation.
func (s *State) CreateSession(a CreateSessionArgs) (CreateSessionResult, nfs4.Status) {
	s.mu.Lock()
	defer s.unlock()
	returned := false // the incarnation before is gone
	for {
		c := s.sessions.clients[a.ClientID]
		switch {
		case c == nil:
			return CreateSessionResult{}, nfs4.ErrStaleClientID
		case c.leaving:
			return CreateSessionResult{}, nfs4.ErrDelay
		case !c.confirmed && c.principal != a.Principal:
			// Not cached: a stranger must not move the client's sequence. When the client ID is
			// confirmed, any principal of the node may make sessions.
			return CreateSessionResult{}, nfs4.ErrClidInUse
		case c.confirmed && !s.sessions.mayBe(c, addressOf(a.Conn)):
			// Not the reply of before either: it has the ID of a session. Linux asks with EXCHANGE_ID next, whose verifier shows that it
			// is the node at another address. CLID_INUSE would end all its mounts.
			return CreateSessionResult{}, nfs4.ErrDelay
		case !c.confirmed && !s.mayReplaceLocked(c.owner, c.verifier, c.address): // it could when it came
			return CreateSessionResult{}, nfs4.ErrDelay
		case a.Seq == c.createSeq && c.uncertain: // as if it had not come before
		case a.Seq == c.createSeq && c.created != nil && !c.created.triesOther(&a):
			return c.created.result, c.created.err
		case a.Seq == c.createSeq && c.created != nil: // as if that had not come before
		case a.Seq != c.createSeq+1:
			return CreateSessionResult{}, nfs4.ErrSeqMisordered
		}
		if e := s.sessions.checkChannels(&a); e != nfs4.OK {
			return s.sessions.keepCreated(c, &a, CreateSessionResult{}, e)
		}
		// A client that starts again makes room for itself.
		if old := s.sessions.owners[c.owner].confirmed; old != nil && old != c {
			if e := s.dismissLocked(old, ClientReturned); e != nfs4.OK {
				return CreateSessionResult{}, e
			}
			returned = true
			continue
		}
		if len(c.sessions) > 0 {
			if len(c.sessions) >= s.cfg.Limits.Sessions || !s.sessions.roomForSession(c) && !s.sessions.makeRoomForSession(c) {
				return s.sessions.keepCreated(c, &a, CreateSessionResult{}, nfs4.ErrNoSpc)
			}
		}
		if !c.confirmed {
			s.sessions.confirm(c)
			s.grace.came(c.owner)
			if !returned { // else dismissLocked has told
				s.event(c.event(ClientCame))
			}
		}
		s.sessions.renewed(c, s.cfg.Now())
		fore, back := s.sessions.negotiate(&a)
		ses := s.addSessionLocked(c, fore, back, &a)
		return s.sessions.keepCreated(c, &a, CreateSessionResult{
			ID: ses.id, Seq: a.Seq, Fore: fore, Back: back, BackChannel: ses.backChannel,
		}, nfs4.OK)
	}
}

// +checklocks:s.mu
func (s *State) addSessionLocked(c *Client, fore, back Channel, a *CreateSessionArgs) *session {
	ses := &session{
		state: s, client: c, fore: fore, back: back,
		backChannel: a.BackChannel, callback: a.Callback,
		slots: make([]Slot, fore.MaxSlots),
	}
	for i := range ses.slots {
		ses.slots[i].session = ses
	}
	s.cfg.Random(ses.id[:])
	for s.sessions.byID[ses.id] != nil {
		s.cfg.Random(ses.id[:])
	}
	s.sessions.keepSession(ses)
	if a.Conn != nil {
		dir := Fore
		if a.BackChannel {
			dir |= Back
		}
		s.sessions.bind(ses, a.Conn, dir)
	}
	return ses
}

// DestroySession is DESTROY_SESSION, RFC 8881 section 18.37. via is the slot of the
// COMPOUND that it is part of, or nil. Without state protection it may come from any principal,
// but it must come by one of the session's connections, if there is any: a client that has
// connected anew may send it first of all.
func (s *State) DestroySession(id SessionID, conn Conn, via *Slot) nfs4.Status {
	s.mu.Lock()
	defer s.unlock()
	ses := s.sessions.byID[id]
	if ses == nil {
		return nfs4.ErrBadSession
	}
	if len(ses.conns) > 0 && ses.findConn(conn) < 0 {
		return nfs4.ErrConnNotBoundToSession
	}
	own := 0
	if via != nil && via.session == ses {
		own = 1
	}
	if ses.busy > own {
		return nfs4.ErrDelay
	}
	s.sessions.removeSession(ses)
	return nfs4.OK
}

// BindConn is BIND_CONN_TO_SESSION, RFC 8881 section 18.34. want is Fore, Back, or
// both, which is also for the two that leave it to the server. A session without Callback
// has no back channel.
func (s *State) BindConn(id SessionID, conn Conn, want Direction) (got Direction, client uint64, e nfs4.Status) {
	s.mu.Lock()
	defer s.unlock()
	ses := s.sessions.byID[id]
	if ses == nil {
		return 0, 0, nfs4.ErrBadSession
	}
	if ses.callback == nil {
		want &^= Back
	}
	if want&(Fore|Back) == 0 {
		return 0, 0, nfs4.ErrInval
	}
	ses.backChannel = ses.backChannel || want&Back != 0
	s.sessions.bind(ses, conn, want)
	return want, ses.client.id, nfs4.OK
}

// ConnClosed must be called for each connection that was ever passed in, after its
// last request. Not checked: finish holds mu.
//
// +checklocksignore
func (s *State) ConnClosed(conn Conn) {
	s.finish(func() bool { return s.sessions.unbindAll(conn) })
}

// CallbackFailed takes a connection out of the back channel: the client is told by
// its next SEQUENCE, and binds another.
func (s *State) CallbackFailed(id SessionID, conn Conn) {
	s.mu.Lock()
	defer s.unlock()
	ses := s.sessions.byID[id]
	if ses == nil {
		return
	}
	if i := ses.findConn(conn); i >= 0 && ses.conns[i].dir&Back != 0 {
		ses.conns[i].dir &^= Back
		ses.backConns--
	}
}

// CanCallBack reports whether there is a way to call a client back, and whether there is
// such a client.
func (s *State) CanCallBack(clientID uint64) (can, known bool) {
	s.mu.Lock()
	defer s.unlock()
	c := s.sessions.clients[clientID]
	return c != nil && c.hasCallback(), c != nil
}

// CallbackPaths returns the ways to call a client back; none if the client is gone,
// or has no connection for it.
func (s *State) CallbackPaths(clientID uint64) []CallbackPath {
	s.mu.Lock()
	defer s.unlock()
	c := s.sessions.clients[clientID]
	if c == nil {
		return nil
	}
	var paths []CallbackPath
	for _, ses := range c.sessions {
		if ses.backConns == 0 {
			continue
		}
		p := CallbackPath{Session: ses.id, Back: ses.back, Callback: ses.callback}
		for i := len(ses.conns) - 1; i >= 0; i-- {
			if ses.conns[i].dir&Back != 0 {
				p.Conns = append(p.Conns, ses.conns[i].conn)
			}
		}
		paths = append(paths, p)
	}
	return paths
}
