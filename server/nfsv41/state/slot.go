package state

// Slot is a slot of a session's fore channel, RFC 8881 section 2.10.6.1. Who has one
// from Sequence must call Done. It is guarded by State.mu, but for session.
type Slot struct {
	session *session
	seq     uint32 // of the last request
	seqid   uint32 // which opened then had
	opened  uint64 // number of the open that the last request has opened, or 0
	digest  uint64 // of that request
	reply   []byte // its memory is used again
	busy    bool   // that request is being processed
	cached  bool   // reply is that request's
}

// Client returns whose slot it is.
func (t *Slot) Client() *Client { return t.session.client }

// SessionID returns the session that the slot is of.
func (t *Slot) SessionID() SessionID { return t.session.id }

// Fore returns the limits of the session's requests and replies. They never change.
func (t *Slot) Fore() *Channel { return &t.session.fore }

// Sequence is SEQUENCE, RFC 8881 section 18.46. Whatever it returns but a Slot leaves
// the slot as it was.
func (s *State) Sequence(a SequenceArgs) (r SequenceResult, e Error) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.unlock()
	ses := s.sessions[a.Session]
	if ses == nil {
		return r, ErrBadSession
	}
	c := ses.client
	if c.leaving {
		return r, ErrDelay
	}
	if uint64(a.Slot) >= uint64(len(ses.slots)) {
		return r, ErrBadSlot
	}
	if uint64(a.HighestSlot) >= uint64(len(ses.slots)) {
		return r, ErrBadHighSlot
	}
	t := &ses.slots[a.Slot]
	r.HighestSlot = uint32(len(ses.slots) - 1)
	r.TargetHighestSlot = r.HighestSlot
	switch {
	case a.Seq == t.seq && t.busy:
		// The first one answers. The digest is not compared yet: Linux asks with a
		// SEQUENCE alone what became of a call that was interrupted, and after
		// SEQ_FALSE_RETRY it would go on with the next sequence.
		return r, ErrDelay
	case a.Seq == t.seq && t.seq == 0 && t.digest == 0:
		return r, ErrSeqMisordered // there was no request; the sequence wraps around to 0 after 2^32
	case a.Seq == t.seq:
		if a.Digest != t.digest {
			return r, ErrSeqFalseRetry
		}
		s.renew(ses, a.Conn, &r)
		s.renewed(c, now)
		if !t.cached {
			return r, ErrRetryUncachedRep
		}
		r.Reply = append(make([]byte, 0, len(t.reply)), t.reply...)
		return r, OK
	case a.Seq != t.seq+1 || t.busy:
		return r, ErrSeqMisordered
	case a.Size > ses.fore.MaxRequest:
		return r, ErrReqTooBig
	case a.Ops > ses.fore.MaxOps:
		return r, ErrTooManyOps
	case a.Reply > ses.fore.MaxResponse:
		return r, ErrRepTooBig
	case a.Cache && a.Reply > ses.fore.MaxResponseCached:
		return r, ErrRepTooBigToCache
	}
	if t.opened != 0 {
		s.answered(t.opened, t.seqid)
		t.opened = 0
	}
	t.seq = a.Seq
	t.digest = a.Digest
	t.busy = true
	t.cached = false
	ses.busy++
	c.busy++
	s.renewed(c, now)
	s.renew(ses, a.Conn, &r)
	r.Slot = t
	return r, OK
}

// renew notes the connection of a request, which binds it to the fore channel (RFC
// 8881 section 2.10.3.1), and tells the client what it has to know.
func (s *State) renew(ses *session, conn Conn, r *SequenceResult) {
	if conn != nil && conn != ses.last {
		if ses.findConn(conn) < 0 {
			s.bind(ses, conn, Fore)
		}
		ses.last = conn
	}
	c := ses.client
	if ses.backChannel && ses.backConns == 0 {
		r.Status |= StatusCallbackPathDownSession
		if !c.hasCallback() {
			r.Status |= StatusCallbackPathDown
		}
	}
}

func (c *Client) hasCallback() bool {
	for _, ses := range c.sessions {
		if ses.backConns > 0 {
			return true
		}
	}
	return false
}

// Done ends the request of a slot. With cache, its reply is kept for a
// retransmission; a reply that is larger than the session's MaxResponseCached is
// not. The caller keeps the memory of reply.
func (t *Slot) Done(reply []byte, cache bool) {
	ses := t.session
	s := ses.state
	s.mu.Lock()
	defer s.unlock()
	if !t.busy {
		return
	}
	t.busy = false
	ses.busy--
	ses.client.busy--
	if cache && len(reply) <= int(ses.fore.MaxResponseCached) && !ses.gone {
		t.cached = true
		t.reply = append(t.reply[:0], reply...)
	}
}
