package state_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// A client that is silent keeps what it has until somebody wants it, and then is
// gone with all that it had.
func TestCourtesy(t *testing.T) {
	w := newWorld(t, state.Limits{})
	a, b := w.ready("a", 1), w.ready("b", 1)
	ida, idb := a.mustOpen("x", 1), b.mustOpen("x", 1)
	lock, _, e := a.lock(ida, "l", 1, true, 0, 10)
	w.want(e, nfs4.OK)
	busy := a.mustOpen("x", 2)

	w.pass(lease * 100)
	w.Expire()
	status, e := a.renew()
	w.want(e, nfs4.OK)
	if status != 0 {
		t.Errorf("status is %x", status)
	}
	_, e = b.renew()
	w.want(e, nfs4.OK)
	_, _, e = b.lock(idb, "l", 1, true, 0, 10)
	w.want(e, nfs4.ErrDenied) // before the lease is over
	w.pass(lease)
	_, _, e = b.lock(idb, "l", 1, true, 0, 10)
	w.want(e, nfs4.ErrDenied)

	w.pass(1)
	_, e = w.TestLock(b.c, []byte("l"), file1(1), true, 0, 10)
	w.want(e, nfs4.OK)
	_, e = b.renew()
	w.want(e, nfs4.OK)
	_, _, e = b.lock(idb, "l", 1, true, 0, 10)
	w.want(e, nfs4.OK)
	w.ok()
	if w.saw(state.ClientRevoked) != 1 || len(w.tracking.owners()) != 1 {
		t.Errorf("events %+v, client tracking %v", w.events, w.tracking.owners())
	}
	// It recovers as after a restart of the server, but it can't reclaim.
	_, e = a.renew()
	w.want(e, nfs4.ErrBadSession)
	again := a.create
	again.Seq++
	_, e = w.CreateSession(again)
	w.want(e, nfs4.ErrStaleClientID)
	for _, id := range []nfs4.Stateid{ida, lock, busy} { // of a request that is still under way
		w.want(w.TestStateid(a.c, id), nfs4.ErrBadStateid)
		_, e = w.Check(a.c, id, file1(1), state.Read)
		w.want(e, nfs4.ErrDeadSession)
	}
	a = w.join("a", 1)
	_, _, e = w.Open(a.c, state.OpenArgs{Owner: []byte("x"), File: file1(1), Access: state.Both, Reclaim: true})
	w.want(e, nfs4.ErrNoGrace)
	w.want(w.ReclaimComplete(a.c, false), nfs4.OK)
	_, _, e = a.lock(a.mustOpen("x", 1), "l", 1, true, 0, 10)
	w.want(e, nfs4.ErrDenied)
	w.ok()
	if len(w.tracking.owners()) != 2 || w.saw(state.OwnerShared) != 0 {
		t.Errorf("events %+v, client tracking %v", w.events, w.tracking.owners())
	}
}

// While nobody gets answers, as the disk may be lost, no lease runs: nobody can renew it.
func TestLeaseWhileNobodyIsAnswered(t *testing.T) {
	w := newWorld(t, state.Limits{})
	a, b := w.ready("a", 1), w.ready("b", 1)
	ida, idb := a.mustOpen("x", 1), b.mustOpen("x", 1)
	_, _, e := a.lock(ida, "l", 1, true, 0, 10)
	w.want(e, nfs4.OK)
	takes := func(want nfs4.Status) {
		t.Helper()
		_, e := b.renew()
		w.want(e, nfs4.OK)
		_, _, e = b.lock(idb, "l", 1, true, 0, 10)
		w.want(e, want)
		w.Expire()
	}
	takes(nfs4.ErrDenied)
	w.held = true
	w.pass(lease * 3)
	takes(nfs4.ErrDenied)
	w.held, w.answered = false, w.now
	w.pass(lease)
	takes(nfs4.ErrDenied)
	w.pass(1)
	w.Expire() // b waits
	takes(nfs4.OK)
	w.ok()
}

