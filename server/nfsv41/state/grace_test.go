package state_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

func (n *node) reclaim(owner string, f int) (nfs4.Stateid, nfs4.Status) {
	id, _, e := n.w.Open(n.c, state.OpenArgs{Owner: []byte(owner), File: file1(f), Access: state.Both, Reclaim: true})
	return id, e
}

func (n *node) reclaimLock(open nfs4.Stateid, f int, offset, length uint64) nfs4.Status {
	_, _, e := n.w.Lock(n.c, state.LockArgs{
		Stateid: open, NewOwner: true, Owner: []byte("l"), File: file1(f), Write: true,
		Offset: offset, Length: length, Reclaim: true,
	})
	return e
}

func TestNoGraceWithoutTracking(t *testing.T) {
	w := newWorld(t, state.Limits{})
	w.ready("a", 1) // it never had state
	w.crash()
	if w.InGrace() {
		t.Fatal("there is nobody to wait for")
	}
	n := w.join("a", 1)
	_, e := n.open("x", 1, state.Read, 0)
	w.want(e, nfs4.ErrGrace) // before its own RECLAIM_COMPLETE
	_, e = n.reclaim("x", 1)
	w.want(e, nfs4.ErrNoGrace)
	w.want(w.ReclaimComplete(n.c, false), nfs4.OK)
	n.mustOpen("x", 1)
}

func TestGrace(t *testing.T) {
	w := newWorld(t, state.Limits{})
	for _, owner := range []string{"a", "b"} {
		w.ready(owner, 1).mustOpen("x", 1)
	}
	w.crash()
	a, b, c := w.join("a", 1), w.join("b", 1), w.join("c", 1)
	awaited := func(want ...string) {
		t.Helper()
		w.ok()
		g := w.Snapshot(10).Grace
		if !slices.Equal(g.Awaited, want) || g.Active != w.InGrace() {
			t.Fatalf("grace is %+v, awaited should be %v", g, want)
		}
	}
	awaited("a", "b")
	_, e := c.reclaim("x", 3)
	w.want(e, nfs4.ErrNoGrace) // it is not in the client tracking
	w.want(w.ReclaimComplete(c.c, false), nfs4.OK)
	_, e = c.open("x", 3, state.Read, 0)
	w.want(e, nfs4.ErrGrace)
	w.want(w.CheckSpecial(nfs4.Stateid{}, file1(1), state.Write), nfs4.ErrGrace)
	w.want(w.CheckSpecial(nfs4.BypassStateid(), file1(1), state.Read), nfs4.ErrGrace)
	_, e = w.TestLock(c.c, nil, file1(1), true, 0, 1)
	w.want(e, nfs4.ErrGrace)

	ida, e := a.reclaim("x", 1)
	w.want(e, nfs4.OK)
	w.want(a.reclaimLock(ida, 1, 0, 10), nfs4.OK)
	_, _, e = a.lock(ida, "l", 1, true, 20, 1)
	w.want(e, nfs4.ErrGrace) // not a reclaim
	idb, e := b.reclaim("x", 1)
	w.want(e, nfs4.OK)
	w.want(b.reclaimLock(idb, 1, 5, 10), nfs4.ErrReclaimConflict)
	w.want(w.ReclaimComplete(a.c, true), nfs4.OK) // of one file system: it ends nothing
	awaited("a", "b")
	w.want(w.ReclaimComplete(a.c, false), nfs4.OK)
	w.want(w.ReclaimComplete(a.c, false), nfs4.ErrCompleteAlready)
	awaited("b")
	_, e = a.reclaim("x", 2)
	w.want(e, nfs4.ErrNoGrace) // though b is still at it
	w.want(a.reclaimLock(ida, 1, 30, 10), nfs4.ErrNoGrace)
	_, e = a.open("x", 2, state.Read, 0)
	w.want(e, nfs4.ErrGrace)
	w.want(w.ReclaimComplete(b.c, false), nfs4.OK)
	awaited()
	if w.InGrace() || w.saw(state.GraceEnded) != 1 {
		t.Fatal("all have reclaimed")
	}
	c.mustOpen("x", 3)
	_, _, e = c.lock(c.mustOpen("x", 1), "l", 1, true, 9, 1)
	w.want(e, nfs4.ErrDenied)
	if got := w.tracking.owners(); !slices.Equal(got, []string{"a", "b", "c"}) || len(w.tracking.list) != 3 {
		t.Errorf("the client tracking is %v", w.tracking.list)
	}
}

