package state

import (
	"slices"
	"unsafe"
)

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
	at   int // index in State.conns[conn]
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
		if e := s.checkChannels(&a); e != OK {
			return s.keepCreated(c, &a, CreateSessionResult{}, e)
		}
		// A client that starts again makes room for itself.
		if old := s.owners[c.owner].confirmed; old != nil && old != c {
			if e := s.dismiss(old, ClientReturned); e != OK {
				return CreateSessionResult{}, e
			}
			returned = true
			continue
		}
		if len(c.sessions) > 0 {
			if len(c.sessions) >= s.cfg.Limits.Sessions || !s.roomForSession(c) && !s.makeRoomForSession(c) {
				return s.keepCreated(c, &a, CreateSessionResult{}, ErrNoSpc)
			}
		}
		if !c.confirmed {
			s.confirm(c)
			if !returned { // else dismiss has told
				s.event(c.event(ClientCame))
			}
		}
		s.renewed(c, s.cfg.Now())
		fore, back := s.negotiate(&a)
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

// checkChannels says whether a session of what a client asks for is of any use.
func (s *State) checkChannels(a *CreateSessionArgs) Error {
	least := s.cfg.Limits.MinMessageSize
	if a.Fore.MaxRequest < least || a.Fore.MaxResponse < least || a.Fore.MaxOps == 0 {
		return ErrTooSmall
	}
	// CB_SEQUENCE and one more. A session without a back channel may get one later.
	if a.Back.MaxRequest < least || a.Back.MaxResponse < least || a.Back.MaxOps < 2 {
		return ErrTooSmall
	}
	return OK
}

// slotBytes is what a slot has beside its reply.
const slotBytes = int(unsafe.Sizeof(Slot{}))

// leastOf is the memory of a session that has the least.
func (s *State) leastOf(ses *session) int {
	return slotBytes + int(min(ses.fore.MaxResponseCached, s.cfg.Limits.LeastReply))
}

// negotiate returns the channels that the server agrees to. Linux gives up if a size
// is more than it asked for, or fore.MaxOps less.
//
// What is agreed is reserved, so that every reply that should be cached can be. Every session that there
// may be has one slot; what is left after that is for more and larger ones (RFC 8881 section 18.36.3 lets
// the server say how many and how large), and the less is left the less one session gets of it.
func (s *State) negotiate(a *CreateSessionArgs) (fore, back Channel) {
	l := &s.cfg.Limits
	fore, back = a.Fore, a.Back
	fore.MaxRequest = min(fore.MaxRequest, l.Request)
	fore.MaxResponse = min(fore.MaxResponse, l.Response)
	fore.MaxOps = min(fore.MaxOps, l.Ops)
	all := max(0, l.ReplyBytes-s.leastOfAll())
	left := max(0, all-(s.replies-s.least))
	reply := l.CachedReply
	if left < all*3/4 {
		reply = min(reply, l.LeastReply)
	}
	fore.MaxResponseCached = min(fore.MaxResponseCached, fore.MaxResponse, reply)
	more := left / 256 / (slotBytes + int(fore.MaxResponseCached))
	if more == 0 { // the one that it has anyway is a small one
		fore.MaxResponseCached = min(fore.MaxResponseCached, l.LeastReply)
	}
	fore.MaxSlots = max(1, min(fore.MaxSlots, uint32(l.Slots), uint32(1+more)))
	return fore, back
}

// leastOfAll is the memory of all sessions that there may be, if each has the least.
func (s *State) leastOfAll() int {
	l := &s.cfg.Limits
	return (l.Clients + l.MoreSessions) * (slotBytes + int(l.LeastReply))
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
	s.keepSession(ses)
	if a.Conn != nil {
		dir := Fore
		if a.BackChannel {
			dir |= Back
		}
		s.bind(ses, a.Conn, dir)
	}
	return ses
}

// keepSession puts a session into the tables.
func (s *State) keepSession(ses *session) {
	s.sessions[ses.id] = ses
	s.replies += ses.reserved()
	s.least += s.leastOf(ses)
	c := ses.client
	if c.sessions = append(c.sessions, ses); len(c.sessions) > 1 {
		s.use(c, usage{more: 1})
	}
}

// reserved is how many bytes the slots have, with the replies that they may cache.
func (ses *session) reserved() int {
	return len(ses.slots) * (slotBytes + int(ses.fore.MaxResponseCached))
}

func (s *State) removeSession(ses *session) {
	ses.gone = true
	delete(s.sessions, ses.id)
	s.replies -= ses.reserved()
	s.least -= s.leastOf(ses)
	for len(ses.conns) > 0 {
		s.unbind(ses, len(ses.conns)-1)
	}
	c := ses.client
	s.notSilent(c) // its place in there may be of how many it has; the next tick puts it back
	c.sessions = slices.DeleteFunc(c.sessions, func(o *session) bool { return o == ses })
	if len(c.sessions) > 0 {
		s.use(c, usage{more: -1})
	}
	ses.last = nil
	s.steps++
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
	ses.conns = append(ses.conns, boundConn{conn, dir, len(s.conns[conn])})
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
	s.steps++
	list := s.conns[b.conn]
	end := len(list) - 1
	if end == 0 {
		delete(s.conns, b.conn)
		return
	}
	if last := list[end]; last != ses {
		list[b.at] = last
		last.conns[last.findConn(b.conn)].at = b.at
	}
	list[end] = nil
	s.conns[b.conn] = list[:end]
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
	s.finish(func() bool {
		for began := s.steps; s.steps-began < stepWork; {
			list := s.conns[conn]
			if len(list) == 0 {
				return false
			}
			last := list[len(list)-1]
			s.unbind(last, last.findConn(conn))
		}
		return true
	})
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
