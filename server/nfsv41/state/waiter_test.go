package state_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// A waiter that can't be told does not keep others from the lock, and is told by the next process
// if this one dies.
func TestWaiterNotReached(t *testing.T) {
	w, holder, waiter, lock := busyWorld(t)
	lock, e := w.Unlock(holder.c, lock, file1(1), 0, toEOF)
	w.want(e, nfs4.OK)
	for range 2 {
		w.pass(2 * time.Second)
		w.Expire()
		w.ok()
		holder.c = w.Client(holder.c.ID())
		lock, _, e = w.Lock(holder.c, state.LockArgs{Stateid: lock, File: file1(1), Write: true, Length: 10})
		w.want(e, nfs4.OK)
		lock, e = w.Unlock(holder.c, lock, file1(1), 0, toEOF)
		w.want(e, nfs4.OK)
		if len(w.free) != 1 || w.free[0].ClientID != waiter.c.ID() || w.free[0].Owner != "m" {
			t.Fatalf("told %+v", w.free)
		}
		w.free = nil
		w.dies()
		w.Expire()
	}
	if len(w.free) != 1 {
		t.Fatalf("told %+v", w.free)
	}
	w.Told(w.free[0])
	w.pass(2 * time.Second)
	w.Expire()
	w.ok()
	if n := w.Counts().Waiters; n != 0 {
		t.Errorf("%d waiters are left", n)
	}
}

// A waiter that was told too late, and asks again, is told again.
func TestWaiterAsksAgain(t *testing.T) {
	w, holder, waiter, lock := busyWorld(t)
	lock, e := w.Unlock(holder.c, lock, file1(1), 0, toEOF)
	w.want(e, nfs4.OK)
	w.Told(w.free[0])
	w.pass(2 * time.Second)
	lock, _, e = w.Lock(holder.c, state.LockArgs{Stateid: lock, File: file1(1), Write: true, Length: 10})
	w.want(e, nfs4.OK)
	_, _, e = waiter.lock(waiter.mustOpen("y", 1), "m", 1, false, 5, 5)
	w.want(e, nfs4.ErrDenied)
	w.Told(w.free[0]) // what the server says late
	w.Expire()
	w.free = nil
	_, e = w.Unlock(holder.c, lock, file1(1), 0, toEOF)
	w.want(e, nfs4.OK)
	if len(w.free) != 1 {
		t.Errorf("told %+v", w.free)
	}
}

// Who does not wait gets a lock that is free, also if a waiter was told, which may have been killed. One that has not is told again.
func TestWaiterOvertaken(t *testing.T) {
	w, holder, waiter, lock := busyWorld(t)
	for range 3 {
		w.free = nil
		var e nfs4.Status
		lock, e = w.Unlock(holder.c, lock, file1(1), 0, toEOF)
		w.want(e, nfs4.OK)
		if len(w.free) != 1 {
			t.Fatalf("told %+v", w.free)
		}
		w.Told(w.free[0])
		lock, _, e = w.Lock(holder.c, state.LockArgs{Stateid: lock, File: file1(1), Write: true, Length: 10})
		w.want(e, nfs4.OK)
		_, _, e = waiter.lock(waiter.mustOpen("y", 1), "m", 1, false, 5, 5)
		w.want(e, nfs4.ErrDenied)
		w.ok()
	}
}

// It is not known of a waiter whether it still waits when the next process begins.
func TestDeadlockRestored(t *testing.T) {
	w := newWorld(t, state.Limits{})
	nodes, ids := ring(w, 2)
	ask := func(i int, want nfs4.Status) {
		t.Helper()
		_, _, e := nodes[i].lock(ids[i], "l", 1, true, uint64(1-i), 1)
		w.want(e, want)
		w.ok()
	}
	ask(0, nfs4.ErrDenied)
	w.dies()
	for _, n := range nodes {
		n.again()
	}
	ask(1, nfs4.ErrDenied)
	if len(w.free) != 1 || w.free[0].ClientID != nodes[0].c.ID() {
		t.Errorf("told %+v", w.free)
	}
	ask(0, nfs4.ErrDeadlock)
}

