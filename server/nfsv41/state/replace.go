package state

import "time"

// A client's owner is a name that anybody can guess, such as a node's host name, and AUTH_SYS proves nothing. So a client of another
// IP address does not take the place of one that may still be there, but gets DELAY (RFC 8881 section 15.2) until that one is silent for a
// lease, or, if the grace period waits for it, until that is over. Linux asks again each second: TestTwoNodesOfOneName in test/vm. A node
// that has started again comes from its address, and takes its place at once.

// refusal is the last client that was refused the name of an owner.
type refusal struct {
	verifier [8]byte
	since    time.Time
}

// mayReplaceLocked reports whether a client that comes from an address may have the name of an owner now.
//
// +checklocks:s.mu
func (s *State) mayReplaceLocked(owner string, verifier [8]byte, from string) bool {
	if w := s.grace.owners[owner]; w != nil && !w.done && !w.isOf(verifier, from) {
		return false
	}
	rec := s.sessions.owners[owner]
	if rec == nil || rec.confirmed == nil {
		return true
	}
	old := rec.confirmed
	if old.verifier == verifier || sameHost(old.address, from) || sameHost(old.came, from) || s.sessions.leaseOver(old) {
		return true
	}
	s.sessions.noteRefused(rec, verifier, from)
	return false
}

// noteRefused tells of two nodes of one name, when the one that has it was heard of since the other one was refused first. It
// does so once in a lease.
func (t *sessions) noteRefused(rec *ownerRecord, verifier [8]byte, from string) {
	old, now := rec.confirmed, t.cfg.Now()
	switch r := rec.refused; {
	case r == nil || r.verifier != verifier:
		rec.refused = &refusal{verifier, now}
	case old.seen.After(r.since):
		r.since = now.Add(old.lease)
		t.event(Event{Kind: OwnerShared, Owner: old.owner, Address: from, Other: old.address})
	}
}

// isOf reports whether a client can be one of those that are awaited: it has not started again since, or is at the same address. Neither
// is known of an entry whose file was damaged.
func (w *awaited) isOf(verifier [8]byte, from string) bool {
	for i := range w.entries {
		e := &w.entries[i]
		if sameHost(e.Address, from) || e.Verifier == verifier && verifier != [8]byte{} {
			return true
		}
	}
	return len(w.entries) == 0
}

// sameHost reports whether two addresses are of one host, as far as both are known.
func sameHost(a, b string) bool { return a == "" || b == "" || host(a) == host(b) }
