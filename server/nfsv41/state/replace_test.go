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