// While a silent client is taken off the client tracking, the one that wants what it has goes
// itself, and so does what it has: none of that may be used afterwards.
func TestTakerGoesMeanwhile(t *testing.T) {
	for name, take := range map[string]func(b *node, id nfs4.Stateid) nfs4.Status{
		"open": func(b *node, _ nfs4.Stateid) nfs4.Status {
			_, e := b.open("x", 1, state.Both, 0)
			return e
		},
		"may open": func(b *node, _ nfs4.Stateid) nfs4.Status {
			return b.w.MayOpen(b.c, state.OpenArgs{Owner: []byte("x"), File: file1(1), Access: state.Both})
		},
		"lock": func(b *node, id nfs4.Stateid) nfs4.Status {
			_, _, e := b.lock(id, "l", 2, true, 0, 1)
			return e
		},
		"wait": func(b *node, _ nfs4.Stateid) nfs4.Status {
			b.w.Expire()
			_, e := b.open("x", 3, state.Both, 0)
			return e
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, state.Limits{})
			a, b := w.ready("a", 1), w.ready("b", 1)
			_, e := a.open("x", 1, state.Read, state.Both)
			w.want(e, nfs4.OK)
			_, _, e = a.lock(a.mustOpen("x", 2), "l", 2, true, 0, 1)
			w.want(e, nfs4.OK)
			id := b.mustOpen("x", 2)
			if name == "wait" {
				_, _, e = b.lock(id, "l", 2, true, 0, 1)
				w.want(e, nfs4.ErrDenied)
			}
			w.pass(lease + 1)
			_, e = b.renew()
			w.want(e, nfs4.OK)
			w.tracking.before = func(_ bool, e state.TrackedClient) {
				if e.Owner == "a" {
					w.want(w.Evict(b.c.ID()), nfs4.OK)
				}
			}
			w.want(take(b, id), nfs4.ErrDeadSession)
			w.ok()
			if n := w.Counts(); n != (state.Counts{}) {
				t.Errorf("%+v is left", n)
			}
		})
	}
}

// A waiter that went with its own client takes nothing from others.
func TestGoneWaiterTakesNothing(t *testing.T) {
	w := newWorld(t, state.Limits{})
	a, b, c := w.ready("a", 1), w.ready("b", 1), w.ready("c", 1)
	ida, idc := a.mustOpen("x", 1), c.mustOpen("x", 1)
	_, _, e := a.lock(ida, "l", 1, true, 0, 10)
	w.want(e, nfs4.OK)
	_, _, e = b.lock(b.mustOpen("x", 1), "l", 1, true, 10, 10)
	w.want(e, nfs4.OK)
	_, _, e = c.lock(idc, "l", 1, true, 0, 10)
	w.want(e, nfs4.ErrDenied)
	_, _, e = a.lock(ida, "l", 1, true, 10, 10)
	w.want(e, nfs4.ErrDenied)
	w.pass(lease + 1)
	_, e = c.renew()
	w.want(e, nfs4.OK)
	w.Expire()
	w.ok()
	if len(w.free) != 1 || w.free[0].ClientID != c.c.ID() || w.saw(state.ClientRevoked) != 1 {
		t.Errorf("told %+v, events %+v", w.free, w.events)
	}
	_, e = b.renew()
	w.want(e, nfs4.OK)
}

// A live client in the way is enough: the silent one keeps what it has.
func TestCourtesyIsNotWasted(t *testing.T) {
	w := newWorld(t, state.Limits{})
	a, b, c := w.ready("a", 1), w.ready("b", 1), w.ready("c", 1)
	for _, n := range []*node{a, b} {
		_, e := n.open("x", 1, state.Read, state.Write)
		w.want(e, nfs4.OK)
		_, _, e = n.lock(n.mustOpen("x", 2), "l", 2, false, 0, 1)
		w.want(e, nfs4.OK)
	}
	w.pass(lease + 1)
	_, e := b.renew()
	w.want(e, nfs4.OK)
	_, e = c.open("x", 1, state.Write, 0)
	w.want(e, nfs4.ErrShareDenied)
	_, _, e = c.lock(c.mustOpen("x", 2), "l", 2, true, 0, 1)
	w.want(e, nfs4.ErrDenied)
	if w.saw(state.ClientRevoked) != 0 {
		t.Error("a client was dismissed for nothing")
	}
}