// While nobody gets answers, the grace period does not run: nobody can reclaim.
func TestGraceWhileNobodyIsAnswered(t *testing.T) {
	w := newWorld(t, state.Limits{})
	w.ready("a", 1).mustOpen("x", 1)
	w.crash()
	w.held = true
	w.pass(lease * 10)
	w.Expire()
	w.held, w.answered = false, w.now
	w.pass(lease*2 - 1)
	w.Expire()
	if !w.InGrace() {
		t.Fatal("the grace period is over before anybody could reclaim")
	}
	w.pass(1)
	w.Expire()
	if w.InGrace() {
		t.Error("the grace period goes on")
	}
}

// After two leases at most the grace is over. Who comes later lost what it had, and
// alone; the disk knows before others can get it.
func TestGraceEndsWithTime(t *testing.T) {
	w := newWorld(t, state.Limits{})
	for _, owner := range []string{"a", "late"} {
		w.ready(owner, 1).mustOpen("x", 1)
	}
	w.crash()
	a := w.join("a", 1)
	_, e := a.reclaim("x", 1)
	w.want(e, nfs4.OK)
	w.want(w.ReclaimComplete(a.c, false), nfs4.OK)
	w.pass(2*lease - 1)
	w.Expire()
	if !w.InGrace() {
		t.Fatal("it ended too early")
	}
	w.pass(1)
	_, e = a.renew()
	w.want(e, nfs4.OK)
	w.tracking.err = errors.New("disk")
	w.Expire()
	if !w.InGrace() {
		t.Fatal("it ended though the client tracking on the disk is as it was")
	}
	w.tracking.err = nil
	w.tracking.before = func(add bool, _ state.TrackedClient) {
		if !add {
			_, e := a.open("x", 2, state.Read, 0)
			w.want(e, nfs4.ErrGrace)
		}
	}
	w.Expire()
	w.tracking.before = nil
	w.ok()
	if w.InGrace() || !slices.Equal(w.tracking.owners(), []string{"a"}) {
		t.Fatalf("the client tracking is %v", w.tracking.list)
	}
	last := w.events[len(w.events)-1]
	if last.Kind != state.GraceEnded || last.Owner != "late" {
		t.Errorf("event %+v", last)
	}
	late := w.join("late", 1)
	_, e = late.reclaim("x", 1)
	w.want(e, nfs4.ErrNoGrace)
	w.want(w.ReclaimComplete(late.c, false), nfs4.OK)
	late.mustOpen("x", 1)
}

// Who is excused is not waited for. Who comes nevertheless is waited for again, and may reclaim; the others can have what the rest
// had only when the client tracking says so.
func TestExcused(t *testing.T) {
	w := newWorld(t, state.Limits{})
	for _, owner := range []string{"well", "dead", "rises"} {
		w.ready(owner, 1).mustOpen("x", 1)
	}
	w.Excuse("well") // there is no grace period
	w.crash()
	awaited := func(want ...string) {
		t.Helper()
		var owners []string
		for _, e := range w.Awaited() {
			owners = append(owners, e.Owner)
			if e.Address != "10.0.0.1" {
				t.Errorf("the address of %s is %q", e.Owner, e.Address)
			}
		}
		slices.Sort(owners)
		if !slices.Equal(owners, want) {
			t.Errorf("awaited are %v, want %v", owners, want)
		}
		w.ok()
	}
	awaited("dead", "rises", "well")
	for range 2 {
		w.Excuse("dead", "rises", "nobody")
	}
	awaited("well")
	well, rises := w.join("well", 1), w.join("rises", 1)
	awaited()
	w.Excuse("rises", "well") // they have come
	_, e := rises.reclaim("x", 1)
	w.want(e, nfs4.OK)
	w.want(w.ReclaimComplete(well.c, false), nfs4.OK)
	w.Excuse("rises")
	if !w.InGrace() {
		t.Fatal("one who reclaims is not waited for")
	}
	w.tracking.before = func(add bool, e state.TrackedClient) {
		if !add && e.Owner == "dead" {
			_, e := well.open("x", 2, state.Read, 0)
			w.want(e, nfs4.ErrGrace)
		}
	}
	w.want(w.ReclaimComplete(rises.c, false), nfs4.OK)
	w.tracking.before = nil
	w.ok()
	if got := w.tracking.owners(); w.InGrace() || !slices.Equal(got, []string{"rises"}) {
		t.Errorf("in grace %t, client tracking %v", w.InGrace(), got)
	}
	if last := w.events[len(w.events)-1]; last.Kind != state.GraceExcused || last.Owner != "dead" || w.saw(state.GraceEnded) != 0 {
		t.Errorf("%+v, the last of all events", last)
	}
	dead := w.join("dead", 1)
	_, e = dead.reclaim("x", 1)
	w.want(e, nfs4.ErrNoGrace)
	w.want(w.ReclaimComplete(dead.c, false), nfs4.OK)
}

