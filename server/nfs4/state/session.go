package state

import "slices"

// session is guarded by State.mu. Its first group never changes.
type session struct {
	state    *State
	id       SessionID
	client   *Client
	fore     Channel
	back     Channel
	callback any
	slots    []Slot

	gone        bool
	busy        int  // slots in use
	backChannel bool // the client wants one
	last        Conn // of the last request
	conns       []boundConn
	backConns   int // of conns
}

type boundConn struct {
	conn Conn
	dir  Direction
}

// createReply is the one slot of a client's CREATE_SESSIONs.
type createReply struct {
	result     CreateSessionResult
	err        Error
	fore, back Channel // that were asked for; not saved
}

// triesOther reports whether the request asks for something else after a failure, by the same
// sequence: there are clients that move theirs only when they have a session.
func (r *createReply) triesOther(a *CreateSessionArgs) bool {
	return r.err != OK && (r.fore != a.Fore || r.back != a.Back)
}

// CreateSession is CREATE_SESSION, RFC 8881 section 18.36: look up, sequence,
// confirmation, creation.
func (s *State) CreateSession(a CreateSessionArgs) (CreateSessionResult, Error) {
	s.mu.Lock()
	defer s.unlock()
	returned := false // the incarnation before is gone
	for {
		c := s.clients[a.ClientID]
		switch {
		case c == nil:
			return CreateSessionResult{}, ErrStaleClientID
		case c.leaving:
			return CreateSessionResult{}, ErrDelay
		case !c.confirmed && c.principal != a.Principal:
			// Not cached: a stranger must not move the client's sequence. When the client ID is
			// confirmed, anyone of the client's may make sessions.
			return CreateSessionResult{}, ErrClidInUse
		case a.Seq == c.createSeq && c.uncertain: // as if it had not come before
		case a.Seq == c.createSeq && c.created != nil && !c.created.triesOther(&a):
			return c.created.result, c.created.err
		case a.Seq == c.createSeq && c.created != nil: // as if that had not come before
		case a.Seq != c.createSeq+1:
			return CreateSessionResult{}, ErrSeqMisordered
		}
		fore, back, e := s.negotiate(c, &a)
		if e == ErrNoSpc && len(c.sessions) < s.cfg.Limits.Sessions {
			if idle := s.idlest(c); idle != nil {
				if e := s.dismiss(idle, ClientExpired); e != OK {
					return CreateSessionResult{}, e
				}
				continue
			}
		}
		if e != OK {
			return s.keepCreated(c, &a, CreateSessionResult{}, e)
		}
		if old := s.owners[c.owner].confirmed; old != nil && old != c {
			if e := s.dismiss(old, ClientReturned); e != OK {
				return CreateSessionResult{}, e
			}
			returned = true
			continue
		}
		if !c.confirmed {
			s.confirm(c)
			if !returned { // else dismiss has told
				s.event(c.event(ClientCame))
			}
		}
		c.renewed(s.cfg.Now())
		ses := s.addSession(c, fore, back, &a)
		return s.keepCreated(c, &a, CreateSessionResult{
			ID: ses.id, Seq: a.Seq, Fore: fore, Back: back, BackChannel: ses.backChannel,
		}, OK)
	}
}

// keepCreated moves the sequence: failures are cached like successes.
func (s *State) keepCreated(c *Client, a *CreateSessionArgs, r CreateSessionResult, e Error) (CreateSessionResult, Error) {
	if c.uncertain {
		c.settles = s.cfg.Now().Add(settleFor)
		s.soon()
	}
	c.createSeq, c.uncertain = a.Seq, false
	c.created = &createReply{result: r, err: e, fore: a.Fore, back: a.Back}
	s.logClient(c)
	return r, e
}

// negotiate returns the channels that the server agrees to. Linux gives up if a size
// is more than it asked for, or fore.MaxOps less.
func (s *State) negotiate(c *Client, a *CreateSessionArgs) (fore, back Channel, e Error) {
	l := &s.cfg.Limits
	fore, back = a.Fore, a.Back
	least := l.MinMessageSize
	if fore.MaxRequest < least || fore.MaxResponse < least || fore.MaxOps == 0 {
		return fore, back, ErrTooSmall
	}
	// CB_SEQUENCE and one more. A session without a back channel may get one later.
	if back.MaxRequest < least || back.MaxResponse < least || back.MaxOps < 2 {
		return fore, back, ErrTooSmall
	}
	if len(c.sessions) >= l.Sessions {
		return fore, back, ErrNoSpc
	}
	fore.MaxRequest = min(fore.MaxRequest, l.Request)
	fore.MaxResponse = min(fore.MaxResponse, l.Response)
	fore.MaxResponseCached = min(fore.MaxResponseCached, fore.MaxResponse, l.CachedReply)
	fore.MaxOps = min(fore.MaxOps, l.Ops)
	fore.MaxSlots = max(1, min(fore.MaxSlots, uint32(l.Slots)))
	if each := int(fore.MaxResponseCached); each > 0 {
		// What is agreed is reserved, so that every reply that should be cached can
		// be. The fuller the memory, the less one session gets of it.
		left := l.ReplyBytes - s.replies
		if left < each {
			return fore, back, ErrNoSpc
		}
		fore.MaxSlots = min(fore.MaxSlots, uint32(max(1, left/64/each)))
	}
	return fore, back, OK
}

