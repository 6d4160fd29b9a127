package state

import (
	"bytes"
	"testing"
)

// Whatever is wrong with a SEQUENCE, the slot stays where it is, and the right one
// succeeds after it.
func TestSequenceErrorsLeaveTheSlot(t *testing.T) {
	w := newWorld(t, Limits{})
	n := w.ready("o", 1)
	good := SequenceArgs{Session: n.session, Slot: 1, Seq: 1, HighestSlot: 1, Digest: 7, Ops: 3, Size: 200, Conn: n.conn}
	for _, c := range []struct {
		name   string
		change func(*SequenceArgs)
		want   Error
	}{
		{"unknown session", func(a *SequenceArgs) { a.Session[0]++ }, ErrBadSession},
		{"slot out of range", func(a *SequenceArgs) { a.Slot = 4 }, ErrBadSlot},
		{"absurd slot", func(a *SequenceArgs) { a.Slot = 1<<32 - 1 }, ErrBadSlot},
		{"highest slot out of range", func(a *SequenceArgs) { a.HighestSlot = 4 }, ErrBadHighSlot},
		{"nothing to replay", func(a *SequenceArgs) { a.Seq = 0 }, ErrSeqMisordered},
		{"ahead", func(a *SequenceArgs) { a.Seq = 2 }, ErrSeqMisordered},
		{"far behind", func(a *SequenceArgs) { a.Seq = 1<<32 - 1 }, ErrSeqMisordered},
		{"too many operations", func(a *SequenceArgs) { a.Ops = 9 }, ErrTooManyOps},
		{"too large", func(a *SequenceArgs) { a.Size = 1<<20 + 1 }, ErrReqTooBig},
		{"reply too large", func(a *SequenceArgs) { a.Reply = 1<<20 + 1 }, ErrRepTooBig},
		{"reply too large to cache", func(a *SequenceArgs) { a.Reply, a.Cache = 4097, true }, ErrRepTooBigToCache},
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
			if e != OK {
				t.Fatalf("after that the right one gets %v", e)
			}
			r.Slot.Done(nil, false)
			good.Seq++
		})
	}
}

func TestRetransmissions(t *testing.T) {
	w := newWorld(t, Limits{})
	n := w.ready("o", 1)
	a := SequenceArgs{Session: n.session, Seq: 1, Digest: 7, Ops: 3, Size: 200, Conn: n.conn}
	r, e := w.Sequence(a)
	w.want(e, OK)
	if r.HighestSlot != 3 || r.TargetHighestSlot != 3 || r.Slot.Client() != n.c || r.Slot.SessionID() != n.session ||
		r.Slot.Fore().MaxResponseCached != 4096 {
		t.Errorf("got %+v", r)
	}
	_, e = w.Sequence(a)
	w.want(e, ErrDelay) // it is being processed
	next := a
	next.Seq++
	_, e = w.Sequence(next)
	w.want(e, ErrSeqMisordered)
	other := a
	other.Digest++
	_, e = w.Sequence(other)
	w.want(e, ErrDelay)

	reply := []byte("the reply")
	r.Slot.Done(reply, true)
	r.Slot.Done([]byte("twice"), true) // has no effect
	clear(reply)                       // the memory is the caller's
	for range 2 {
		r, e = w.Sequence(a)
		w.want(e, OK)
		if string(r.Reply) != "the reply" || r.Slot != nil {
			t.Fatalf("got %+v", r)
		}
	}
	_, e = w.Sequence(other)
	w.want(e, ErrSeqFalseRetry)
	kept := r.Reply
	w.pass(lease + 1)
	_, e = w.Sequence(a)
	w.want(e, OK)
	if w.sessions.leaseOver(n.c) {
		t.Error("a retransmission does not renew the lease")
	}

	// Not cached, and too large to be.
	for _, big := range []int{0, 4097} {
		a.Seq++
		r, e = w.Sequence(a)
		w.want(e, OK)
		r.Slot.Done(bytes.Repeat([]byte("x"), big), big > 0)
		r, e = w.Sequence(a)
		w.want(e, ErrRetryUncachedRep)
		if r.HighestSlot != 3 {
			t.Errorf("SEQUENCE itself can't be answered from %+v", r)
		}
	}
	a.Seq++
	r, e = w.Sequence(a)
	w.want(e, OK)
	r.Slot.Done([]byte("THE OTHER"), true)
	if string(kept) != "the reply" {
		t.Errorf("a reply changed to %q after it was returned", kept)
	}
	w.ok()
}

// The sequence of a slot has no end.
func TestSequenceWrapsAround(t *testing.T) {
	w := newWorld(t, Limits{})
	n := w.ready("o", 1)
	w.sessions.byID[n.session].slots[0].seq = 1<<32 - 2
	n.seq = 1<<32 - 2
	for range 4 {
		n.seq++
		a := SequenceArgs{Session: n.session, Seq: n.seq, Digest: 7, Ops: 1, Conn: n.conn}
		r, e := w.Sequence(a)
		w.want(e, OK)
		r.Slot.Done([]byte("reply"), true)
		r, e = w.Sequence(a)
		w.want(e, OK)
		if string(r.Reply) != "reply" {
			t.Errorf("a retransmission of %d got %+v", a.Seq, r)
		}
	}
	for _, c := range []struct {
		got, current uint32
		want         Error
	}{
		{0, 7, OK},
		{7, 7, OK},
		{6, 7, ErrOldStateid},
		{8, 7, ErrBadStateid},
		{1<<32 - 1, 1, ErrOldStateid},
		{1, 1<<32 - 1, ErrBadStateid},
	} {
		if e := checkSeqid(c.got, c.current, false); e != c.want {
			t.Errorf("seqid %d for %d: %v, want %v", c.got, c.current, e, c.want)
		}
	}
	if nextSeqid(1<<32-1) != 1 {
		t.Error("a seqid became 0, which means the current one")
	}
}
