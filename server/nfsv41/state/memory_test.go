package state_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
	"github.com/podnas/podnas/test/leaks"
)

// What clients can make the server remember has its price: docs tell these figures.
func TestMemory(t *testing.T) {
	const n = 20_000
	// Linux's names of open and lock owners have 28 and 20 bytes.
	owner := func(i int) []byte { return fmt.Appendf(nil, "open id:%020d", i) }
	w := newWorld(t, state.Limits{}).unlogged()
	c := w.ready("o", 1)
	file := func(i int) (k state.FileKey) {
		k = file1(1)
		k.ID[1], k.ID[2], k.ID[3] = byte(i), byte(i>>8), byte(i>>16)
		return k
	}
	each := func(what string, limit int, add func(i int)) {
		before := leaks.LiveHeap()
		for i := range n {
			add(i)
		}
		got := (leaks.LiveHeap() - before) / n
		t.Logf("%s: %d bytes", what, got)
		if got >= limit {
			t.Errorf("%s has %d bytes, want less than %d", what, got, limit)
		}
	}
	ids := make([]nfs4.Stateid, n)
	each("an open of a file of its own", 1024, func(i int) {
		id, _, e := w.Open(c.c, state.OpenArgs{Owner: owner(i), File: file(i), Access: state.Both})
		w.want(e, nfs4.OK)
		ids[i] = id
	})
	each("a lock of an owner of its own", 360, func(i int) {
		_, _, e := w.Lock(c.c, state.LockArgs{
			Stateid: ids[i], NewOwner: true, Owner: owner(i)[:20], File: file(i), Write: true, Length: 1,
		})
		w.want(e, nfs4.OK)
	})
	other := w.ready("other", 1)
	id, _, e := w.Open(other.c, state.OpenArgs{Owner: []byte("x"), File: file1(2), Access: state.Both})
	w.want(e, nfs4.OK)
	lock, _, e := other.lock(id, "l", 2, true, 0, 1)
	w.want(e, nfs4.OK)
	before := leaks.LiveHeap()
	ranges := w.LimitsOf().Ranges - 1
	for i := range ranges {
		_, _, e := w.Lock(other.c, state.LockArgs{
			Stateid: nfs4.Stateid{Other: lock.Other}, File: file1(2), Write: true, Offset: uint64(2*i + 2), Length: 1,
		})
		w.want(e, nfs4.OK)
	}
	got := (leaks.LiveHeap() - before) / ranges
	t.Logf("another range of an owner: %d bytes", got)
	if got >= 200 {
		t.Errorf("another range of an owner has %d bytes", got)
	}
	w.want(w.Evict(c.c.ID()), nfs4.OK)
	w.want(w.Evict(other.c.ID()), nfs4.OK)
	before = leaks.LiveHeap()
	const clients = 2000
	for i := range clients {
		w.ready(fmt.Sprintf("Linux NFSv4.1 node%d", i), 1)
	}
	t.Logf("a client with a session of 4 slots: %d bytes", (leaks.LiveHeap()-before)/clients)
	runtime.KeepAlive(w)
}

// The calls of a READ or WRITE allocate nothing.
func TestAllocations(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n := w.ready("o", 1)
	h := newHeld(t)
	id, _, e := w.Open(n.c, state.OpenArgs{Owner: []byte("x"), File: file1(1), Access: state.Both, Descriptor: h})
	w.want(e, nfs4.OK)
	lock, _, e := n.lock(id, "l", 1, true, 0, 10)
	w.want(e, nfs4.OK)
	conns := []state.Conn{n.conn, newConn("2"), newConn("3")}
	seq := uint32(0)
	compound := func() {
		r, e := w.Sequence(state.SequenceArgs{
			Session: n.session, Seq: seq + 1, Digest: 1, Ops: 3, Size: 200, Conn: conns[seq%3],
		})
		seq++
		w.want(e, nfs4.OK)
		for _, id := range []nfs4.Stateid{id, lock} {
			held, e := w.Check(r.Slot.Client(), id, file1(1), state.Write)
			w.want(e, nfs4.OK)
			held.Release()
		}
		if w.Denies(file1(1), state.Write) || w.CheckSpecial(nfs4.Stateid{}, file1(1), state.Read) != nfs4.OK {
			t.Error("denied")
		}
		r.Slot.Done(nil, false)
	}
	compound()
	compound()
	compound()
	if got := testing.AllocsPerRun(100, compound); got != 0 {
		t.Errorf("%v allocations", got)
	}
	reply := make([]byte, 200)
	cached := func() {
		seq++
		r, e := w.Sequence(state.SequenceArgs{Session: n.session, Seq: seq, Ops: 3, Size: 200, Conn: n.conn})
		w.want(e, nfs4.OK)
		r.Slot.Done(reply, true)
	}
	cached()
	if got := testing.AllocsPerRun(100, cached); got != 0 {
		t.Errorf("%v allocations with a cached reply", got)
	}
}

// BenchmarkRead is what a READ asks of State, by as many clients as processors.
func BenchmarkRead(b *testing.B) {
	s := state.New(state.Config{Lease: lease, Boot: 1})
	b.RunParallel(func(pb *testing.PB) {
		w := &world{State: s, t: b}
		n := w.ready(fmt.Sprintf("%p", pb), 1)
		id := n.mustOpen("x", 1)
		seq := uint32(0)
		for pb.Next() {
			seq++
			r, _ := s.Sequence(state.SequenceArgs{Session: n.session, Seq: seq, Ops: 3, Size: 200, Conn: n.conn})
			_, _ = s.Check(n.c, id, file1(1), state.Read)
			r.Slot.Done(nil, false)
		}
	})
}
