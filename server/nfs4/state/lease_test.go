package state

import "testing"

// A client that is silent keeps what it has until somebody wants it, and then learns
// that it lost it.
func TestCourtesy(t *testing.T) {
	w := newWorld(t, Limits{})
	a, b := w.ready("a", 1), w.ready("b", 1)
	ida, idb := a.mustOpen("x", 1), b.mustOpen("x", 1)
	lock, _, e := a.lock(ida, "l", 1, true, 0, 10)
	w.want(e, OK)
	busy := a.mustOpen("x", 2)

	w.pass(lease * 100)
	w.Expire()
	status, e := a.renew()
	w.want(e, OK)
	if status != 0 {
		t.Errorf("status is %x", status)
	}
	_, e = b.renew()
	w.want(e, OK)
	_, _, e = b.lock(idb, "l", 1, true, 0, 10)
	w.want(e, ErrDenied) // before the lease is over
	w.pass(lease)
	_, _, e = b.lock(idb, "l", 1, true, 0, 10)
	w.want(e, ErrDenied)

	w.pass(1)
	_, e = w.TestLock(b.c, []byte("l"), file1(1), true, 0, 10)
	w.want(e, OK)
	_, e = b.renew()
	w.want(e, OK)
	_, _, e = b.lock(idb, "l", 1, true, 0, 10)
	w.want(e, OK)
	w.ok()
	if w.saw(ClientRevoked) != 1 || len(w.roster.owners()) != 1 {
		t.Errorf("events %+v, roster %v", w.events, w.roster.owners())
	}
	for i, id := range []Stateid{ida, lock, busy} {
		status, e = a.renew()
		w.want(e, OK)
		if status != StatusExpiredAllStateRevoked {
			t.Errorf("status is %x with %d stateids to free", status, 3-i)
		}
		w.want(w.TestStateid(a.c, id), ErrExpired)
		_, e = w.Check(a.c, id, file1(1), Read)
		w.want(e, ErrExpired)
		w.want(w.FreeStateid(a.c, id), OK)
		w.want(w.FreeStateid(a.c, id), ErrBadStateid)
	}
	if status, _ = a.renew(); status != 0 {
		t.Errorf("status is %x", status)
	}
	a.mustOpen("x", 1) // it goes on, and is on the roster again
	w.ok()
	if len(w.roster.owners()) != 2 {
		t.Errorf("roster %v", w.roster.owners())
	}
}

// A live client in the way is enough: the silent one keeps what it has.
func TestCourtesyIsNotWasted(t *testing.T) {
	w := newWorld(t, Limits{})
	a, b, c := w.ready("a", 1), w.ready("b", 1), w.ready("c", 1)
	for _, n := range []*node{a, b} {
		_, e := n.open("x", 1, Read, Write)
		w.want(e, OK)
		_, _, e = n.lock(n.mustOpen("x", 2), "l", 2, false, 0, 1)
		w.want(e, OK)
	}
	w.pass(lease + 1)
	_, e := b.renew()
	w.want(e, OK)
	_, e = c.open("x", 1, Write, 0)
	w.want(e, ErrShareDenied)
	_, _, e = c.lock(c.mustOpen("x", 2), "l", 2, true, 0, 1)
	w.want(e, ErrDenied)
	if w.saw(ClientRevoked) != 0 {
		t.Error("a client lost its state for nothing")
	}
}

// A request that takes longer than the lease keeps it.
func TestLongRequest(t *testing.T) {
	w := newWorld(t, Limits{})
	a, b := w.ready("a", 1), w.ready("b", 1)
	_, e := a.open("x", 1, Both, Both)
	w.want(e, OK)
	r, e := w.Sequence(SequenceArgs{Session: a.session, Seq: 1, Ops: 2, Conn: a.conn})
	w.want(e, OK)
	w.pass(lease * 10)
	w.Expire()
	_, e = b.open("x", 1, Read, 0)
	w.want(e, ErrShareDenied)
	r.Slot.Done(nil, false)
	_, e = b.open("x", 1, Read, 0)
	w.want(e, ErrShareDenied)
}

// Somebody who waits gets the lock of a silent client as soon as its lease is over.
func TestWaiterGetsLockOfSilentClient(t *testing.T) {
	w := newWorld(t, Limits{})
	a, b := w.ready("a", 1), w.ready("b", 1)
	_, _, e := a.lock(a.mustOpen("x", 1), "l", 1, true, 0, 10)
	w.want(e, OK)
	idb := b.mustOpen("x", 1)
	_, _, e = b.lock(idb, "l", 1, true, 0, 10)
	w.want(e, ErrDenied)
	for range 30 {
		w.pass(lease / 30)
		w.Expire()
		_, e = b.renew()
		w.want(e, OK)
		if len(w.free) != 0 {
			t.Fatal("before the lease was over")
		}
	}
	w.pass(1)
	w.Expire()
	w.ok()
	if len(w.free) != 1 || w.free[0].ClientID != b.c.ID() {
		t.Fatalf("told %+v", w.free)
	}
	_, _, e = b.lock(idb, "l", 1, true, 0, 10)
	w.want(e, OK)
}

// Courtesy has an end.
func TestCourtesyEnds(t *testing.T) {
	w := newWorld(t, Limits{})
	n := w.ready("o", 1)
	n.mustOpen("x", 1)
	w.pass(courtesy)
	w.Expire()
	if len(w.clients) != 1 {
		t.Fatal("too early")
	}
	w.pass(1)
	w.Expire()
	w.ok()
	_, e := n.renew()
	w.want(e, ErrBadSession)
	if w.saw(ClientExpired) != 1 || len(w.roster.list) != 0 || len(w.files) != 0 {
		t.Errorf("events %+v, roster %v", w.events, w.roster.list)
	}
}
