package state_test

import (
	"bytes"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// Whatever is wrong with a SEQUENCE, the slot stays where it is, and the right one
// succeeds after it.
func TestSequenceErrorsLeaveTheSlot(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n := w.ready("o", 1)
	good := state.SequenceArgs{Session: n.session, Slot: 1, Seq: 1, HighestSlot: 1, Digest: 7, Ops: 3, Size: 200, Conn: n.conn}
	for _, c := range []struct {
		name   string
		change func(*state.SequenceArgs)
		want   nfs4.Status
	}{
		{"unknown session", func(a *state.SequenceArgs) { a.Session[0]++ }, nfs4.ErrBadSession},
		{"slot out of range", func(a *state.SequenceArgs) { a.Slot = 4 }, nfs4.ErrBadSlot},
		{"absurd slot", func(a *state.SequenceArgs) { a.Slot = 1<<32 - 1 }, nfs4.ErrBadSlot},
		{"highest slot out of range", func(a *state.SequenceArgs) { a.HighestSlot = 4 }, nfs4.ErrBadHighSlot},
		{"nothing to replay", func(a *state.SequenceArgs) { a.Seq = 0 }, nfs4.ErrSeqMisordered},
		{"ahead", func(a *state.SequenceArgs) { a.Seq = 2 }, nfs4.ErrSeqMisordered},
		{"far behind", func(a *state.SequenceArgs) { a.Seq = 1<<32 - 1 }, nfs4.ErrSeqMisordered},
		{"too many operations", func(a *state.SequenceArgs) { a.Ops = 9 }, nfs4.ErrTooManyOps},
		{"too large", func(a *state.SequenceArgs) { a.Size = 1<<20 + 1 }, nfs4.ErrReqTooBig},
		{"reply too large", func(a *state.SequenceArgs) { a.Reply = 1<<20 + 1 }, nfs4.ErrRepTooBig},
		{"reply too large to cache", func(a *state.SequenceArgs) { a.Reply, a.Cache = 4097, true }, nfs4.ErrRepTooBigToCache},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 3 {
				a := good
				c.change(&a)
				r, e := w.Sequence(a)
				if e != c.want || r.Slot != nil {
					t.Fatalf("got %v, want %v", e, c.want)
				}
				w.ok()
			}
			r, e := w.Sequence(good)
			if e != nfs4.OK {
				t.Fatalf("after that the right one gets %v", e)
			}
			r.Slot.Done(nil, false)
			good.Seq++
		})
	}
}

func TestRetransmissions(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n := w.ready("o", 1)
	a := state.SequenceArgs{Session: n.session, Seq: 1, Digest: 7, Ops: 3, Size: 200, Conn: n.conn}
	r, e := w.Sequence(a)
	w.want(e, nfs4.OK)
	if r.HighestSlot != 3 || r.TargetHighestSlot != 3 || r.Slot.Client() != n.c || r.Slot.SessionID() != n.session ||
		r.Slot.Fore().MaxResponseCached != 4096 {
		t.Errorf("got %+v", r)
	}
	_, e = w.Sequence(a)
	w.want(e, nfs4.ErrDelay) // it is being processed
	next := a
	next.Seq++
	_, e = w.Sequence(next)
	w.want(e, nfs4.ErrSeqMisordered)
	other := a
	other.Digest++
	_, e = w.Sequence(other)
	w.want(e, nfs4.ErrDelay)

	reply := []byte("the reply")
	r.Slot.Done(reply, true)
	r.Slot.Done([]byte("twice"), true) // has no effect
	clear(reply)                       // the memory is the caller's
	for range 2 {
		r, e = w.Sequence(a)
		w.want(e, nfs4.OK)
		if string(r.Reply) != "the reply" || r.Slot != nil {
			t.Fatalf("got %+v", r)
		}
	}
	_, e = w.Sequence(other)
	w.want(e, nfs4.ErrSeqFalseRetry)
	kept := r.Reply
	w.pass(lease + 1)
	_, e = w.Sequence(a)
	w.want(e, nfs4.OK)
	if w.Snapshot(0).Clients[0].Silent {
		t.Error("a retransmission does not renew the lease")
	}

	// Not cached, and too large to be.
	for _, big := range []int{0, 4097} {
		a.Seq++
		r, e = w.Sequence(a)
		w.want(e, nfs4.OK)
		r.Slot.Done(bytes.Repeat([]byte("x"), big), big > 0)
		r, e = w.Sequence(a)
		w.want(e, nfs4.ErrRetryUncachedRep)
		if r.HighestSlot != 3 {
			t.Errorf("SEQUENCE itself can't be answered from %+v", r)
		}
	}
	a.Seq++
	r, e = w.Sequence(a)
	w.want(e, nfs4.OK)
	r.Slot.Done([]byte("THE OTHER"), true)
	if string(kept) != "the reply" {
		t.Errorf("a reply changed to %q after it was returned", kept)
	}
	w.ok()
}

// The sequence of a slot has no end.
func TestSequenceWrapsAround(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n := w.ready("o", 1)
	open := n.mustOpen("x", 1)
	// next has the seqids of the next process be others.
	next := func(slot, stateid uint32) {
		b := changed(t, w.save(), func(list []state.Record) []state.Record {
			for _, r := range list {
				if r.Session != nil {
					r.Session.Slots[0].Seq = slot
				}
				if r.Open != nil {
					r.Open.Seqid = stateid
				}
			}
			return list
		})
		if err := w.restore(b, noFile); err != nil {
			t.Fatal(err)
		}
		n.c = w.Client(n.c.ID())
	}
	next(1<<32-2, 1)
	n.seq = 1<<32 - 2
	for range 4 {
		n.seq++
		a := state.SequenceArgs{Session: n.session, Seq: n.seq, Digest: 7, Ops: 1, Conn: n.conn}
		r, e := w.Sequence(a)
		w.want(e, nfs4.OK)
		r.Slot.Done([]byte("reply"), true)
		r, e = w.Sequence(a)
		w.want(e, nfs4.OK)
		if string(r.Reply) != "reply" {
			t.Errorf("a retransmission of %d got %+v", a.Seq, r)
		}
	}
	for _, c := range []struct {
		got, current uint32
		want         nfs4.Status
	}{
		{0, 7, nfs4.OK},
		{7, 7, nfs4.OK},
		{6, 7, nfs4.ErrOldStateid},
		{8, 7, nfs4.ErrBadStateid},
		{1<<32 - 1, 1, nfs4.ErrOldStateid},
		{1, 1<<32 - 1, nfs4.ErrBadStateid},
	} {
		next(1, c.current)
		if e := w.TestStateid(n.c, nfs4.Stateid{Seqid: c.got, Other: open.Other}); e != c.want {
			t.Errorf("seqid %d for %d: %v, want %v", c.got, c.current, e, c.want)
		}
	}
	if id := n.mustOpen("x", 1); id.Seqid != 1 {
		t.Error("a seqid became 0, which means the current one")
	}
}
