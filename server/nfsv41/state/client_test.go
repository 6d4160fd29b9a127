package state_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// RFC 8881 section 18.35.4. Before each request the owner "o" has the record that
// the case is about.
func TestExchangeIDCases(t *testing.T) {
	other := state.Principal{Flavor: 1, UID: 1000}
	none := func(*world) {}
	confirmed := func(w *world) { w.ready("o", 1) }
	sessionless := func(w *world) {
		n := w.ready("o", 1)
		w.want(w.DestroySession(n.session, n.conn, nil), nfs4.OK)
	}
	holding := func(w *world) { w.ready("o", 1).mustOpen("x", 1) }
	unconfirmed := func(w *world) { w.exchange("o", 1) }
	for _, c := range []struct {
		name      string
		before    func(*world)
		verifier  uint64
		principal state.Principal
		update    bool
		want      nfs4.Status
		confirmed bool // of the result
		keeps     bool // the record from before
	}{
		{"1 new owner", none, 1, root, false, nfs4.OK, false, false},
		{"2 known", confirmed, 1, root, false, nfs4.OK, true, true},
		{"3 collision, without state", sessionless, 1, other, false, nfs4.OK, false, false},
		{"3 collision, with a session", confirmed, 1, other, false, nfs4.ErrClidInUse, false, true},
		{"3 collision, with a session, restarted", confirmed, 2, other, false, nfs4.ErrClidInUse, false, true},
		{"3 collision, with state", holding, 1, other, false, nfs4.ErrClidInUse, false, true},
		{"3 collision, with state, restarted", holding, 2, other, false, nfs4.ErrClidInUse, false, true},
		{
			"3 collision, lease over",
			func(w *world) { holding(w); w.pass(lease + 1) }, 1, other, false, nfs4.OK, false, false,
		},
		{"4 unconfirmed", unconfirmed, 1, root, false, nfs4.OK, false, false},
		{"4 unconfirmed, other verifier", unconfirmed, 2, root, false, nfs4.OK, false, false},
		{"4 unconfirmed, other principal", unconfirmed, 1, other, false, nfs4.OK, false, false},
		{"5 restart", holding, 2, root, false, nfs4.OK, false, true},
		{"6 update", holding, 1, root, true, nfs4.OK, true, true},
		{"7 update of none", none, 1, root, true, nfs4.ErrNoEnt, false, false},
		{"7 update of unconfirmed", unconfirmed, 1, root, true, nfs4.ErrNoEnt, false, true},
		{"8 update by another verifier", holding, 2, root, true, nfs4.ErrNotSame, false, true},
		{"9 update by another principal", holding, 1, other, true, nfs4.ErrPerm, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, state.Limits{})
			c.before(w)
			var old uint64
			for _, known := range w.Snapshot(0).Clients {
				old = known.ID
			}
			r, e := w.ExchangeID(state.ExchangeIDArgs{
				Owner: []byte("o"), Verifier: verifier(c.verifier), Principal: c.principal, Update: c.update,
			})
			w.want(e, c.want)
			w.ok()
			if r.Confirmed != c.confirmed {
				t.Errorf("confirmed is %t", r.Confirmed)
			}
			if kept := w.Client(old) != nil; kept != c.keeps {
				t.Errorf("the record from before is kept: %t", kept)
			}
			if e == nfs4.OK && w.Client(r.ClientID) == nil {
				t.Error("the client ID is unknown")
			}
		})
	}
}

// A client that restarts keeps its state until the new incarnation is confirmed.
func TestRestartedClient(t *testing.T) {
	w := newWorld(t, state.Limits{})
	old := w.ready("o", 1)
	h := newHeld(t)
	_, _, e := w.Open(old.c, state.OpenArgs{Owner: []byte("x"), File: file1(1), Access: state.Both, Descriptor: h})
	w.want(e, nfs4.OK)
	_, e = w.exchange("o", 2)
	w.want(e, nfs4.OK)
	if h.users.Load() != 2 { // to read, and to write
		t.Fatal("EXCHANGE_ID alone ended the open")
	}
	_, e = old.renew()
	w.want(e, nfs4.OK)
	n := w.join("o", 2)
	w.ok()
	if h.users.Load() != 0 || w.Counts().Opens != 0 {
		t.Error("the open outlives its client")
	}
	if len(w.tracking.list) != 0 {
		t.Errorf("the client tracking is %v", w.tracking.list)
	}
	_, e = old.renew()
	w.want(e, nfs4.ErrBadSession)
	_, e = w.CreateSession(old.create)
	w.want(e, nfs4.ErrStaleClientID)
	_, _, e = w.Open(old.c, state.OpenArgs{Owner: []byte("x"), File: file1(1), Access: state.Both})
	w.want(e, nfs4.ErrDeadSession) // of a request that was being processed
	if w.saw(state.ClientReturned) != 1 || w.saw(state.ClientCame) != 1 || n.c.ID() == old.c.ID() || n.c.Owner() != "o" {
		t.Errorf("events are %+v", w.events)
	}
}

// A node that lost its state has the server forget the rest, by a verifier for that alone, and
// comes again with the one it had: that is no second node.
func TestPurgeIsNoSharedOwner(t *testing.T) {
	w := newWorld(t, state.Limits{})
	for range 2 {
		w.ready("node1", 1)
		w.ready("node1", 1<<64-1)
	}
	w.ready("node1", 1)
	if w.saw(state.OwnerShared) != 0 {
		t.Fatalf("events are %+v", w.events)
	}
}

