package state_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

func TestRangeOfRequest(t *testing.T) {
	for _, c := range []struct {
		offset, length uint64
		e              nfs4.Status
	}{
		{0, 1, nfs4.OK},
		{5, 10, nfs4.OK},
		{0, math.MaxUint64, nfs4.OK},
		{math.MaxUint64, math.MaxUint64, nfs4.OK},
		{math.MaxUint64 - 1, 1, nfs4.OK},
		{math.MaxUint64, 1, nfs4.ErrInval},
		{2, math.MaxUint64 - 1, nfs4.ErrInval},
		{0, 0, nfs4.ErrInval},
		{math.MaxUint64, 0, nfs4.ErrInval},
	} {
		w := newWorld(t, state.Limits{})
		a, b := w.ready("a", 1), w.ready("b", 1)
		_, _, e := a.lock(a.mustOpen("x", 1), "l", 1, true, c.offset, c.length)
		if w.want(e, c.e); e != nfs4.OK {
			continue
		}
		if d, e := w.TestLock(b.c, []byte("l"), file1(1), true, 0, toEOF); e != nfs4.ErrDenied || d.Offset != c.offset || d.Length != c.length {
			t.Errorf("%d, %d comes back as %+v, %v", c.offset, c.length, d, e)
		}
		if c.offset > 0 {
			_, e = w.TestLock(b.c, []byte("l"), file1(1), true, c.offset-1, 1)
			w.want(e, nfs4.OK)
		}
		if c.length < toEOF {
			_, e = w.TestLock(b.c, []byte("l"), file1(1), true, c.offset+c.length-1, 1)
			w.want(e, nfs4.ErrDenied)
			_, e = w.TestLock(b.c, []byte("l"), file1(1), true, c.offset+c.length, toEOF)
			w.want(e, nfs4.OK)
		}
	}
}

func TestLockConflicts(t *testing.T) {
	w := newWorld(t, state.Limits{})
	a, b := w.ready("a", 1), w.ready("b", 1)
	ida, idb := a.mustOpen("x", 1), b.mustOpen("x", 1)
	lock, _, e := a.lock(ida, "la", 1, true, 10, 10)
	w.want(e, nfs4.OK)
	_, d, e := b.lock(idb, "la", 1, false, 0, toEOF) // one name, but another client
	w.want(e, nfs4.ErrDenied)
	if want := (state.Denied{ClientID: a.c.ID(), Owner: "la", Write: true, Offset: 10, Length: 10}); d != want {
		t.Errorf("denied by %+v, want %+v", d, want)
	}
	if _, _, locks := w.ByStateid(idb); len(locks) > 0 {
		t.Error("a LOCK that failed left a lock owner")
	}
	d, e = w.TestLock(b.c, []byte("lb"), file1(1), false, 19, 1)
	w.want(e, nfs4.ErrDenied)
	if d.Offset != 10 {
		t.Errorf("denied by %+v", d)
	}
	_, e = w.TestLock(b.c, []byte("lb"), file1(1), true, 20, 1)
	w.want(e, nfs4.OK)
	_, e = w.TestLock(a.c, []byte("la"), file1(1), true, 10, 1)
	w.want(e, nfs4.OK) // one's own
	// Down to a read lock in the middle.
	lock, _, e = w.Lock(a.c, state.LockArgs{Stateid: lock, File: file1(1), Offset: 12, Length: 2})
	w.want(e, nfs4.OK)
	if lock.Seqid != 2 {
		t.Errorf("seqid is %d", lock.Seqid)
	}
	idl, _, e := b.lock(idb, "lb", 1, false, 12, 2)
	w.want(e, nfs4.OK)
	_, _, e = w.Lock(a.c, state.LockArgs{Stateid: lock, File: file1(1), Write: true, Offset: 12, Length: 2})
	w.want(e, nfs4.ErrDenied)
	w.ok()

	w.want(w.FreeStateid(b.c, idl), nfs4.ErrLocksHeld)
	w.want(w.FreeStateid(b.c, idb), nfs4.ErrLocksHeld)
	idl, e = w.Unlock(b.c, idl, file1(1), 0, toEOF)
	w.want(e, nfs4.OK)
	w.want(w.FreeStateid(b.c, idl), nfs4.OK)
	w.want(w.TestStateid(b.c, idl), nfs4.ErrBadStateid)
	w.want(w.Close(a.c, ida, file1(1)), nfs4.OK) // with its locks
	w.want(w.TestStateid(a.c, lock), nfs4.ErrBadStateid)
	w.pass(2 * time.Second) // b's "la" asked first, and does not come
	_, _, e = b.lock(idb, "lb", 1, true, 0, toEOF)
	w.want(e, nfs4.OK)
	w.ok()
}

