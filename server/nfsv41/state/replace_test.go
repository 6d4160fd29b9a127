package state_test

import (
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

const (
	home     = "10.0.0.1:700"
	stranger = "10.0.0.66:40000"
)

// A client of another address does not take the place of one that renews its lease.
func TestNameOfAnotherAddress(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n := w.ready("node1", 1)
	id := n.mustOpen("x", 1)
	for range 5 {
		_, e := w.exchangeFrom(stranger, "node1", 2)
		w.want(e, nfs4.ErrDelay)
		w.pass(lease / 2)
		_, e = n.renew()
		w.want(e, nfs4.OK)
		w.ok()
	}
	w.want(w.Close(n.c, id, file1(1)), nfs4.OK)
	if got := w.saw(state.OwnerShared); got != 2 { // once in a lease, when the second has asked again
		t.Errorf("the second node was noticed %d times: %+v", got, w.events)
	}

	w.joinFrom("10.0.0.1:800", "node1", 3) // the same host goes at once
	w.ok()
	_, e := n.renew()
	w.want(e, nfs4.ErrBadSession)
}

// A node that starts again at another address waits until the one before is silent for a lease.
func TestNodeMoves(t *testing.T) {
	w := newWorld(t, state.Limits{})
	w.ready("node1", 1).mustOpen("x", 1)
	for range int(lease / time.Second) {
		_, e := w.exchangeFrom(stranger, "node1", 2)
		w.want(e, nfs4.ErrDelay)
		w.pass(time.Second)
	}
	w.pass(1)
	w.joinFrom(stranger, "node1", 2)
	w.ok()
	if w.saw(state.OwnerShared) != 0 || w.Counts().Opens != 0 {
		t.Errorf("events %+v, counts %+v", w.events, w.Counts())
	}
}

// A client that was silent when another came, and is there when that one makes its session, stays.
func TestReturnsBeforeTheSession(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n := w.ready("node1", 1)
	w.pass(lease + 1)
	id, e := w.exchangeFrom(stranger, "node1", 2)
	w.want(e, nfs4.OK)
	_, e = n.renew()
	w.want(e, nfs4.OK)
	create := state.CreateSessionArgs{ClientID: id.ClientID, Seq: id.Seq, Principal: root, Fore: channel, Back: channel, Conn: newConn(stranger)}
	_, e = w.CreateSession(create)
	w.want(e, nfs4.ErrDelay)
	w.ok()
	_, e = n.renew()
	w.want(e, nfs4.OK)
	w.pass(lease + 1)
	_, e = w.CreateSession(create) // the same again, as Linux does
	w.want(e, nfs4.OK)
	w.ok()
}

// Who knows a client's ID, as people do, gets nothing by it from another address: no session, nor that of the client, and its sequence
// stays where it is.
func TestClientIDOfAnotherAddress(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n := w.ready("node1", 1)
	id := n.mustOpen("x", 1)
	lock, _, e := n.lock(id, "l", 1, true, 0, 10)
	w.want(e, nfs4.OK)
	w.joinFrom(stranger, "stranger", 1)
	for seq := range n.create.Seq + 3 {
		create := n.create
		create.Seq, create.Conn = seq, newConn(stranger)
		r, e := w.CreateSession(create)
		w.want(e, nfs4.ErrDelay)
		if r.ID != (state.SessionID{}) {
			t.Errorf("it is told session %x", r.ID)
		}
	}
	w.want(w.DestroyClientID(n.c.ID(), root, newConn(stranger)), nfs4.ErrWrongCred)
	_, e = w.exchangeFrom(stranger, "node1", 2)
	w.want(e, nfs4.ErrDelay)
	n.create.Seq++
	_, e = w.CreateSession(n.create)
	w.want(e, nfs4.OK)
	_, e = w.Unlock(n.c, lock, file1(1), 0, 10)
	w.want(e, nfs4.OK)
	w.ok()

	// Nor without any session, as when podnas has died, and nothing open: neither by the client ID, nor as another principal.
	w.want(w.Close(n.c, id, file1(1)), nfs4.OK)
	w.dies()
	w.want(w.DestroyClientID(n.c.ID(), root, newConn(stranger)), nfs4.ErrWrongCred)
	other := root
	other.UID++
	_, e = w.ExchangeID(state.ExchangeIDArgs{Owner: []byte("node1"), Verifier: verifier(1), Principal: other, Conn: newConn(stranger)})
	w.want(e, nfs4.ErrClidInUse)
	n.again()
	w.ok()
}

// A lock tells a client at another address nothing by which it could be taken for the one that has it.
func TestDeniedTellsNoClientID(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n, other := w.ready("node1", 1), w.joinFrom(stranger, "other", 1)
	w.want(w.ReclaimComplete(other.c, false), nfs4.OK)
	neighbour := w.ready("node2", 1)
	id := n.mustOpen("x", 1)
	_, _, e := n.lock(id, "l", 1, true, 0, 10)
	w.want(e, nfs4.OK)
	for _, tt := range []struct {
		asks *node
		want uint64
	}{{n, n.c.ID()}, {neighbour, n.c.ID()}, {other, 0}} {
		tested, e := w.TestLock(tt.asks.c, []byte("m"), file1(1), true, 0, 10)
		w.want(e, nfs4.ErrDenied)
		_, locked, e := tt.asks.lock(tt.asks.mustOpen("y", 1), "m", 1, true, 0, 10)
		w.want(e, nfs4.ErrDenied)
		if tested.ClientID != tt.want || locked != tested || locked.Owner != "l" {
			t.Errorf("LOCKT: %+v, LOCK: %+v, want client %x", tested, locked, tt.want)
		}
	}
}

// A node whose address changes goes on: with its session, or, when podnas has died, by its verifier.
func TestNodeGoesOnAtAnotherAddress(t *testing.T) {
	const moved, movedAgain = "10.0.0.2:700", "[fd00::2]:700"
	w := newWorld(t, state.Limits{})
	n := w.ready("node1", 1)
	id := n.mustOpen("x", 1)
	n.conn = newConn(moved)
	_, e := n.renew()
	w.want(e, nfs4.OK)
	_, _, e = w.BindConn(n.session, newConn(moved), state.Fore|state.Back)
	w.want(e, nfs4.OK)
	n.create.Conn = n.conn
	n.create.Seq++
	_, e = w.CreateSession(n.create)
	w.want(e, nfs4.OK)
	w.dies()

	n.create.Conn = newConn(movedAgain)
	n.create.Seq++
	_, e = w.CreateSession(n.create)
	w.want(e, nfs4.ErrDelay)
	r, e := w.exchangeFrom(movedAgain, "node1", 1)
	w.want(e, nfs4.OK)
	if !r.Confirmed || r.ClientID != n.create.ClientID || r.Seq != n.create.Seq {
		t.Errorf("EXCHANGE_ID: %+v", r)
	}
	_, e = w.CreateSession(n.create)
	w.want(e, nfs4.OK)
	w.want(w.Close(w.Client(r.ClientID), id, file1(1)), nfs4.OK)
	w.joinFrom(movedAgain, "node1", 2) // and starts again there
	w.ok()

	// A client that only tries CREATE_SESSION waits until it was silent for a lease.
	n = w.ready("node2", 1)
	w.pass(lease)
	n.create.Conn = newConn(moved)
	n.create.Seq++
	_, e = w.CreateSession(n.create)
	w.want(e, nfs4.ErrDelay)
	w.pass(1)
	_, e = w.CreateSession(n.create)
	w.want(e, nfs4.OK)
	w.ok()
}

// Nobody finds a node's verifier from another address: not by trying all, with or without an update, nor while it is one that
// all know.
func TestGuessedVerifier(t *testing.T) {
	w := newWorld(t, state.Limits{})
	w.ready("node1", 1)
	exchange := func(v uint64, update bool) nfs4.Status {
		_, e := w.ExchangeID(state.ExchangeIDArgs{Owner: []byte("node1"), Verifier: verifier(v), Principal: root, Update: update, Conn: newConn(stranger)})
		return e
	}
	w.want(exchange(2, false), nfs4.ErrDelay)
	for _, update := range []bool{false, true} { // too soon, whether it is right
		w.want(exchange(1, update), nfs4.ErrDelay)
	}
	w.pass(state.TryEvery)
	w.want(exchange(2, true), nfs4.ErrNotSame)
	w.want(exchange(1, true), nfs4.ErrDelay)
	_, e := w.exchange("node1", 1) // the node itself waits for nobody
	w.want(e, nfs4.OK)
	w.pass(state.TryEvery)
	w.want(exchange(1, false), nfs4.OK)

	for _, known := range []uint64{0, 1<<64 - 1} {
		w := newWorld(t, state.Limits{})
		w.ready("node1", known)
		_, e := w.exchangeFrom(stranger, "node1", known)
		w.want(e, nfs4.ErrDelay)
		_, e = w.exchange("node1", known)
		w.want(e, nfs4.OK)
	}
}

// In a grace period only the node itself may come by its name, so nobody else ends it, or reclaims for it.
func TestGraceOfAnotherAddress(t *testing.T) {
	for _, tt := range []struct {
		name, address string
		verifier      uint64
		forget        func(*state.TrackedClient)
		want          nfs4.Status
	}{
		{name: "a stranger", address: stranger, verifier: 2, want: nfs4.ErrDelay},
		{name: "the node", address: home, verifier: 1, want: nfs4.OK},
		{name: "the node, restarted", address: home, verifier: 2, want: nfs4.OK},
		{name: "the node, behind another address", address: stranger, verifier: 1, want: nfs4.OK},
		{
			name: "no address is known", address: stranger, verifier: 2, want: nfs4.OK,
			forget: func(e *state.TrackedClient) { e.Address = "" },
		},
		{
			name: "no verifier is known", address: stranger, verifier: 0, want: nfs4.ErrDelay,
			forget: func(e *state.TrackedClient) { e.Verifier = [8]byte{} },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, state.Limits{})
			w.ready("node1", 1).mustOpen("x", 1)
			for id, e := range w.tracking.list {
				if tt.forget != nil {
					tt.forget(&e)
					w.tracking.list[id] = e
				}
			}
			w.crash()
			_, e := w.exchangeFrom(tt.address, "node1", tt.verifier)
			w.want(e, tt.want)
			if e == nfs4.OK {
				return
			}
			if n := w.Counts(); !n.InGrace || n.Awaited != 1 {
				t.Errorf("counts %+v", n)
			}
			w.pass(2*lease + 1)
			w.Expire()
			w.joinFrom(tt.address, "node1", tt.verifier)
			w.ok()
		})
	}
}
