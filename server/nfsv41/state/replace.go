package state

import "time"

// A client's owner is a name that anybody can guess, such as a node's host name, and AUTH_SYS proves nothing. So a client of another
// IP address does not take the place of one that may still be there, but gets DELAY (RFC 8881 section 15.2) until that one is silent for a
// lease, or, if the grace period waits for it, until that is over. Linux asks again each second: TestTwoNodesOfOneName in test/vm. A node
// that has started again comes from its address, and takes its place at once.
//
// Nor does a client ID prove anything, which people may read in a list of clients: at another address it is of no use. What proves that a
// client is the same at another address, as behind NAT or with a new lease of DHCP, is what it alone knows: the ID of a session, as every
// call has it, and the verifier of its EXCHANGE_ID.

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
	if s.sessions.mayBe(rec.confirmed, from) {
		return true
	}
	s.sessions.noteRefused(rec, verifier, from)
	return false
}

// mayBe reports whether who comes from an address is taken for the client without a proof: it is at the client's host, or the client's
// lease is over.
func (t *sessions) mayBe(c *Client, from string) bool {
	return sameHost(c.address, from) || sameHost(c.came, from) || t.leaseOver(c)
}

// tryEvery is how often one who is at another address may come by the name of an owner, all of them together. The verifier of Linux is
// when the node, or its network, began, in nanoseconds: so it takes decades to find the right one in a few seconds.
const tryEvery = 100 * time.Millisecond

// mayTry reports whether a verifier may be compared.
func (t *sessions) mayTry(rec *ownerRecord) bool {
	now := t.cfg.Now()
	if now.Sub(rec.tried) < tryEvery {
		return false
	}
	rec.tried = now
	return true
}

// isSecret reports whether nobody but the client knows a verifier.
func isSecret(verifier [8]byte) bool { return verifier != [8]byte{} && !purging(verifier) }

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

// isOf reports whether a client can be one of those that are awaited: it has not started again since, or is at the same address. An
// entry of an earlier build may lack either, and so does one whose file was damaged.
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
