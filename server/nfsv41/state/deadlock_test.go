package state_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// ring has n nodes, each of which has locked a byte of its own of file 1.
func ring(w *world, n int) (nodes []*node, ids []nfs4.Stateid) {
	w.t.Helper()
	for i := range n {
		node := w.ready(fmt.Sprint("node", i), 1)
		id := node.mustOpen("x", 1)
		_, _, e := node.lock(id, "l", 1, true, uint64(i), 1)
		w.want(e, nfs4.OK)
		nodes, ids = append(nodes, node), append(ids, id)
	}
	return nodes, ids
}

// Who would close a circle gets DEADLOCK, and the others go on when it lets go.
func TestDeadlock(t *testing.T) {
	for n := 2; n <= 4; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			w := newWorld(t, state.Limits{})
			nodes, ids := ring(w, n)
			want := func(i int, want nfs4.Status) {
				t.Helper()
				_, _, e := nodes[i].lock(ids[i], "l", 1, true, uint64((i+1)%n), 1)
				w.want(e, want)
				w.ok()
			}
			for i := range n - 1 {
				want(i, nfs4.ErrDenied)
			}
			want(n-1, nfs4.ErrDeadlock)
			want(n-1, nfs4.ErrDeadlock) // it is not taken to wait
			if got := w.Counts().Waiters; got != n-1 {
				t.Errorf("%d waiters", got)
			}
			w.want(nodes[n-1].w.Close(nodes[n-1].c, ids[n-1], file1(1)), nfs4.OK)
			if len(w.free) != 1 || w.free[0].ClientID != nodes[n-2].c.ID() {
				t.Errorf("told %+v", w.free)
			}
			want(n-2, nfs4.OK)
		})
	}
}

// A waiter may have given up: only one that says again that it waits makes a deadlock.
func TestDeadlockTakesWhoWaits(t *testing.T) {
	w := newWorld(t, state.Limits{})
	nodes, ids := ring(w, 2)
	ask := func(i int, want nfs4.Status) {
		t.Helper()
		_, _, e := nodes[i].lock(ids[i], "l", 1, true, uint64(1-i), 1)
		w.want(e, want)
		w.ok()
	}
	ask(0, nfs4.ErrDenied)
	w.pass(state.FreshFor + time.Second)
	for range 3 {
		ask(1, nfs4.ErrDenied)
		if len(w.free) != 1 || w.free[0].ClientID != nodes[0].c.ID() || w.free[0].Owner != "l" {
			t.Fatalf("told %+v", w.free) // once
		}
	}
	// It has given up, and nobody is told DEADLOCK.
	w.pass(state.FreshFor / 2)
	ask(1, nfs4.ErrDenied)
	// It has not: it is the one that is told.
	ask(0, nfs4.ErrDeadlock)
}

// DEADLOCK comes exactly if a search through all owners finds a circle.
func TestDeadlockModel(t *testing.T) {
	for seed := range uint64(50) {
		deadlockModel(t, rand.New(rand.NewPCG(seed, 19)))
	}
}

func deadlockModel(t *testing.T, r *rand.Rand) {
	const nodes, owners, files, bytes = 3, 2, 2, 3
	type place struct{ file, at int }
	type want struct {
		place
		write bool
	}
	w := newWorld(t, state.Limits{})
	w.fairFor = -1 // it is nobody's turn
	w.unlogged()
	var all []*node
	var ids [nodes][files]nfs4.Stateid
	for i := range nodes {
		all = append(all, w.ready(fmt.Sprint("node", i), 1))
		for f := range files {
			ids[i][f] = all[i].mustOpen("x", f)
		}
	}
	held := map[place]map[int]bool{} // owner to whether it may write
	waits := map[int]map[want]bool{} // of an owner
	blockers := func(owner int, by want) (list []int) {
		for other, write := range held[by.place] {
			if other != owner && (write || by.write) {
				list = append(list, other)
			}
		}
		return list
	}
	var reaches func(from, to int, seen map[int]bool) bool
	reaches = func(from, to int, seen map[int]bool) bool {
		if from == to {
			return true
		}
		if seen[from] {
			return false
		}
		seen[from] = true
		for by := range waits[from] {
			for _, next := range blockers(from, by) {
				if reaches(next, to, seen) {
					return true
				}
			}
		}
		return false
	}
	for range 300 {
		owner := r.IntN(nodes * owners)
		by := want{place{r.IntN(files), r.IntN(bytes)}, r.IntN(2) == 0}
		n, name := all[owner/owners], fmt.Sprint(owner%owners)
		_, _, got := n.lock(ids[owner/owners][by.file], name, by.file, by.write, uint64(by.at), 1)
		model := nfs4.OK
		for _, next := range blockers(owner, by) {
			model = nfs4.ErrDenied
			if reaches(next, owner, map[int]bool{}) {
				model = nfs4.ErrDeadlock
				break
			}
		}
		if got != model {
			t.Fatalf("owner %d, %+v: %v, the model says %v; held %v, waits %v", owner, by, got, model, held, waits)
		}
		switch got {
		case nfs4.OK:
			if held[by.place] == nil {
				held[by.place] = map[int]bool{}
			}
			held[by.place][owner] = by.write
			delete(waits[owner], want{by.place, true})
			delete(waits[owner], want{by.place, false})
		case nfs4.ErrDenied:
			if waits[owner] == nil {
				waits[owner] = map[want]bool{}
			}
			waits[owner][by] = true
		case nfs4.ErrDeadlock:
			delete(waits[owner], by)
		}
		w.ok()
	}
}
