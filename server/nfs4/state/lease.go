package state

import (
	"maps"
	"slices"
	"time"
)

// returnLeases is how many leases a client has to return to the next process. A connection that it
// begins before its node knows the way to that may go nowhere, and Linux begins another after a
// lease without an answer. That and the pause before would be longer than one lease. A node that
// ended meanwhile keeps its locks for that time.
const returnLeases = 3

// leaseOver reports whether the client was silent for longer than the lease. It
// keeps what it has until somebody else wants it.
func (s *State) leaseOver(c *Client) bool {
	lease := s.cfg.Lease
	if c.returning {
		lease *= returnLeases
	}
	return c.busy == 0 && s.cfg.Now().Sub(c.seen) > lease
}

// renewed renews the client's lease.
func (c *Client) renewed(now time.Time) { c.seen, c.returning = now, false }

// Expire does what is due: it is to be called each second, or, after it has returned true, when there is
// something in Due, and in a third of the lease at the latest.
func (s *State) Expire() (rest bool) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.unlock()
	s.tryEndGrace()
	var expired []*Client
	rest = !s.grace.active
	for _, c := range s.clients {
		rest = rest && c.confirmed && c.settles.IsZero() && c.busy == 0
		if !c.settles.IsZero() && now.After(c.settles) {
			s.settle(c)
		}
		silent := now.Sub(c.seen)
		switch {
		case c.busy > 0:
			c.seen = now // a request that takes longer than the lease renews it
		case !c.confirmed && silent > s.cfg.Lease:
			s.drop(c)
		case silent > s.cfg.Courtesy:
			expired = append(expired, c)
		}
	}
	for _, c := range expired {
		if s.cfg.Now().Sub(c.seen) > s.cfg.Courtesy && c.busy == 0 { // dismiss lets go of mu
			_ = s.dismiss(c, ClientExpired) // or the next time
		}
	}
	s.expireWaiters(now)
	s.noted = s.noted || len(s.records) > 0
	s.resting = rest && len(s.waiting) == 0
	return s.resting
}

// Due gets something when Expire is to be called each second again.
func (s *State) Due() <-chan struct{} { return s.due }

// soon is called for all that Expire does in time, but for the end of leases: nobody notices when
// that comes a few seconds late. The caller holds mu.
func (s *State) soon() {
	if !s.resting {
		return
	}
	s.resting = false
	select {
	case s.due <- struct{}{}:
	default: // it is told already
	}
}

// makeRoom removes a client that holds nothing, when there are too many: of those that
// did not come back after EXCHANGE_ID the oldest, or else one whose lease is over. A
// client that holds something stays.
func (s *State) makeRoom() Error {
	for len(s.unconfirmed) > 0 {
		c := s.unconfirmed[0]
		s.unconfirmed = s.unconfirmed[1:]
		if !c.confirmed && !c.gone {
			s.drop(c)
			return OK
		}
	}
	if idle := s.idlest(nil); idle != nil {
		return s.dismiss(idle, ClientExpired)
	}
	return ErrDelay
}

// addUnconfirmed notes a client for makeRoom.
func (s *State) addUnconfirmed(c *Client) {
	s.soon()
	if len(s.unconfirmed) >= 2*s.cfg.Limits.Clients {
		s.unconfirmed = slices.DeleteFunc(s.unconfirmed, func(c *Client) bool { return c.confirmed || c.gone })
	}
	s.unconfirmed = append(s.unconfirmed, c)
}

// idlest returns the client, but this one, that was silent for longest, if its lease
// is over and it holds nothing. If there is none it does not look again for a
// second: a flood of clients must not make all others wait for that.
func (s *State) idlest(not *Client) (idle *Client) {
	now := s.cfg.Now()
	if now.Before(s.noneIdle) {
		return nil
	}
	for _, c := range s.clients {
		if c != not && c.confirmed && !s.hasState(c) && s.leaseOver(c) && (idle == nil || c.seen.Before(idle.seen)) {
			idle = c
		}
	}
	if idle == nil {
		s.noneIdle = now.Add(time.Second)
	}
	return idle
}

// expireWaiters forgets who has not asked again for long, and takes locks from
// clients whose lease is over if somebody waits for them.
func (s *State) expireWaiters(now time.Time) {
	if len(s.waiting) == 0 {
		return
	}
	for _, f := range slices.Collect(maps.Keys(s.waiting)) { // dismiss lets go of mu
		s.dropWaiters(f, func(w *waiter) bool { return s.expired(w, now) })
		for _, w := range slices.Clone(f.waiters) {
			s.takeFromSilent(f, w)
		}
		s.wake(f)
	}
}

// takeFromSilent dismisses clients whose lease is over and that have a lock that w
// waits for, as long as w does: dismiss lets go of mu, and w can be of such a client.
func (s *State) takeFromSilent(f *file, w *waiter) {
	for slices.Contains(f.waiters, w) {
		other, silent := s.conflict(f, w.open.client, w.owner, w.lockRange)
		if !silent || s.dismiss(other.open.client, ClientRevoked) != OK {
			return
		}
	}
}

// Stop releases what clients hold, when the server ends. Nothing may be called afterwards.
func (s *State) Stop() {
	s.mu.Lock()
	defer s.unlock()
	for _, o := range s.opens {
		for _, h := range o.held {
			s.release(h)
		}
	}
	clear(s.opens)
}
