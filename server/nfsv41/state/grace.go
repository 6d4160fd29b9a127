package state

import "time"

// grace is the time after a crash in which clients reclaim what they had, RFC 8881
// section 8.4.2. The roster that it begins with stays on the disk until it ends,
// beside the entries of those who reclaim, so that a crash within it loses nothing.
type grace struct {
	active  bool
	ending  bool // its entries are being removed
	until   time.Time
	owners  map[string]*awaited
	missing int // of owners: not done
}

type awaited struct {
	entries []RosterEntry
	done    bool // its client has said RECLAIM_COMPLETE
}

// BeginGrace begins a grace period with the roster that was found on the disk. It is
// called once, before any client and StartLog. Without a roster there is no grace period.
func (s *State) BeginGrace(roster []RosterEntry) {
	if len(roster) == 0 {
		return
	}
	s.mu.Lock()
	defer s.unlock()
	g := grace{
		active: true, until: s.cfg.Now().Add(s.cfg.Lease),
		owners: make(map[string]*awaited, len(roster)),
	}
	for _, e := range roster {
		w := g.owners[e.Owner]
		if w == nil {
			w = &awaited{}
			g.owners[e.Owner] = w
			g.missing++
		}
		w.entries = append(w.entries, e)
	}
	s.grace = g
	s.graced.Store(true)
}

// InGrace reports whether the grace period lasts.
func (s *State) InGrace() bool { return s.graced.Load() }

// ReclaimComplete is RECLAIM_COMPLETE, RFC 8881 section 18.51. oneFS is
// rca_one_fs: it is about a file system that has moved, and ends nothing.
func (s *State) ReclaimComplete(c *Client, oneFS bool) Error {
	s.mu.Lock()
	defer s.unlock()
	if e := c.usable(); e != OK {
		return e
	}
	if oneFS {
		return OK
	}
	if c.complete {
		return ErrCompleteAlready
	}
	c.complete = true
	s.logClient(c)
	if s.grace.reclaimed(c.owner) {
		s.logGrace(record{Reclaimed: []byte(c.owner)})
		s.tryEndGrace()
	}
	return OK
}

// mayGrant says whether the client may get an open or a lock now.
func (s *State) mayGrant(c *Client, reclaim bool) Error {
	g := &s.grace
	if reclaim {
		w := g.owners[c.owner]
		if !g.active || g.ending || c.complete || w == nil || w.done {
			return ErrNoGrace
		}
		return OK
	}
	// RFC 8881 section 18.51.3: before its own RECLAIM_COMPLETE a client gets nothing
	// new, though the grace period has long been over.
	if g.active || !c.complete {
		return ErrGrace
	}
	return OK
}

// tryEndGrace ends the grace period if everybody has reclaimed or its time is over.
// It lets go of mu while the disk forgets who did not: only then may others get what
// those had.
func (s *State) tryEndGrace() {
	g := &s.grace
	if !g.active || g.ending || g.missing > 0 && s.cfg.Now().Before(g.until) {
		return
	}
	g.ending = true
	var entries []RosterEntry
	for _, w := range g.owners {
		entries = append(entries, w.entries...)
	}
	if s.cfg.Roster != nil && len(entries) > 0 {
		s.unlock()
		err := s.cfg.Roster.Remove(entries...)
		s.mu.Lock()
		if err != nil {
			g.ending = false // Expire tries again
			return
		}
	}
	if g.missing == 0 {
		s.event(Event{Kind: GraceEnded})
	}
	for owner, w := range g.owners {
		if !w.done {
			s.event(Event{Kind: GraceEnded, Owner: owner})
		}
	}
	s.grace = grace{}
	s.graced.Store(false)
	s.logGrace(record{GraceOver: true})
}

// entries returns by which entries an owner may still reclaim.
func (g *grace) entries(owner string) []RosterEntry {
	if w := g.owners[owner]; w != nil {
		return w.entries
	}
	return nil
}

// reclaimed notes that an owner has said RECLAIM_COMPLETE, and reports whether it was awaited.
func (g *grace) reclaimed(owner string) bool {
	w := g.owners[owner]
	if w == nil || w.done {
		return false
	}
	w.done = true
	g.missing--
	return true
}

// forget takes an owner off the list of those who may reclaim. Its entries are no
// longer on the disk.
func (g *grace) forget(owner string) {
	if w := g.owners[owner]; w != nil {
		if !w.done {
			g.missing--
		}
		delete(g.owners, owner)
	}
}
