package state

import (
	"container/list"
	"encoding/binary"
	"math"
	"time"
)

func (t *sessions) newClient(a *ExchangeIDArgs, home *address) *Client {
	id := t.random64()
	for t.clients[id] != nil {
		id = t.random64()
	}
	now := t.cfg.Now()
	c := &Client{
		id: id, owner: string(a.Owner), verifier: a.Verifier, principal: a.Principal, minor: max(1, a.Minor),
		lease: t.cfg.Lease, since: now, seen: now, came: addressOf(a.Conn), address: addressOf(a.Conn),
	}
	t.addClient(c, home)
	return c
}

// random64 is never 0.
func (t *sessions) random64() uint64 {
	var b [8]byte
	for {
		t.cfg.Random(b[:])
		if n := binary.BigEndian.Uint64(b[:]); n != 0 {
			return n
		}
	}
}

// addressOf is empty where there is no connection, as in some tests.
func addressOf(conn Conn) string {
	if conn == nil {
		return ""
	}
	return conn.Address()
}

// addressOf returns what a connection's address counts for. It is kept if it gets clients.
func (t *sessions) addressOf(conn string) *address {
	key := network(conn)
	if a := t.addresses[key]; a != nil {
		return a
	}
	return &address{key: key}
}

// addClient puts a client into the tables.
func (t *sessions) addClient(c *Client, home *address) {
	t.steps++
	c.home = home
	home.clients++
	t.addresses[home.key] = home
	t.clients[c.id] = c
	c.gen = t.log.gen
	c.index = len(t.list)
	t.list = append(t.list, c)
	if !c.confirmed {
		t.soon()
		c.listed = [2]*list.Element{t.unconfirmed.PushBack(c), home.unconfirmed.PushBack(c)}
	}
}

// removeClient takes it out of the tables.
func (t *sessions) removeClient(c *Client) {
	delete(t.clients, c.id)
	last := t.list[len(t.list)-1]
	t.list[c.index], last.index = last, c.index
	t.list[len(t.list)-1] = nil
	t.list = t.list[:len(t.list)-1]
	t.leaveUnconfirmed(c)
	c.home.clients--
	t.dropAddress(c.home)
}

// leaveUnconfirmed is for a client that is confirmed, or goes.
func (t *sessions) leaveUnconfirmed(c *Client) {
	if c.listed[0] != nil {
		t.unconfirmed.Remove(c.listed[0])
		c.home.unconfirmed.Remove(c.listed[1])
		c.listed = [2]*list.Element{}
	}
}

// dropAddress forgets an address that has nothing.
func (t *sessions) dropAddress(a *address) {
	if a.clients == 0 && a.usage == (usage{}) {
		delete(t.addresses, a.key)
	}
}

// confirm makes c the confirmed record of its owner, which has no other.
func (t *sessions) confirm(c *Client) {
	rec := t.owners[c.owner]
	rec.confirmed, rec.unconfirmed = c, nil
	c.confirmed = true
	t.leaveUnconfirmed(c)
}

// hasCome reports whether an owner has a confirmed client.
func (t *sessions) hasCome(owner string) bool {
	rec := t.owners[owner]
	return rec != nil && rec.confirmed != nil
}

// purging reports whether it is with this verifier, all ones, that Linux has a server forget what
// it had: after it lost its state, it comes once with it, and then again with its own.
func purging(verifier [8]byte) bool { return binary.BigEndian.Uint64(verifier[:]) == math.MaxUint64 }

func (t *sessions) warnOfSharedOwner(rec *ownerRecord, c *Client) {
	if rec.confirmed == nil || purging(rec.confirmed.verifier) || purging(c.verifier) {
		return
	}
	for _, f := range rec.earlier {
		if f.verifier == c.verifier {
			t.event(Event{
				Kind: OwnerShared, ClientID: c.id, Owner: c.owner,
				Address: c.address, Other: rec.confirmed.address,
			})
			return
		}
	}
}

// A client has returnLeases to return to the next process, and returnTime at least. A connection that it
// begins before its node knows the way to that may go nowhere, and Linux begins another after a
// lease without an answer. That and the pause before would be longer than one lease. A node that
// ended meanwhile keeps its locks for that time.
const (
	returnLeases = 3
	returnTime   = 90 * time.Second
)

// leaseOver reports whether the client was silent for longer than the lease. It
// keeps what it has until somebody else wants it.
func (t *sessions) leaseOver(c *Client) bool {
	lease := c.lease
	if c.returning {
		lease = max(returnLeases*lease, returnTime)
	}
	now := t.cfg.Now()
	return c.busy == 0 && now.Sub(c.seen) > lease && now.Sub(t.cfg.Answering()) > lease
}

// late reports whether a client should have renewed its lease by now: Linux does so after two thirds of it.
func (t *sessions) late(c *Client) bool {
	return c.busy == 0 && t.cfg.Now().Sub(c.seen) > c.lease*3/4
}

// renewed renews the client's lease.
func (t *sessions) renewed(c *Client, now time.Time) {
	t.notSilent(c)
	c.seen, c.returning = now, false
}

// hasState says whether the client has anything open.
func (t *sessions) hasState(c *Client) bool { return c.usage.opens > 0 }

// logClient logs a client that is confirmed.
func (t *sessions) logClient(c *Client) {
	if t.log.out != nil && c.confirmed {
		t.log.note(c.gen, (&record{Client: t.recordOf(c)}).append)
	}
}

func (t *sessions) logGone(c *Client) {
	if t.log.out != nil && c.confirmed {
		t.log.note(c.gen, (&record{Gone: c.id}).append)
	}
}

// recordOf returns the record of a client.
func (t *sessions) recordOf(c *Client) *clientRecord {
	r := &clientRecord{
		ID: c.id, Owner: []byte(c.owner), Verifier: c.verifier, Principal: c.principal, Minor: c.minor, Since: c.since, Address: c.address,
		Confirmed: c.confirmed, Recorded: c.recorded, Complete: c.complete, CreateSeq: c.createSeq, Lease: c.lease,
	}
	if c.confirmed {
		for _, f := range t.owners[c.owner].earlier {
			r.Earlier = append(r.Earlier, earlierRecord{f.verifier, f.address})
		}
	}
	if t.log.leaving != nil {
		r.Uncertain = c.uncertain
		if c.created != nil {
			r.Created = &createdRecord{c.created.result, c.created.err}
		}
	}
	return r
}