// If all are excused, the grace period is over at once, unless the disk can't forget them.
func TestAllExcused(t *testing.T) {
	w := newWorld(t, state.Limits{})
	w.ready("dead", 1).mustOpen("x", 1)
	w.crash()
	w.tracking.err = errors.New("disk")
	w.Excuse("dead")
	if !w.InGrace() {
		t.Fatal("the client could reclaim after the next crash what others have")
	}
	w.tracking.err = nil
	w.Expire()
	if w.InGrace() || len(w.tracking.list) > 0 {
		t.Errorf("in grace %t, client tracking %v", w.InGrace(), w.tracking.list)
	}
}

// A crash in the grace forgets neither those who have reclaimed nor those who have
// not.
func TestSecondCrash(t *testing.T) {
	w := newWorld(t, state.Limits{})
	for _, owner := range []string{"a", "b"} {
		w.ready(owner, 1).mustOpen("x", 1)
	}
	for range 3 {
		w.crash()
		a := w.join("a", 1)
		_, e := a.reclaim("x", 1)
		w.want(e, nfs4.OK)
		w.want(w.ReclaimComplete(a.c, false), nfs4.OK)
		w.ok()
	}
	w.crash()
	for _, owner := range []string{"a", "b"} {
		n := w.join(owner, 1)
		_, e := n.reclaim("x", 1)
		w.want(e, nfs4.OK)
		w.want(w.ReclaimComplete(n.c, false), nfs4.OK)
	}
	if w.InGrace() || len(w.tracking.list) != 2 {
		t.Errorf("in grace %t, client tracking %v", w.InGrace(), w.tracking.list)
	}
}

// RFC 8881 section 8.4.2.1: a client whose lock another one got must not reclaim it
// after a crash, whether that other one has let it go again or not.
func TestEdgeConditions(t *testing.T) {
	for name, between := range map[string]func(w *world, a, b *node){
		"lease over": func(w *world, _, b *node) {
			w.pass(lease + 1)
			_, e := b.renew()
			w.want(e, nfs4.OK)
			id := b.mustOpen("x", 1)
			lock, _, e := b.lock(id, "l", 1, true, 0, 10)
			w.want(e, nfs4.OK)
			_, e = w.Unlock(b.c, lock, file1(1), 0, 10)
			w.want(e, nfs4.OK)
		},
		"too late for the first grace": func(w *world, _, _ *node) {
			w.crash()
			w.pass(2 * lease)
			w.Expire()
		},
		"evicted":              func(w *world, a, _ *node) { w.want(w.Evict(a.c.ID()), nfs4.OK) },
		"evicted in the grace": func(w *world, _, _ *node) { w.crash(); w.want(w.Evict(w.join("a", 1).c.ID()), nfs4.OK) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, state.Limits{})
			a, b := w.ready("a", 1), w.ready("b", 1)
			_, _, e := a.lock(a.mustOpen("x", 1), "l", 1, true, 0, 10)
			w.want(e, nfs4.OK)
			b.mustOpen("x", 2)
			between(w, a, b)
			w.ok()
			w.crash()
			n := w.join("a", 1)
			_, e = n.reclaim("x", 1)
			w.want(e, nfs4.ErrNoGrace)
		})
	}
}
