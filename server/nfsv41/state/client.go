package state

import (
	"container/list"
	"encoding/binary"
	"math"
	"slices"
	"time"
)

// Client is a record of a client: one incarnation of one owner. The caller gets it
// from its Slot. Its fields are guarded by State.mu, but for the first group, which
// never changes.
type Client struct {
	id        uint64
	owner     string // co_ownerid
	verifier  [8]byte
	principal Principal
	minor     uint32 // version of its EXCHANGE_ID
	since     time.Time

	home   *address         // where it came from first
	index  int              // in State.list
	places [2]*list.Element // in the lists of those that are not confirmed

	address   string
	confirmed bool
	gone      bool // removed; a request can still have it in hand
	seen      time.Time
	returning bool // this process has it from the one before, and it has not been heard of since
	busy      int  // slots in use: its lease can't run out meanwhile

	createSeq uint32       // of the last CREATE_SESSION
	created   *createReply // its reply
	uncertain bool         // its reply may be lost, and its session is: it may come again
	settles   time.Time    // when it has sent again what had no reply; zero if there is nothing
	sessions  []*session

	recorded bool   // it is on the roster
	changing int    // calls of Roster.Add that run
	leaving  bool   // dismiss runs
	complete bool   // it has said RECLAIM_COMPLETE
	gen      uint32 // see logCopy

	opens  *open                // list
	ranges int                  // of usage.locks
	waits  map[string][]*waiter // by lock owner
	usage  usage

	silentAt  [silentKinds]int // see silentHeap
	unsettled []*open          // repeatable ones of the process before, see settle
}

// ID returns the client ID.
func (c *Client) ID() uint64 { return c.id }

// Owner returns the co_ownerid: any bytes.
func (c *Client) Owner() string { return c.owner }

// ownerRecord has the records of one co_ownerid.
type ownerRecord struct {
	confirmed   *Client
	unconfirmed *Client
	// earlier are verifiers of incarnations that are gone. A node's verifier is the
	// time of its boot or mount, and does not come back: if one does, there are two
	// nodes of one name.
	earlier []formerVerifier
}

type formerVerifier struct {
	verifier [8]byte
	address  string
}

const maxEarlier = 4

// purging reports whether it is with this verifier, all ones, that Linux has a server forget what
// it had: after it lost its state, it comes once with it, and then again with its own.
func purging(verifier [8]byte) bool { return binary.BigEndian.Uint64(verifier[:]) == math.MaxUint64 }

// ExchangeID is EXCHANGE_ID. The cases are those of RFC 8881 section 18.35.4.
func (s *State) ExchangeID(a ExchangeIDArgs) (ExchangeIDResult, Error) {
	if len(a.Owner) == 0 || len(a.Owner) > OwnerMax {
		return ExchangeIDResult{}, ErrInval
	}
	s.mu.Lock()
	defer s.unlock()
	for {
		rec := s.owners[string(a.Owner)]
		var old *Client
		if rec != nil {
			old = rec.confirmed
		}
		switch {
		case a.Update && old == nil: // 7
			return ExchangeIDResult{}, ErrNoEnt
		case a.Update && old.verifier != a.Verifier: // 8
			return ExchangeIDResult{}, ErrNotSame
		case a.Update && old.principal != a.Principal: // 9
			return ExchangeIDResult{}, ErrPerm
		case old != nil && old.principal != a.Principal: // 3
			// Sessions are state (section 18.50.3 lists it): an idle client would lose them.
			if (s.hasState(old) || len(old.sessions) > 0) && !s.leaseOver(old) {
				return ExchangeIDResult{}, ErrClidInUse
			}
			if e := s.dismiss(old, ClientReturned); e != OK {
				return ExchangeIDResult{}, e
			}
			continue // as 1
		case old != nil && old.verifier == a.Verifier: // 2, 6
			if old.leaving {
				return ExchangeIDResult{}, ErrDelay
			}
			if a.Conn != nil {
				old.address = a.Conn.Address()
			}
			return ExchangeIDResult{ClientID: old.id, Seq: old.createSeq + 1, Confirmed: true}, OK
		}
		// 1, 4, 5
		if rec != nil && rec.unconfirmed != nil {
			s.drop(rec.unconfirmed)
			rec = s.owners[string(a.Owner)] // it goes with its last record
		}
		home := s.addressOf(addressOf(a.Conn))
		if rec == nil && !s.roomForClient(home) { // one that starts again replaces itself
			if e := s.makeRoom(home); e != OK {
				return ExchangeIDResult{}, e
			}
			continue
		}
		if rec == nil {
			rec = &ownerRecord{}
			s.owners[string(a.Owner)] = rec
		}
		c := s.newClient(&a, home)
		rec.unconfirmed = c
		s.warnOfSharedOwner(rec, c)
		return ExchangeIDResult{ClientID: c.id, Seq: c.createSeq + 1}, OK
	}
}

// addressOf is empty where there is no connection, as in some tests.
func addressOf(conn Conn) string {
	if conn == nil {
		return ""
	}
	return conn.Address()
}

func (s *State) newClient(a *ExchangeIDArgs, home *address) *Client {
	id := s.random64()
	for s.clients[id] != nil {
		id = s.random64()
	}
	now := s.cfg.Now()
	c := &Client{
		id: id, owner: string(a.Owner), verifier: a.Verifier, principal: a.Principal, minor: max(1, a.Minor),
		since: now, seen: now, address: addressOf(a.Conn),
	}
	s.addClient(c, home)
	return c
}