// A silent client is found behind many opens that are not in the way.
func TestSilentBehindOthers(t *testing.T) {
	w := newWorld(t, state.Limits{})
	silent, other, b := w.ready("silent", 1), w.ready("other", 1), w.ready("b", 1)
	_, e := silent.open("x", 1, state.Write, 0)
	w.want(e, nfs4.OK)
	for i := range 2 * state.SilentMax {
		_, e := other.open(fmt.Sprint(i), 1, state.Read, 0)
		w.want(e, nfs4.OK)
	}
	w.pass(lease + 1)
	_, e = other.renew()
	w.want(e, nfs4.OK)
	_, e = b.open("x", 1, state.Read, state.Write)
	w.want(e, nfs4.OK)
	if w.saw(state.ClientRevoked) != 1 {
		t.Errorf("events %+v", w.events)
	}
	_, e = b.open("y", 1, state.Read, state.Read)
	w.want(e, nfs4.ErrShareDenied)
}

// Many clients were silent and have come back: the one that has not is found at once when there is no room.
func TestSilentAmongMany(t *testing.T) {
	const clients = 3 * state.StepWork
	w := &many{newWorld(t, state.Limits{AllOpens: clients + 1}).unlogged(), t, map[int]*node{}}
	var nodes []*node
	for i := range clients + 1 {
		if i == clients {
			w.pass(time.Second) // the one that stays away is the last to be taken
		}
		nodes = append(nodes, w.client(i))
		w.open(nodes[i], 0, i)
	}
	w.pass(lease + time.Second)
	w.Expire()
	for _, n := range nodes[:clients] {
		_, e := n.renew()
		w.want(e, nfs4.OK)
	}
	b := w.client(clients + 1)
	w.open(b, 0, 0)
	if w.saw(state.ClientExpired) != 1 {
		t.Errorf("%d clients went", w.saw(state.ClientExpired))
	}
}

// A request that takes longer than the lease keeps it.
func TestLongRequest(t *testing.T) {
	w := newWorld(t, state.Limits{})
	a, b := w.ready("a", 1), w.ready("b", 1)
	_, e := a.open("x", 1, state.Both, state.Both)
	w.want(e, nfs4.OK)
	r, e := w.Sequence(state.SequenceArgs{Session: a.session, Seq: 1, Ops: 2, Conn: a.conn})
	w.want(e, nfs4.OK)
	w.pass(lease * 10)
	w.Expire()
	_, e = b.open("x", 1, state.Read, 0)
	w.want(e, nfs4.ErrShareDenied)
	r.Slot.Done(nil, false)
	_, e = b.open("x", 1, state.Read, 0)
	w.want(e, nfs4.ErrShareDenied)
}

// waitedFor is a world in which one client has a lock that another waits for, by its open of file 1.
func waitedFor(t *testing.T) (w *world, a, b *node, idb nfs4.Stateid) {
	t.Helper()
	w = newWorld(t, state.Limits{})
	a, b = w.ready("a", 1), w.ready("b", 1)
	_, _, e := a.lock(a.mustOpen("x", 1), "l", 1, true, 0, 10)
	w.want(e, nfs4.OK)
	idb = b.mustOpen("x", 1)
	_, _, e = b.lock(idb, "l", 1, true, 0, 10)
	w.want(e, nfs4.ErrDenied)
	return w, a, b, idb
}

