package state_test

import (
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// Expire is called each second only while something is due in seconds, and who brings such a thing
// says so.
func TestRest(t *testing.T) {
	w := newWorld(t, state.Limits{})
	due := func() bool {
		select {
		case <-w.Due():
			return true
		default:
			return false
		}
	}
	if !w.Expire() || due() {
		t.Fatal("without clients something is due")
	}
	n := w.join("client", 1)
	if !due() {
		t.Error("nobody is told of a client that is not confirmed")
	}
	if !w.Expire() {
		t.Error("a client that is silent for less than a lease needs nothing")
	}
	_, e := w.exchange("unconfirmed", 1)
	w.want(e, nfs4.OK)
	if w.Expire() {
		t.Error("a client that is not confirmed stays unseen")
	}
	w.want(w.DestroyClientID(w.Snapshot(0).Clients[1].ID, root, newConn(home)), nfs4.OK)
	if !w.Expire() {
		t.Error("something is due again")
	}
	w.want(w.ReclaimComplete(n.c, false), nfs4.OK)
	n.openBy("o", 1, state.Read)
	due()
	w.dies()
	n.again()
	if w.Expire() {
		t.Error("what a client may send again is unseen")
	}
	w.pass(state.SettleFor + 1)
	w.Expire()
	if due(); !w.Expire() || due() {
		t.Error("something is due again")
	}
	n.openBy("o", 1, state.Read)
	w.Expire()
	due()
	_, e = n.renew() // it has the reply
	w.want(e, nfs4.OK)
	if !due() {
		t.Error("nobody is told of what is to be logged")
	}
	w.pass(time.Second)
	w.Expire()
	w.ok()
}