// Two nodes of one name take each other's lease: each finds its session gone, and
// comes with its own verifier.
func TestSharedOwner(t *testing.T) {
	w := newWorld(t, state.Limits{})
	w.ready("node1", 1)
	w.ready("node1", 2)
	if w.saw(state.OwnerShared) != 0 {
		t.Fatal("a restart is no second node")
	}
	w.ready("node1", 1)
	if w.saw(state.OwnerShared) != 1 {
		t.Fatalf("events are %+v", w.events)
	}
	for _, e := range w.events {
		if e.Kind == state.OwnerShared && (e.Other != "10.0.0.1:700" || e.Address == "") {
			t.Errorf("event is %+v", e)
		}
	}
}

func TestClientLimits(t *testing.T) {
	w := newWorld(t, state.Limits{Clients: 32})
	keeper := w.ready("keeper", 1)
	keeper.mustOpen("x", 1)
	idle := w.ready("idle", 1)
	for i := range 1000 { // that never come back
		_, e := w.exchange(fmt.Sprint(i), 1)
		w.want(e, nfs4.OK)
		w.ok()
	}
	_, e := idle.renew()
	w.want(e, nfs4.OK)
	for i := range 22 {
		w.ready(fmt.Sprint("live", i), 1)
	}
	_, e = w.exchange("one more", 1)
	w.want(e, nfs4.ErrDelay) // the rest is for other addresses
	w.ready("idle", 2)       // one that starts again needs no room
	w.ok()
	for address := range 10 {
		_, e = w.exchangeFrom(fmt.Sprintf("10.0.1.%d:700", address), fmt.Sprint("other", address), 1)
		w.want(e, nfs4.OK)
		w.ok()
	}
	w.pass(lease + 1)
	for range 1000 {
		_, e = w.exchange("one more", 1)
		w.want(e, nfs4.OK)
		w.ok()
	}
	_, e = keeper.renew()
	w.want(e, nfs4.OK) // it held something
	w.ok()

	_, e = w.exchange(strings.Repeat("x", state.OwnerMax+1), 1)
	w.want(e, nfs4.ErrInval)
	_, e = w.exchange("", 1)
	w.want(e, nfs4.ErrInval)
}

// A node that comes anew gets in while all others are silent, though each holds something: who
// holds the most goes first.
func TestSilentHoldersMakeRoom(t *testing.T) {
	w := newWorld(t, state.Limits{Clients: 4})
	least, most := w.ready("least", 1), w.ready("most", 1)
	least.mustOpen("x", 1)
	most.mustOpen("x", 1)
	most.mustOpen("x", 2)
	w.ready("some", 1).mustOpen("x", 3)
	_, e := w.exchange("new", 1)
	w.want(e, nfs4.ErrDelay)
	w.pass(lease + 1)
	w.ready("new", 1)
	w.ok()
	_, e = most.renew()
	w.want(e, nfs4.ErrBadSession)
	_, e = least.renew()
	w.want(e, nfs4.OK)
}

func TestUnconfirmedClientsGo(t *testing.T) {
	w := newWorld(t, state.Limits{})
	_, e := w.exchange("o", 1)
	w.want(e, nfs4.OK)
	w.pass(lease + 1)
	w.Expire()
	w.ok()
	if len(w.Snapshot(0).Clients) != 0 {
		t.Error("it is still there")
	}
}

func TestDestroyClientID(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n := w.ready("o", 1)
	id := n.mustOpen("x", 1)
	w.want(w.DestroyClientID(n.c.ID(), root, newConn(home)), nfs4.ErrClientIDBusy)
	w.want(w.DestroyClientID(n.c.ID(), state.Principal{}, newConn(home)), nfs4.ErrWrongCred)
	w.want(w.DestroyClientID(n.c.ID()+1, root, newConn(home)), nfs4.ErrStaleClientID)
	w.want(w.Close(n.c, id, file1(1)), nfs4.OK)
	w.want(w.DestroySession(n.session, n.conn, nil), nfs4.OK)
	w.want(w.DestroySession(n.session, n.conn, nil), nfs4.ErrBadSession)
	w.want(w.DestroyClientID(n.c.ID(), root, newConn(home)), nfs4.OK)
	w.ok()
	if len(w.tracking.list) != 0 || w.saw(state.ClientLeft) != 1 {
		t.Errorf("client tracking %v, events %+v", w.tracking.list, w.events)
	}
}

// What an evicted client held is free when the client tracking no longer has it, and not
// before; and it does not have it if the disk fails.
func TestEvict(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n, other := w.ready("o", 1), w.ready("other", 1)
	_, e := n.open("x", 1, state.Both, state.Both)
	w.want(e, nfs4.OK)
	other.mustOpen("x", 2)

	w.tracking.err = errors.New("disk")
	w.want(w.Evict(n.c.ID()), nfs4.ErrDelay)
	w.tracking.err = nil
	_, e = other.open("x", 1, state.Read, 0)
	w.want(e, nfs4.ErrShareDenied)

	w.tracking.before = func(add bool, e state.TrackedClient) {
		if add {
			return
		}
		_, err := other.open("x", 1, state.Read, 0)
		w.want(err, nfs4.ErrShareDenied)
		_, err = n.renew()
		w.want(err, nfs4.ErrDelay)
		_, err = n.open("x", 3, state.Read, 0)
		w.want(err, nfs4.ErrDelay)
		w.want(w.Evict(n.c.ID()), nfs4.ErrDelay)
	}
	w.want(w.Evict(n.c.ID()), nfs4.OK)
	w.tracking.before = nil
	w.ok()
	_, e = other.open("x", 1, state.Read, 0)
	w.want(e, nfs4.OK)
	_, e = n.renew()
	w.want(e, nfs4.ErrBadSession)
	w.want(w.Evict(n.c.ID()), nfs4.ErrStaleClientID)
}