// A lock needs an open that may do as much.
func TestLockMode(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n := w.ready("o", 1)
	reads, e := n.open("r", 1, state.Read, 0)
	w.want(e, nfs4.OK)
	writes, e := n.open("w", 1, state.Write, 0)
	w.want(e, nfs4.OK)
	_, _, e = n.lock(reads, "l", 1, true, 0, 1)
	w.want(e, nfs4.ErrOpenMode)
	_, _, e = n.lock(writes, "l", 1, false, 0, 1)
	w.want(e, nfs4.ErrOpenMode)
	_, _, e = n.lock(reads, "l", 1, false, 0, 1)
	w.want(e, nfs4.OK)
	_, _, e = n.lock(writes, "l", 1, true, 0, 1)
	w.want(e, nfs4.OK) // an owner does not exclude itself
	w.ok()
}

// An owner has each byte locked once, through whatever open, also in the log: the last LOCK or LOCKU counts.
func TestLockThroughOpens(t *testing.T) {
	w := newWorld(t, state.Limits{Locks: 7})
	n, other := w.ready("o", 1), w.ready("other", 1)
	x, y, z := n.mustOpen("x", 1), n.mustOpen("y", 1), other.mustOpen("z", 1)
	first, _, e := n.lock(x, "l", 1, true, 0, 100)
	w.want(e, nfs4.OK)
	second, _, e := n.lock(y, "l", 1, false, 10, 10) // what the first has is in two parts now
	w.want(e, nfs4.OK)
	w.ok()
	_, _, e = other.lock(z, "l", 1, false, 10, 10)
	w.want(e, nfs4.OK)
	_, _, e = other.lock(z, "l", 1, false, 20, 1)
	w.want(e, nfs4.ErrDenied)
	if second, e = w.Unlock(n.c, second, file1(1), 30, 10); e != nfs4.OK || second.Seqid != 2 {
		t.Fatal(second, e)
	}
	w.ok()
	if n := w.Counts(); n.Locks != 5 {
		t.Errorf("%d ranges", n.Locks)
	}
	// A part more would be more than the client may have, and nothing has changed.
	second, e = w.Unlock(n.c, second, file1(1), 50, 1)
	w.want(e, nfs4.OK)
	_, e = w.Unlock(n.c, second, file1(1), 60, 1)
	w.want(e, nfs4.ErrServerFault)
	_, _, e = n.lock(n.mustOpen("third", 1), "l", 1, true, 70, 1)
	w.want(e, nfs4.ErrServerFault)
	w.ok()
	w.dies()
	n.again()
	w.ok()
	first, e = w.Unlock(n.c, first, file1(1), 0, toEOF)
	w.want(e, nfs4.OK)
	if n := w.Counts(); n.Locks != 1 {
		t.Errorf("%d ranges are left", n.Locks)
	}
	w.want(w.FreeStateid(n.c, first), nfs4.OK)
	_, e = w.Unlock(n.c, nfs4.Stateid{Other: second.Other}, file1(1), 0, toEOF)
	w.want(e, nfs4.OK)
	w.ok()
}

// An owner locks a file through some opens at most, or each of its calls would look at all of them.
func TestLockThroughTooManyOpens(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n := w.ready("o", 1)
	for i := range 100 {
		want := nfs4.OK
		if i >= state.OwnerOpens {
			want = nfs4.ErrServerFault
		}
		_, _, e := n.lock(n.mustOpen(fmt.Sprint(i), 1), "l", 1, true, 0, 100)
		w.want(e, want)
	}
	w.ok()
	if n := w.Counts(); n.Locks != 1 {
		t.Errorf("%d ranges", n.Locks)
	}
}