func (s *State) addSession(c *Client, fore, back Channel, a *CreateSessionArgs) *session {
	ses := &session{
		state: s, client: c, fore: fore, back: back,
		backChannel: a.BackChannel, callback: a.Callback,
		slots: make([]Slot, fore.MaxSlots),
	}
	for i := range ses.slots {
		ses.slots[i].session = ses
	}
	s.cfg.Random(ses.id[:])
	for s.sessions[ses.id] != nil {
		s.cfg.Random(ses.id[:])
	}
	s.sessions[ses.id] = ses
	s.replies += ses.reserved()
	c.sessions = append(c.sessions, ses)
	if a.Conn != nil {
		dir := Fore
		if a.BackChannel {
			dir |= Back
		}
		s.bind(ses, a.Conn, dir)
	}
	return ses
}

// reserved is how many bytes of replies the slots may cache.
func (ses *session) reserved() int { return len(ses.slots) * int(ses.fore.MaxResponseCached) }

func (s *State) removeSession(ses *session) {
	ses.gone = true
	delete(s.sessions, ses.id)
	s.replies -= ses.reserved()
	for len(ses.conns) > 0 {
		s.unbind(ses, len(ses.conns)-1)
	}
	c := ses.client
	c.sessions = slices.DeleteFunc(c.sessions, func(o *session) bool { return o == ses })
	ses.last = nil
}

// DestroySession is DESTROY_SESSION, RFC 8881 section 18.37. via is the slot of the
// COMPOUND that it is part of, or nil. Without state protection it may come from any principal,
// but it must come by one of the session's connections, if there is any: a client that has
// connected anew may send it first of all.
func (s *State) DestroySession(id SessionID, conn Conn, via *Slot) Error {
	s.mu.Lock()
	defer s.unlock()
	ses := s.sessions[id]
	if ses == nil {
		return ErrBadSession
	}
	if len(ses.conns) > 0 && ses.findConn(conn) < 0 {
		return ErrConnNotBound
	}
	own := 0
	if via != nil && via.session == ses {
		own = 1
	}
	if ses.busy > own {
		return ErrDelay
	}
	s.removeSession(ses)
	return OK
}

// BindConn is BIND_CONN_TO_SESSION, RFC 8881 section 18.34. want is Fore, Back, or
// both, which is also for the two that leave it to the server. A session without Callback
// has no back channel.
func (s *State) BindConn(id SessionID, conn Conn, want Direction) (got Direction, client uint64, e Error) {
	s.mu.Lock()
	defer s.unlock()
	ses := s.sessions[id]
	if ses == nil {
		return 0, 0, ErrBadSession
	}
	if ses.callback == nil {
		want &^= Back
	}
	if want&(Fore|Back) == 0 {
		return 0, 0, ErrInval
	}
	ses.backChannel = ses.backChannel || want&Back != 0
	s.bind(ses, conn, want)
	return want, ses.client.id, OK
}

// bind adds directions to a connection. A session that has too many connections
// forgets its oldest: it is bound anew by the next request on it.
func (s *State) bind(ses *session, conn Conn, dir Direction) {
	if i := ses.findConn(conn); i >= 0 {
		dir |= ses.conns[i].dir
		s.unbind(ses, i)
	} else if len(ses.conns) >= s.cfg.Limits.Conns {
		s.unbind(ses, 0)
	}
	ses.conns = append(ses.conns, boundConn{conn, dir})
	if dir&Back != 0 {
		ses.backConns++
	}
	s.conns[conn] = append(s.conns[conn], ses)
	ses.client.address = conn.Address()
}

func (s *State) unbind(ses *session, i int) {
	b := ses.conns[i]
	ses.conns = slices.Delete(ses.conns, i, i+1)
	if b.dir&Back != 0 {
		ses.backConns--
	}
	if ses.last == b.conn {
		ses.last = nil
	}
	left := slices.DeleteFunc(s.conns[b.conn], func(o *session) bool { return o == ses })
	if len(left) == 0 {
		delete(s.conns, b.conn)
	} else {
		s.conns[b.conn] = left
	}
}

func (ses *session) findConn(conn Conn) int {
	for i := range ses.conns {
		if ses.conns[i].conn == conn {
			return i
		}
	}
	return -1
}

// ConnClosed must be called for each connection that was ever passed in, after its
// last request.
func (s *State) ConnClosed(conn Conn) {
	s.mu.Lock()
	defer s.unlock()
	for {
		list := s.conns[conn]
		if len(list) == 0 {
			return
		}
		s.unbind(list[0], list[0].findConn(conn))
	}
}

// CallbackFailed takes a connection out of the back channel: the client is told by
// its next SEQUENCE, and binds another.
func (s *State) CallbackFailed(id SessionID, conn Conn) {
	s.mu.Lock()
	defer s.unlock()
	ses := s.sessions[id]
	if ses == nil {
		return
	}
	if i := ses.findConn(conn); i >= 0 && ses.conns[i].dir&Back != 0 {
		ses.conns[i].dir &^= Back
		ses.backConns--
	}
}

// Callback is what CreateSession was given.
func (t *Slot) Callback() any { return t.session.callback }

// CanCallBack reports whether there is a way to call a client back, and whether there is
// such a client.
func (s *State) CanCallBack(clientID uint64) (can, known bool) {
	s.mu.Lock()
	defer s.unlock()
	c := s.clients[clientID]
	return c != nil && c.hasCallback(), c != nil
}

// CallbackPaths returns the ways to call a client back; none if the client is gone,
// or has no connection for it.
func (s *State) CallbackPaths(clientID uint64) []CallbackPath {
	s.mu.Lock()
	defer s.unlock()
	c := s.clients[clientID]
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