// Somebody who waits gets the lock of a silent client as soon as its lease is over.
func TestWaiterGetsLockOfSilentClient(t *testing.T) {
	w, _, b, idb := waitedFor(t)
	for range 30 {
		w.pass(lease / 30)
		w.Expire()
		_, e := b.renew()
		w.want(e, nfs4.OK)
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
	_, _, e := b.lock(idb, "l", 1, true, 0, 10)
	w.want(e, nfs4.OK)
}

// Where the network is away for both, nobody loses a lock to who only waits.
func TestSilentWaiterTakesNothing(t *testing.T) {
	w, a, b, idb := waitedFor(t)
	for range 40 {
		w.pass(lease / 30)
		w.Expire()
		w.ok()
	}
	_, e := a.renew()
	w.want(e, nfs4.OK)
	_, e = b.renew()
	w.want(e, nfs4.OK)
	w.Expire()
	_, _, e = b.lock(idb, "l", 1, true, 0, 10)
	w.want(e, nfs4.ErrDenied)
	if n := w.saw(state.ClientRevoked); n > 0 {
		t.Errorf("%d clients have lost what they had", n)
	}
}

// Courtesy has an end, which does not come while clients get no answers.
func TestCourtesyEnds(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n := w.ready("o", 1)
	n.mustOpen("x", 1)
	w.held = true // the disk is away, for longer than that
	w.pass(2 * courtesy)
	w.Expire()
	w.held, w.answered = false, w.now
	w.pass(courtesy)
	w.Expire()
	if len(w.Snapshot(0).Clients) != 1 {
		t.Fatal("too early")
	}
	w.pass(1)
	w.Expire()
	w.ok()
	_, e := n.renew()
	w.want(e, nfs4.ErrBadSession)
	if w.saw(state.ClientExpired) != 1 || len(w.tracking.list) != 0 {
		t.Errorf("events %+v, client tracking %v", w.events, w.tracking.list)
	}
}

// A client has the lease that it was told, though the next process has a shorter one: it asks again only when it makes a
// session. A longer one is for all at once.
func TestLeaseChanges(t *testing.T) {
	for _, tt := range []struct {
		name       string
		told, next time.Duration
		want       time.Duration
	}{
		{"shorter", 40 * time.Second, 10 * time.Second, 40 * time.Second},
		{"longer", 10 * time.Second, 40 * time.Second, 40 * time.Second},
		{"longer than any", 3 * time.Hour, 10 * time.Second, state.LongestLease},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, state.Limits{})
			w.lease = tt.told
			w.crash()
			old := w.ready("old", 1)
			_, e := old.open("x", 1, state.Read, state.Both)
			w.want(e, nfs4.OK)
			left := w.save()
			w.lease = tt.next
			if err := w.restore(left, noFile); err != nil {
				t.Fatal(err)
			}
			_, e = old.renew() // it has returned
			w.want(e, nfs4.OK)
			_, e = w.ready("new", 1).open("x", 2, state.Read, state.Both)
			w.want(e, nfs4.OK)
			other := w.ready("other", 1)
			wait := func(f int, lease time.Duration) {
				t.Helper()
				w.pass(lease)
				_, e = other.renew()
				w.want(e, nfs4.OK)
				_, e = other.open("x", f, state.Read, 0)
				w.want(e, nfs4.ErrShareDenied)
				w.pass(1)
				_, e = other.open("x", f, state.Read, 0)
				w.want(e, nfs4.OK)
				w.pass(-lease - 1)
			}
			wait(2, tt.next)
			wait(1, tt.want)
			w.ok()
		})
	}
}

// The grace period is two leases of the longest that one of those was told who may reclaim.
func TestGraceOfLongerLease(t *testing.T) {
	for _, tt := range []struct{ told, next, want time.Duration }{
		{10 * time.Second, 10 * time.Second, 20 * time.Second},
		{20 * time.Second, 10 * time.Second, 40 * time.Second},
		{10 * time.Second, 20 * time.Second, 40 * time.Second},
		{3 * time.Hour, 10 * time.Second, 2 * state.LongestLease},
	} {
		w := newWorld(t, state.Limits{})
		w.lease = tt.next
		w.State = state.New(w.config())
		most := w.BeginGrace([]state.TrackedClient{{ClientID: 1, Owner: "a", Lease: time.Second}, {ClientID: 2, Owner: "b", Lease: tt.told}})
		w.pass(tt.want - 1)
		w.Expire()
		early := !w.InGrace()
		w.pass(1)
		w.Expire()
		if most != tt.want || early || w.InGrace() {
			t.Errorf("told %s, then %s: at most %s, too early %t, still %t; want %s", tt.told, tt.next, most, early, w.InGrace(), tt.want)
		}
	}
}
