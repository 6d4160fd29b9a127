package state

import "time"

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
func (s *State) renewed(c *Client, now time.Time) {
	s.notSilent(c)
	c.seen, c.returning = now, false
}

// Expire does what is due: it is to be called each second, or, after it has returned true, when there is
// something in Due, and in a third of the lease at the latest.
func (s *State) Expire() (rest bool) {
	now := s.cfg.Now()
	s.mu.Lock()
	s.stirred = false
	s.tryEndGrace()
	rest = !s.grace.active
	s.unlock()
	inSteps(s, func() []*Client { return s.list }, func(c *Client) {
		s.expire(c, now)
		rest = rest && c.confirmed && c.settles.IsZero() && c.busy == 0
	})
	s.expireWaiters(now)
	s.mu.Lock()
	defer s.unlock()
	s.noted = s.noted || len(s.records) > 0
	s.resting = rest && len(s.waiting) == 0 && !s.stirred // between the steps somebody may have come that they did not see
	return s.resting
}

// expire does what is due for a client.
func (s *State) expire(c *Client, now time.Time) {
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
		_ = s.dismiss(c, ClientExpired) // or the next time
	default:
		s.noticeSilent(c)
	}
}

// Due gets something when Expire is to be called each second again.
func (s *State) Due() <-chan struct{} { return s.due }

// soon is called for all that Expire does in time, but for the end of leases: nobody notices when
// that comes a few seconds late. The caller holds mu.
func (s *State) soon() {
	s.stirred = true
	if !s.resting {
		return
	}
	s.resting = false
	select {
	case s.due <- struct{}{}:
	default: // it is told already
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