// Who waits is told when the lock is free, in the order of the requests, and nobody else that waits
// overtakes until Config.FairFor is over.
func TestWaiters(t *testing.T) {
	w := newWorld(t, state.Limits{})
	holder := w.ready("holder", 1)
	id := holder.mustOpen("x", 1)
	lock, _, e := holder.lock(id, "l", 1, true, 0, 100)
	w.want(e, nfs4.OK)
	var waiters []*node
	var ids []nfs4.Stateid
	for i := range 4 {
		n := w.ready(fmt.Sprint("waiter", i), 1)
		waiters, ids = append(waiters, n), append(ids, n.mustOpen("x", 1))
		for range 2 { // it asks again now and then
			_, _, e = n.lock(ids[i], "l", 1, i < 2, 0, 100) // two to write, two to read
			w.want(e, nfs4.ErrDenied)
		}
	}
	w.ok()
	if n := w.Counts().Waiters; n != 4 {
		t.Fatalf("%d waiters", n)
	}
	told := func(want ...int) {
		t.Helper()
		w.ok()
		if len(w.free) != len(want) {
			t.Fatalf("told %+v, want %v", w.free, want)
		}
		for i, f := range w.free {
			if f.ClientID != waiters[want[i]].c.ID() || f.File != file1(1) || f.Owner != "l" {
				t.Fatalf("told %+v, want %v", w.free, want)
			}
			w.Told(f)
		}
		w.free = nil
	}
	lock, e = w.Unlock(holder.c, lock, file1(1), 50, 50)
	w.want(e, nfs4.OK)
	told() // half is not enough
	_, e = w.Unlock(holder.c, lock, file1(1), 0, 50)
	w.want(e, nfs4.OK)
	told(0)
	_, d, e := waiters[1].lock(ids[1], "l", 1, true, 0, 100)
	w.want(e, nfs4.ErrDenied)
	if d != (state.Denied{ClientID: waiters[0].c.ID(), Owner: "l", Write: true, Length: 100}) { // which the first waiter will have
		t.Errorf("denied by %+v", d)
	}
	first, _, e := waiters[0].lock(ids[0], "l", 1, true, 0, 100)
	w.want(e, nfs4.OK)
	told()
	_, e = w.Unlock(waiters[0].c, first, file1(1), 0, toEOF)
	w.want(e, nfs4.OK)
	told(1)

	// The second one does not come; the readers are next, together.
	w.pass(2 * time.Second)
	w.Expire()
	told(2, 3)
	for i := 2; i < 4; i++ {
		_, _, e = waiters[i].lock(ids[i], "l", 1, false, 0, 100)
		w.want(e, nfs4.OK)
	}
	if n := w.Counts().Waiters; n != 0 {
		t.Errorf("%d waiters are left", n)
	}
	w.ok()
}

// Whatever frees a lock tells those who wait.
func TestWhatTellsWaiters(t *testing.T) {
	for name, free := range map[string]func(w *world, n *node, open, lock nfs4.Stateid){
		"unlock": func(w *world, n *node, _, lock nfs4.Stateid) {
			_, e := w.Unlock(n.c, lock, file1(1), 0, toEOF)
			w.want(e, nfs4.OK)
		},
		"down to a read lock": func(w *world, n *node, _, lock nfs4.Stateid) {
			_, _, e := w.Lock(n.c, state.LockArgs{Stateid: lock, File: file1(1), Length: 10})
			w.want(e, nfs4.OK)
		},
		"close":   func(w *world, n *node, open, _ nfs4.Stateid) { w.want(w.Close(n.c, open, file1(1)), nfs4.OK) },
		"evict":   func(w *world, n *node, _, _ nfs4.Stateid) { w.want(w.Evict(n.c.ID()), nfs4.OK) },
		"restart": func(w *world, _ *node, _, _ nfs4.Stateid) { w.ready("a", 2) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, state.Limits{})
			a, b := w.ready("a", 1), w.ready("b", 1)
			other, open := a.mustOpen("y", 1), a.mustOpen("x", 1)
			lock, _, e := a.lock(open, "l", 1, true, 0, 20)
			w.want(e, nfs4.OK)
			idb := b.mustOpen("x", 1)
			_, _, e = b.lock(idb, "l", 1, false, 0, 10)
			w.want(e, nfs4.ErrDenied)
			// The holder waits as well, by another name: when it goes it is told nothing.
			_, _, e = a.lock(other, "m", 1, true, 10, 10)
			w.want(e, nfs4.ErrDenied)
			free(w, a, open, lock)
			w.ok()
			for _, f := range w.free[1:] {
				if w.Client(f.ClientID) == nil {
					t.Fatalf("told %+v, which is gone", f)
				}
			}
			if w.free[0].ClientID != b.c.ID() {
				t.Fatalf("told %+v", w.free)
			}
			_, _, e = b.lock(idb, "l", 1, false, 0, 10)
			w.want(e, nfs4.OK)
		})
	}
}

