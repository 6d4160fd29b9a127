package state_test

import (
	"errors"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// What an OPEN that is under way has reserved nobody else gets, its own owner neither, until it is given up or the file is open.
func TestReservation(t *testing.T) {
	w := newWorld(t, state.Limits{})
	a, b := w.ready("a", 1), w.ready("b", 1)
	var r state.Reservation
	args := state.OpenArgs{Owner: []byte("x"), File: file1(1), Access: state.Write, Deny: state.Read, Reserved: &r}
	reserve := func() { t.Helper(); w.want(w.Reserve(a.c, args, &r), nfs4.OK); w.ok() }
	excluded := func(n *node, owner string, access, deny state.Access, want nfs4.Status) {
		t.Helper()
		_, _, e := w.Open(n.c, state.OpenArgs{Owner: []byte(owner), File: file1(1), Access: access, Deny: deny})
		w.want(e, want)
		w.want(w.MayOpen(n.c, state.OpenArgs{Owner: []byte(owner), File: file1(1), Access: access, Deny: deny}), want)
		w.ok()
	}
	reserve()
	excluded(b, "y", state.Read, 0, nfs4.ErrDelay)
	excluded(b, "y", state.Write, state.Write, nfs4.ErrDelay)
	excluded(a, "x", state.Read, 0, nfs4.ErrDelay)
	w.want(w.Reserve(b.c, state.OpenArgs{Owner: []byte("y"), File: file1(1), Access: state.Both}, &state.Reservation{}), nfs4.ErrDelay)
	w.want(w.CheckSpecial(nfs4.Stateid{}, file1(1), state.Read), nfs4.ErrLocked)
	w.want(w.CheckSpecial(nfs4.Stateid{}, file1(1), state.Write), nfs4.OK)
	if !w.Denies(file1(1), state.Read) || w.Denies(file1(2), state.Read) {
		t.Error("Denies says the wrong thing")
	}
	if n := w.Counts().Opens; n != 0 {
		t.Errorf("there are %d opens", n)
	}
	w.Unreserve(&r)
	w.Unreserve(&r) // nothing
	if w.Denies(file1(1), state.Read) {
		t.Error("it is denied still")
	}
	w.ok()

	reserve()
	_, isNew, e := w.Open(a.c, args)
	w.want(e, nfs4.OK)
	if !isNew || r != (state.Reservation{}) {
		t.Errorf("new is %t, and %+v is left", isNew, r)
	}
	excluded(b, "y", state.Read, 0, nfs4.ErrShareDenied)
	w.Unreserve(&r)
	w.ok()
}

// An OPEN that fails after its reservation leaves what its owner has open as it is, whatever else the owner opens meanwhile.
func TestReservationBesideOpens(t *testing.T) {
	w := newWorld(t, state.Limits{})
	a, b := w.ready("a", 1), w.ready("b", 1)
	id, e := a.open("x", 1, state.Read, 0)
	w.want(e, nfs4.OK)
	var r state.Reservation
	args := state.OpenArgs{Owner: []byte("x"), File: file1(1), Access: state.Write, Deny: state.Write, Reserved: &r}
	w.want(w.Reserve(a.c, args, &r), nfs4.OK)
	again, e := a.open("x", 1, state.Read, 0)
	w.want(e, nfs4.OK)
	_, e = a.open("x", 1, state.Write, 0)
	w.want(e, nfs4.ErrDelay)
	if again.Other != id.Other || again.Seqid != 2 {
		t.Errorf("%v after %v", again, id)
	}
	w.Unreserve(&r)
	_, e = w.Check(a.c, again, file1(1), state.Write)
	w.want(e, nfs4.ErrOpenMode)
	_, e = b.open("x", 1, state.Both, 0)
	w.want(e, nfs4.OK)
	w.ok()
}

// Reserve fails as Open does, and reserves nothing then. What was reserved goes with the OPEN, though its client has gone before.
func TestReservationFails(t *testing.T) {
	w := newWorld(t, state.Limits{Opens: 2})
	a, b := w.ready("a", 1), w.ready("b", 1)
	var r state.Reservation
	args := state.OpenArgs{Owner: []byte("x"), File: file1(1), Access: state.Write, Deny: state.Read, Reserved: &r}
	w.tracking.err = errors.New("disk")
	w.want(w.Reserve(a.c, args, &r), nfs4.ErrServerFault)
	w.tracking.err = nil
	if _, e := b.open("y", 1, state.Read, 0); e != nfs4.OK {
		t.Fatal(e)
	}
	w.want(w.Reserve(a.c, args, &r), nfs4.ErrShareDenied)
	if r != (state.Reservation{}) {
		t.Errorf("%+v is reserved", r)
	}
	w.Unreserve(&r)
	args.File = file1(2)
	w.want(w.Reserve(a.c, args, &r), nfs4.OK)
	w.want(w.Evict(a.c.ID()), nfs4.OK)
	_, _, e := w.Open(a.c, args)
	if e == nfs4.OK || r != (state.Reservation{}) {
		t.Errorf("OPEN of a client that has gone: %v, %+v is left", e, r)
	}
	if _, e := b.open("y", 2, state.Both, 0); e != nfs4.OK {
		t.Error(e)
	}
	w.ok()
}