func (s *State) warnOfSharedOwner(rec *ownerRecord, c *Client) {
	if rec.confirmed == nil || purging(rec.confirmed.verifier) || purging(c.verifier) {
		return
	}
	for _, f := range rec.earlier {
		if f.verifier == c.verifier {
			s.event(Event{
				Kind: OwnerShared, ClientID: c.id, Owner: c.owner,
				Address: c.address, Other: rec.confirmed.address,
			})
			return
		}
	}
}

// confirm makes c the confirmed record of its owner, which has no other.
func (s *State) confirm(c *Client) {
	rec := s.owners[c.owner]
	rec.confirmed, rec.unconfirmed = c, nil
	c.confirmed = true
	s.leaveUnconfirmed(c)
}

func (c *Client) event(kind EventKind) Event {
	return Event{
		Kind: kind, ClientID: c.id, Owner: c.owner, Address: c.address,
		Opens: c.usage.opens, Locks: c.ranges,
	}
}

// DestroyClientID is DESTROY_CLIENTID, RFC 8881 section 18.50.
func (s *State) DestroyClientID(id uint64, p Principal) Error {
	s.mu.Lock()
	defer s.unlock()
	c := s.clients[id]
	switch {
	case c == nil:
		return ErrStaleClientID
	case c.principal != p:
		return ErrWrongCred
	case len(c.sessions) > 0 || c.usage.opens > 0:
		return ErrClientIDBusy
	}
	return s.dismiss(c, ClientLeft)
}

// Evict throws a client out, with all that it has. It need not be silent.
func (s *State) Evict(id uint64) Error {
	s.mu.Lock()
	defer s.unlock()
	c := s.clients[id]
	if c == nil {
		return ErrStaleClientID
	}
	return s.dismiss(c, ClientEvicted)
}

// dismiss removes the client from the roster, and then from here. It lets go of mu
// for the first, so the caller looks up again what it had found. Nothing that the
// client held is free before the roster says that it can't reclaim it.
//
// All of the client goes with ClientRevoked, too, one of the two ways of RFC 8881
// section 8.4.3: its next SEQUENCE gets BADSESSION, CREATE_SESSION STALE_CLIENTID, and it
// recovers as after a restart of the server. The other way is to keep its sessions and
// tell it SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED. Linux 6.1 then hangs: it purges its state
// by an EXCHANGE_ID with the verifier of all ones, never sends RECLAIM_COMPLETE, and gets
// GRACE for its OPENs for ever.
func (s *State) dismiss(c *Client, why EventKind) Error {
	if c.gone {
		return OK
	}
	if c.leaving || c.changing > 0 {
		return ErrDelay
	}
	entries := s.rosterEntries(c, why)
	if len(entries) > 0 && s.cfg.Roster != nil {
		c.leaving = true
		s.unlock()
		err := s.cfg.Roster.Remove(entries...)
		s.mu.Lock()
		c.leaving = false
		if err != nil {
			return ErrDelay
		}
	}
	if !ownRestart(why) && s.grace.owners[c.owner] != nil {
		s.grace.forget(c.owner)
		s.logGrace(record{Forgotten: []byte(c.owner)})
	}
	if c.gone { // one that was not confirmed has gone by another way meanwhile
		return OK
	}
	c.recorded = false
	s.event(c.event(why))
	if s.drop(c); s.after.unfinished() { // the caller may want what it held
		s.unlock()
		s.mu.Lock()
	}
	return OK
}

// rosterEntries are the entries that must go before c does: its own, and if it does
// not go by its own will, those by which its owner may reclaim in this grace period.
// Its own is the last: if the disk fails before, the client is still on the roster.
func (s *State) rosterEntries(c *Client, why EventKind) []RosterEntry {
	var entries []RosterEntry
	if !ownRestart(why) {
		entries = append(entries, s.grace.entries(c.owner)...)
	}
	if c.recorded {
		entries = append(entries, RosterEntry{ClientID: c.id, Owner: c.owner})
	}
	return entries
}

// ownRestart reports whether the client's owner is still there.
func ownRestart(why EventKind) bool { return why == ClientReturned || why == ClientLeft }

// drop removes all of a client. What it held is void at once, and goes in steps.
func (s *State) drop(c *Client) {
	s.logGone(c)
	s.steps++
	c.gone = true
	s.notSilent(c)
	s.removeClient(c)
	rec := s.owners[c.owner]
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
		delete(s.owners, c.owner)
	}
	for len(c.sessions) > 0 { // at most Limits.Sessions, of at most Limits.Conns
		s.removeSession(c.sessions[len(c.sessions)-1])
	}
	if c.opens != nil {
		s.begin(func() bool { return s.releaseAll(c) })
	}
}

// releaseAll is the task that removes what a client held that is gone.
func (s *State) releaseAll(c *Client) (more bool) {
	for began := s.steps; c.opens != nil; {
		if s.steps-began >= stepWork {
			return true
		}
		s.removeOpen(c.opens) // with those that wait
	}
	return false
}

// usable says whether a request that has c in hand may go on.
func (c *Client) usable() Error {
	switch {
	case c.gone:
		return ErrDeadSession
	case c.leaving:
		return ErrDelay
	}
	return OK
}

// hasState says whether the client has anything open.
func (s *State) hasState(c *Client) bool { return c.usage.opens > 0 }