// A waiter whose open, client or patience ends is forgotten.
func TestWaitersGo(t *testing.T) {
	for name, end := range map[string]func(w *world, n *node, id nfs4.Stateid){
		"close":  func(w *world, n *node, id nfs4.Stateid) { w.want(w.Close(n.c, id, file1(1)), nfs4.OK) },
		"evict":  func(w *world, n *node, _ nfs4.Stateid) { w.want(w.Evict(n.c.ID()), nfs4.OK) },
		"silent": func(w *world, _ *node, _ nfs4.Stateid) { w.pass(state.WaitFor + 1); w.Expire() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, state.Limits{Waiters: 2})
			a, b := w.ready("a", 1), w.ready("b", 1)
			_, _, e := a.lock(a.mustOpen("x", 1), "l", 1, true, 0, toEOF)
			w.want(e, nfs4.OK)
			id := b.mustOpen("x", 1)
			for i := range 3 {
				_, _, e = b.lock(id, fmt.Sprint(i), 1, true, 0, 1)
				w.want(e, nfs4.ErrDenied)
			}
			w.ok()
			if n := w.Counts().Waiters; n != 2 {
				t.Fatalf("%d waiters", n)
			}
			_, e = a.renew()
			w.want(e, nfs4.OK)
			end(w, b, id)
			w.ok()
			if n := w.Counts().Waiters; n != 0 && name != "silent" || len(w.free) != 0 && name != "silent" {
				t.Errorf("%d waiters, told %+v", n, w.free)
			}
		})
	}
}

// An owner has no more ranges of a file through several opens than through one. It is told so when it adds one, and can always lock
// all of the file.
func TestRangesOfSeveralOpens(t *testing.T) {
	w := newWorld(t, state.Limits{}).unlogged()
	n := w.ready("o", 1)
	at, most := uint64(0), uint64(w.LimitsOf().Ranges)
	for open, e := 0, nfs4.OK; e == nfs4.OK; open++ {
		id := n.mustOpen(fmt.Sprint(open), 1)
		for i := uint64(0); i < most*3/4 && e == nfs4.OK; i++ {
			if _, _, e = n.lock(id, "l", 1, true, 2*at, 1); e == nfs4.OK {
				at++
			}
		}
		if e != nfs4.OK {
			w.want(e, nfs4.ErrServerFault)
		}
	}
	if at != most {
		t.Errorf("%d ranges, want %d", at, most)
	}
	w.ok()
	id := n.mustOpen("last", 1)
	_, _, e := n.lock(id, "l", 1, true, 2*at, 1)
	w.want(e, nfs4.ErrServerFault)
	w.ok()
	_, e = w.TestLock(n.c, []byte("l"), file1(1), true, 0, toEOF)
	w.want(e, nfs4.OK)
	all, _, e := n.lock(id, "l", 1, true, 0, toEOF)
	w.want(e, nfs4.OK)
	if got := w.Counts().Locks; got != 1 {
		t.Errorf("%d ranges are left", got)
	}
	// What is unlocked in the middle makes two of one, through whatever open.
	for i := range most - 1 {
		_, e = w.Unlock(n.c, nfs4.Stateid{Other: all.Other}, file1(1), 2*i+1, 1)
		w.want(e, nfs4.OK)
	}
	_, e = w.Unlock(n.c, nfs4.Stateid{Other: all.Other}, file1(1), 2*most+1, 1)
	w.want(e, nfs4.ErrServerFault)
	w.ok()
}

func TestLockLimits(t *testing.T) {
	w := newWorld(t, state.Limits{Locks: 10})
	n, other := w.ready("o", 1), w.ready("other", 1)
	id := n.mustOpen("x", 1)
	lock, _, e := n.lock(id, "l", 1, true, 0, 1000)
	w.want(e, nfs4.OK)
	// Each hole makes two of one.
	holes := 0
	for ; e == nfs4.OK; holes++ {
		w.ok()
		_, e = w.Unlock(n.c, lock, file1(1), uint64(10+20*holes), 10)
		lock.Seqid = 0
	}
	w.want(e, nfs4.ErrServerFault)
	if n := w.Counts().Locks; n != 9 {
		t.Errorf("%d ranges", n)
	}
	_, _, e = n.lock(id, "another", 1, true, 5000, 1)
	w.want(e, nfs4.ErrServerFault)
	_, _, e = w.Lock(n.c, state.LockArgs{Stateid: lock, File: file1(1), Write: true, Offset: 5000, Length: 1})
	w.want(e, nfs4.ErrServerFault)
	_, _, e = other.lock(other.mustOpen("x", 1), "l", 1, true, 5000, 1)
	w.want(e, nfs4.OK)
	_, e = w.Unlock(n.c, lock, file1(1), 0, toEOF)
	w.want(e, nfs4.OK)
	_, _, e = n.lock(id, "another", 1, true, 4000, 1)
	w.want(e, nfs4.OK)
	w.ok()
}
