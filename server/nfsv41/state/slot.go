package state

import "github.com/podnas/podnas/nfs/nfs4"

// Sequence is SEQUENCE, RFC 8881 section 18.46. Whatever it returns but a Slot leaves
// the slot as it was.
func (s *State) Sequence(a SequenceArgs) (r SequenceResult, e nfs4.Status) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.unlock()
	ses := s.sessions.byID[a.Session]
	if ses == nil {
		return r, nfs4.ErrBadSession
	}
	c := ses.client
	if c.leaving {
		return r, nfs4.ErrDelay
	}
	if uint64(a.Slot) >= uint64(len(ses.slots)) {
		return r, nfs4.ErrBadSlot
	}
	if uint64(a.HighestSlot) >= uint64(len(ses.slots)) {
		return r, nfs4.ErrBadHighSlot
	}
	t := &ses.slots[a.Slot]
	r.HighestSlot = uint32(len(ses.slots) - 1)
	r.TargetHighestSlot = r.HighestSlot
	switch {
	case a.Seq == t.seq && t.busy:
		// The first one answers. The digest is not compared yet: Linux asks with a
		// SEQUENCE alone what became of a call that was interrupted, and after
		// SEQ_FALSE_RETRY it would go on with the next sequence.
		return r, nfs4.ErrDelay
	case a.Seq == t.seq && t.seq == 0 && t.digest == 0:
		return r, nfs4.ErrSeqMisordered // there was no request; the sequence wraps around to 0 after 2^32
	case a.Seq == t.seq:
		if a.Digest != t.digest {
			return r, nfs4.ErrSeqFalseRetry
		}
		s.sessions.renew(ses, a.Conn, &r)
		s.sessions.renewed(c, now)
		if !t.cached {
			return r, nfs4.ErrRetryUncachedRep
		}
		r.Reply = append(make([]byte, 0, len(t.reply)), t.reply...)
		return r, nfs4.OK
	case a.Seq != t.seq+1 || t.busy:
		return r, nfs4.ErrSeqMisordered
	case a.Size > ses.fore.MaxRequest:
		return r, nfs4.ErrReqTooBig
	case a.Ops > ses.fore.MaxOps:
		return r, nfs4.ErrTooManyOps
	case a.Reply > ses.fore.MaxResponse:
		return r, nfs4.ErrRepTooBig
	case a.Cache && a.Reply > ses.fore.MaxResponseCached:
		return r, nfs4.ErrRepTooBigToCache
	}
	if t.opened != 0 {
		s.opens.answered(t.opened, t.seqid)
		t.opened = 0
	}
	t.seq = a.Seq
	t.digest = a.Digest
	t.busy = true
	t.cached = false
	ses.busy++
	c.busy++
	s.sessions.renewed(c, now)
	s.sessions.renew(ses, a.Conn, &r)
	r.Slot = t
	return r, nfs4.OK
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
