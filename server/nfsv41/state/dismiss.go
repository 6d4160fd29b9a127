package state

import (
	"errors"
	"slices"
	"syscall"

	"github.com/podnas/podnas/nfs/nfs4"
)

// dismissLocked removes the client from the client tracking, and then from here. It lets go of mu
// for the first, so the caller looks up again what it had found. Nothing that the
// client held is free before the client tracking says that it can't reclaim it.
//
// All of the client goes with ClientRevoked, too, one of the two ways of RFC 8881
// section 8.4.3: its next SEQUENCE gets BADSESSION, CREATE_SESSION STALE_CLIENTID, and it
// recovers as after a restart of the server. The other way is to keep its sessions and
// tell it SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED. Linux 6.1 then hangs: it purges its state
// by an EXCHANGE_ID with the verifier of all ones, never sends RECLAIM_COMPLETE, and gets
// GRACE for its OPENs for ever.
//
// +checklocks:s.mu
func (s *State) dismissLocked(c *Client, why EventKind) nfs4.Status {
	if c.gone {
		return nfs4.OK
	}
	if c.leaving || c.changing > 0 {
		return nfs4.ErrDelay
	}
	entries := s.trackedByLocked(c, why)
	if len(entries) > 0 && s.cfg.Tracking != nil {
		c.leaving = true
		s.unlock()
		err := s.cfg.Tracking.Remove(entries...)
		s.mu.Lock()
		c.leaving = false
		if err != nil {
			return nfs4.ErrDelay
		}
	}
	if !ownRestart(why) && s.grace.owners[c.owner] != nil {
		s.grace.forget(c.owner)
		s.grace.logGrace(record{Forgotten: []byte(c.owner)})
	}
	if c.gone { // one that was not confirmed has gone by another way meanwhile
		return nfs4.OK
	}
	c.recorded = false
	s.event(c.event(why))
	if s.dropLocked(c); s.after.unfinished() { // the caller may want what it held
		s.unlock()
		s.mu.Lock()
	}
	return nfs4.OK
}

// trackedByLocked are the entries that must go before c does: its own, and if it does
// not go by its own will, those by which its owner may reclaim in this grace period.
// Its own is the last: if the disk fails before, the client is still in the client tracking.
//
// +checklocks:s.mu
func (s *State) trackedByLocked(c *Client, why EventKind) []TrackedClient {
	var entries []TrackedClient
	if !ownRestart(why) {
		entries = append(entries, s.grace.entries(c.owner)...)
	}
	if c.recorded {
		entries = append(entries, c.tracked())
	}
	return entries
}

// ownRestart reports whether the client's owner is still there.
func ownRestart(why EventKind) bool { return why == ClientReturned || why == ClientLeft }

// dropLocked removes all of a client. What it held is void at once, and goes in steps.
//
// +checklocks:s.mu
func (s *State) dropLocked(c *Client) {
	s.sessions.logGone(c)
	s.steps++
	c.gone = true
	s.sessions.notSilent(c)
	s.sessions.removeClient(c)
	rec := s.sessions.owners[c.owner]
	switch c {
	case rec.confirmed:
		rec.confirmed = nil
		rec.earlier = append(rec.earlier, formerVerifier{c.verifier, c.address})
		if len(rec.earlier) > maxEarlier {
			rec.earlier = slices.Delete(rec.earlier, 0, 1)
		}
	case rec.unconfirmed:
		rec.unconfirmed = nil
	}
	if rec.confirmed == nil && rec.unconfirmed == nil {
		delete(s.sessions.owners, c.owner)
	}
	for len(c.sessions) > 0 { // at most Limits.Sessions, of at most Limits.Conns
		s.sessions.removeSession(c.sessions[len(c.sessions)-1])
	}
	if c.opens != nil {
		held := &s.locks
		s.begin(func() bool { return held.releaseAll(c) })
	}
}

// recordLocked writes a client to the client tracking. It lets go of mu meanwhile.
//
// +checklocks:s.mu
func (s *State) recordLocked(c *Client) nfs4.Status {
	if s.cfg.Tracking != nil {
		c.changing++
		entry := c.tracked()
		s.unlock()
		err := s.cfg.Tracking.Add(entry)
		s.mu.Lock()
		c.changing--
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			return nfs4.ErrNoSpc
		}
		if err != nil {
			return nfs4.ErrServerFault
		}
	}
	c.recorded = true
	s.sessions.logClient(c)
	return nfs4.OK
}

// makeRoomLocked removes a client, when there are too many for one more from an address: of those that
// did not come back after EXCHANGE_ID the oldest, its own if the address has much, or else one whose lease
// is over, at first of those that hold nothing.
//
// +checklocks:s.mu
func (s *State) makeRoomLocked(home *address) nfs4.Status {
	waiting := &s.sessions.unconfirmed
	if home.clients > s.cfg.Limits.Clients/8/(len(s.sessions.addresses)+1) {
		waiting = &home.unconfirmed
	}
	if front := waiting.Front(); front != nil {
		s.dropLocked(front.Value.(*Client)) //nolint:forcetypeassert // addClient has put it there
		return nfs4.OK
	}
	for _, kind := range [...]int{silentIdle, silentHolding} {
		if c := s.sessions.nextSilent(kind, nil); c != nil {
			return s.dismissLocked(c, ClientExpired)
		}
	}
	return nfs4.ErrDelay
}

// makeRoomForLocked dismisses a client whose lease is over, for what another wants to have more, if its own limits
// let it. again means that mu was let go.
//
// +checklocks:s.mu
func (s *State) makeRoomForLocked(c *Client, more usage) (again bool, e nfs4.Status) {
	l := &s.cfg.Limits
	if c.usage.opens+more.opens > l.Opens || c.usage.locks+more.locks > l.Locks || c.usage.ownerBytes+more.ownerBytes > l.OwnerBytes {
		return false, nfs4.OK
	}
	other := s.sessions.nextSilent(silentHolding, c)
	if other == nil {
		return false, nfs4.OK
	}
	e = s.dismissLocked(other, ClientExpired)
	return e == nfs4.OK, e
}