// Whatever happens, each that waits is told, after its last LOCK, when it can have the lock, over
// any number of processes: while nodes can't be called, have their turn late, and give up.
func TestWaitersModel(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { waitersModel(t, rand.New(rand.NewPCG(seed, 20))) })
	}
}

func waitersModel(t *testing.T, r *rand.Rand) {
	const nodes, bytes = 4, 2
	type waits struct {
		at    uint64 // the byte that it waits for
		since time.Time
		told  bool // since it asked
	}
	w := newWorld(t, state.Limits{})
	var all [nodes]*node
	var opens, locks [nodes]nfs4.Stateid
	var waiting [nodes]*waits
	var queue []state.LockFree // as the server has it: of nodes that can't be called
	for i := range all {
		all[i] = w.ready(fmt.Sprint("node", i), 1)
		opens[i] = all[i].mustOpen("x", 1)
	}
	tell := func() {
		for _, f := range append(queue, w.free...) {
			w.Told(f)
			for i, n := range all {
				if n.c.ID() == f.ClientID && waiting[i] != nil {
					waiting[i].told = true
				}
			}
		}
		queue, w.free = nil, nil
	}
	unlock := func(i int) {
		if locks[i] != (nfs4.Stateid{}) {
			var e nfs4.Status
			locks[i], e = w.Unlock(all[i].c, locks[i], file1(1), 0, toEOF)
			w.want(e, nfs4.OK)
		}
	}
	back := func() {
		w.free = nil
		for _, n := range all {
			n.again()
		}
	}
	for range 60 {
		i := r.IntN(nodes)
		switch r.IntN(8) {
		case 0, 1, 2:
			at := uint64(r.IntN(bytes))
			if waiting[i] != nil {
				at = waiting[i].at
			}
			switch id, _, e := all[i].lock(opens[i], "l", 1, r.IntN(3) > 0, at, 1); e {
			case nfs4.OK:
				locks[i], waiting[i] = id, nil
			case nfs4.ErrDeadlock:
				waiting[i] = nil
			case nfs4.ErrDenied:
				waiting[i] = &waits{at: at, since: w.now}
			default:
				t.Fatal(e)
			}
		case 3, 4:
			unlock(i)
		case 5:
			w.pass(time.Duration(r.IntN(2000)) * time.Millisecond)
			w.Expire()
		case 6:
			if r.IntN(2) == 0 {
				tell()
			}
		case 7:
			w.dies()
			queue = nil
			back()
		}
		queue = append(queue, slices.Clone(w.free)...)
		w.free = nil
		w.ok()
	}
	for i := range all {
		unlock(i)
	}
	for range 2 * nodes {
		tell()
		w.pass(1100 * time.Millisecond)
		w.Expire()
	}
	for i, wait := range waiting {
		if wait != nil && !wait.told && w.now.Sub(wait.since) < state.WaitFor-state.FreshFor {
			t.Errorf("node %d waits for byte %d since %v ago, and is not told", i, wait.at, w.now.Sub(wait.since))
		}
	}
}

// A waiter that was told that its lock is free, and whose client is gone, denies it to nobody, even before it is removed.
func TestTurnOfGoneClient(t *testing.T) {
	w := newWorld(t, state.Limits{}).unlogged()
	holder, waiter, third := w.ready("holder", 1), w.ready("waiter", 1), w.ready("third", 1)
	lock, _, e := holder.lock(holder.mustOpen("x", 1), "l", 1, true, 0, toEOF)
	w.want(e, nfs4.OK)
	waits := waiter.mustOpen("y", 1)
	for i := 2; i < 200; i++ {
		waiter.mustOpen("y", i)
	}
	_, _, e = waiter.lock(waits, "m", 1, true, 0, toEOF)
	w.want(e, nfs4.ErrDenied)
	_, e = w.Unlock(holder.c, lock, file1(1), 0, toEOF)
	w.want(e, nfs4.OK)
	to := third.mustOpen("z", 1)
	half := false
	w.onEvent = func() { // an eviction goes on after it
		half = w.Counts().Opens > 2
		_, _, e = third.lock(to, "l", 1, true, 0, toEOF)
	}
	w.want(w.Evict(waiter.c.ID()), nfs4.OK)
	w.want(e, nfs4.OK)
	if !half {
		t.Fatal("it is removed whole")
	}
}
