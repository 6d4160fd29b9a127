package state

import (
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
)

// graceLeases is how many leases a grace period lasts, of the longest that somebody was told whom it waits for. RFC 8881
// section 8.4.2.1 wants one, so that whoever is well notices the restart when it renews its lease. Linux renews it after two
// thirds of it; if its connection goes nowhere then, as after the death of a node, Linux begins another one a lease later.
const graceLeases = 2

// BeginGrace begins a grace period with the client tracking that was found on the disk. It is
// called once, before any client and StartLog. It returns how long it lasts at most. Without client tracking there is none.
func (s *State) BeginGrace(tracking []TrackedClient) (most time.Duration) {
	if len(tracking) == 0 {
		return 0
	}
	s.mu.Lock()
	defer s.unlock()
	g := &s.grace
	longest := s.cfg.Lease
	for i := range tracking {
		longest = max(longest, min(tracking[i].Lease, LongestLease))
	}
	g.start(graceLeases * longest)
	for _, e := range tracking {
		w := g.owners[e.Owner]
		if w == nil {
			w = g.await(e.Owner)
		}
		w.entries = append(w.entries, e)
	}
	s.graced.Store(true)
	return graceLeases * longest
}

// InGrace reports whether the grace period lasts.
func (s *State) InGrace() bool { return s.graced.Load() }

// Awaited returns the entries of the client tracking of all for whom the grace period waits, and who have not come yet.
func (s *State) Awaited() (entries []TrackedClient) {
	s.mu.Lock()
	defer s.unlock()
	for owner, w := range s.grace.owners {
		if !w.done && !w.excused && !s.sessions.hasCome(owner) {
			entries = append(entries, w.entries...)
		}
	}
	return entries
}

// Excuse has the grace period not wait for owners, whose nodes can't come. Who has come is waited for all the same, and
// each may reclaim until the grace period ends.
func (s *State) Excuse(owners ...string) {
	s.mu.Lock()
	defer s.unlock()
	for _, owner := range owners {
		if !s.sessions.hasCome(owner) {
			s.grace.excuse(owner)
		}
	}
	s.tryEndGraceLocked()
}

// ReclaimComplete is RECLAIM_COMPLETE, RFC 8881 section 18.51. oneFS is
// rca_one_fs: it is about a file system that has moved, and ends nothing.
func (s *State) ReclaimComplete(c *Client, oneFS bool) nfs4.Status {
	s.mu.Lock()
	defer s.unlock()
	if e := c.usable(); e != nfs4.OK {
		return e
	}
	if oneFS {
		return nfs4.OK
	}
	if c.complete {
		return nfs4.ErrCompleteAlready
	}
	c.complete = true
	s.sessions.logClient(c)
	if s.grace.reclaimed(c.owner) {
		s.grace.logGrace(record{Reclaimed: []byte(c.owner)})
		s.tryEndGraceLocked()
	}
	return nfs4.OK
}

// tryEndGraceLocked ends the grace period if everybody has reclaimed or its time is over.
// It lets go of mu while the disk forgets who did not: only then may others get what
// those had.
//
// +checklocks:s.mu
func (s *State) tryEndGraceLocked() {
	g := &s.grace
	if !g.active || g.ending || len(g.missing) > 0 && !g.late() {
		return
	}
	g.ending = true
	var entries []TrackedClient
	for _, w := range g.owners {
		entries = append(entries, w.entries...)
	}
	if s.cfg.Tracking != nil && len(entries) > 0 {
		s.unlock()
		err := s.cfg.Tracking.Remove(entries...)
		s.mu.Lock()
		if err != nil {
			g.ending = false // Expire tries again
			return
		}
	}
	all := true
	for owner, w := range g.owners {
		if w.done {
			continue
		}
		all = false
		kind := GraceEnded
		if w.excused {
			kind = GraceExcused
		}
		s.event(Event{Kind: kind, Owner: owner})
	}
	if all {
		s.event(Event{Kind: GraceEnded})
	}
	g.over()
	s.graced.Store(false)
	s.grace.logGrace(record{GraceOver: true})
}
