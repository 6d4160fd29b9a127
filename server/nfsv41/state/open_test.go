package state

import (
	"errors"
	"strings"
	"testing"
)

// An open's seqid goes up by one with each OPEN and OPEN_DOWNGRADE, and its
// descriptors live as long as what they are for.
func TestUpgradeAndDowngrade(t *testing.T) {
	w := newWorld(t, Limits{})
	n := w.ready("o", 1)
	open := func(a Access, h Descriptor) Stateid {
		t.Helper()
		id, _, e := w.Open(n.c, OpenArgs{Owner: []byte("x"), File: file1(1), Access: a, Descriptor: h})
		w.want(e, OK)
		w.ok()
		return id
	}
	check := func(id Stateid, a Access, want *fakeHeld) {
		t.Helper()
		h, e := w.Check(n.c, id, file1(1), a)
		if want == nil {
			w.want(e, ErrOpenMode)
			return
		}
		w.want(e, OK)
		if h != want {
			t.Error("Check returned another descriptor")
		}
		h.Release()
	}
	reads, writes, both := newHeld(t), newHeld(t), newHeld(t)
	id := open(Read, reads)
	check(id, Read, reads)
	check(id, Write, nil)
	id = open(Write, writes)
	check(id, Read, reads)
	check(id, Write, writes)
	check(id, Both, writes)
	id = open(Both, both)
	if id.Seqid != 3 {
		t.Errorf("seqid is %d after three OPENs", id.Seqid)
	}
	if both.users.Load() != 0 {
		t.Error("a descriptor that is not needed is kept")
	}
	old := id
	old.Seqid--
	_, e := w.Check(n.c, old, file1(1), Read)
	w.want(e, ErrOldStateid)
	old.Seqid += 2
	_, e = w.Check(n.c, old, file1(1), Read)
	w.want(e, ErrBadStateid)

	id, e = w.Downgrade(n.c, id, file1(1), Write, 0)
	w.want(e, OK)
	w.ok()
	if id.Seqid != 4 || reads.users.Load() != 0 {
		t.Errorf("seqid %d, %d users", id.Seqid, reads.users.Load())
	}
	_, e = w.Downgrade(n.c, id, file1(1), Both, 0)
	w.want(e, ErrInval)
	check(id, Write, writes)
	check(id, Read, nil)

	// A descriptor that is in use outlives the open.
	h, e := w.Check(n.c, id, file1(1), Write)
	w.want(e, OK)
	w.want(w.Close(n.c, id, file1(1)), OK)
	w.ok()
	if writes.users.Load() != 1 {
		t.Errorf("%d users", writes.users.Load())
	}
	h.Release()
	w.want(w.Close(n.c, id, file1(1)), ErrBadStateid)
	w.want(w.Close(n.c, Invalid, file1(1)), ErrBadStateid)
}

// OPEN_DOWNGRADE can only undo OPENs, RFC 8881 section 18.18.3.
func TestDowngradeToWhatWasNotOpened(t *testing.T) {
	w := newWorld(t, Limits{})
	n := w.ready("o", 1)
	id, e := n.open("x", 1, Both, 0)
	w.want(e, OK)
	_, e = w.Downgrade(n.c, id, file1(1), Read, 0)
	w.want(e, ErrInval)
	_, e = n.open("x", 1, Read, 0)
	w.want(e, OK)
	id.Seqid = 0
	got, e := w.Downgrade(n.c, id, file1(1), Read, 0)
	w.want(e, OK)
	if got.Seqid != 3 {
		t.Errorf("seqid is %d; one that failed must not count", got.Seqid)
	}
}

func TestShareReservations(t *testing.T) {
	for _, c := range []struct {
		name                   string
		access, deny           Access
		otherAccess, otherDeny Access
		want                   Error
	}{
		{"none", Both, 0, Both, 0, OK},
		{"denied write", Read, Write, Write, 0, ErrShareDenied},
		{"denied write, reads", Read, Write, Read, 0, OK},
		{"denied read", Write, Read, Read, 0, ErrShareDenied},
		{"both deny write", Read, Write, Read, Write, OK},
		{"denies what is open", Write, 0, Read, Write, ErrShareDenied},
		{"denies nothing that is open", Read, 0, Read, Write, OK},
		{"bad access", Read, 0, 0, 0, ErrInval},
		{"bad deny", Read, 0, Read, 4, ErrInval},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Limits{})
			a, b := w.ready("a", 1), w.ready("b", 1)
			_, e := a.open("x", 1, c.access, c.deny)
			w.want(e, OK)
			args := OpenArgs{Owner: []byte("x"), File: file1(1), Access: c.otherAccess, Deny: c.otherDeny}
			w.want(w.MayOpen(b.c, args), c.want)
			h := newHeld(t)
			args.Descriptor = h
			_, _, e = w.Open(b.c, args)
			w.want(e, c.want)
			w.ok()
			if e != OK && h.users.Load() != 1 {
				t.Error("an OPEN that failed took the descriptor")
			}
		})
	}
}

// READ and WRITE without an open, and those of version 3, respect what is denied.
func TestDeniedWithoutOpen(t *testing.T) {
	w := newWorld(t, Limits{})
	n := w.ready("o", 1)
	if w.Denies(file1(1), Both) {
		t.Error("denied by nobody")
	}
	id, e := n.open("x", 1, Both, Both)
	w.want(e, OK)
	for _, c := range []struct {
		id     Stateid
		file   int
		access Access
		want   Error
	}{
		{Anonymous, 1, Read, ErrLocked},
		{Anonymous, 1, Write, ErrLocked},
		{Anonymous, 2, Both, OK},
		{Bypass, 1, Read, OK},
		{Bypass, 1, Write, ErrLocked},
		{Current, 1, Read, ErrBadStateid},
		{Invalid, 1, Read, ErrBadStateid},
		{id, 1, Read, ErrBadStateid},
	} {
		w.want(w.CheckSpecial(c.id, file1(c.file), c.access), c.want)
	}
	if !w.Denies(file1(1), Write) || w.Denies(file1(2), Write) {
		t.Error("Denies says the wrong thing")
	}
	w.pass(lease + 1) // nobody keeps others away who doesn't answer
	if w.Denies(file1(1), Write) {
		t.Error("denied by a client whose lease is over")
	}
	w.ok()
}

// A stateid is of one client and one file, and one process.
func TestForeignStateids(t *testing.T) {
	w := newWorld(t, Limits{})
	a, b := w.ready("a", 1), w.ready("b", 1)
	id := a.mustOpen("x", 1)
	b.mustOpen("x", 1)
	lock, _, e := a.lock(id, "l", 1, true, 0, 1)
	w.want(e, OK)
	for _, id := range []Stateid{id, lock, Anonymous, Bypass, Current, Invalid} {
		_, e = w.Check(b.c, id, file1(1), Read)
		w.want(e, ErrBadStateid)
		w.want(w.Close(b.c, id, file1(1)), ErrBadStateid)
		w.want(w.TestStateid(b.c, id), ErrBadStateid)
		w.want(w.FreeStateid(b.c, id), ErrBadStateid)
		_, e = w.Unlock(b.c, id, file1(1), 0, 1)
		w.want(e, ErrBadStateid)
		_, _, e = b.lock(id, "l", 1, true, 0, 1)
		w.want(e, ErrBadStateid)
	}
	_, e = w.Check(a.c, id, file1(2), Read)
	w.want(e, ErrBadStateid)
	_, e = w.Check(a.c, lock, file1(1), Write) // a lock's stateid stands for its open
	w.want(e, OK)
	w.want(w.Close(a.c, lock, file1(1)), ErrBadStateid)

	w.crash()
	a = w.join("a", 1)
	w.want(w.TestStateid(a.c, id), ErrBadStateid) // never STALE_STATEID
	_, e = w.Check(a.c, id, file1(1), Read)
	w.want(e, ErrBadStateid)
}

// No state is acknowledged before the client tracking has its client.
func TestTrackingBeforeState(t *testing.T) {
	w := newWorld(t, Limits{})
	n := w.ready("o", 1)
	w.tracking.err = errors.New("disk")
	_, e := n.open("x", 1, Read, 0)
	w.want(e, ErrServerFault)
	w.ok()
	w.tracking.err = nil
	added := 0
	w.tracking.before = func(bool, TrackedClient) {
		added++
		if w.Counts().Opens != 0 {
			t.Error("the open is there before the client tracking is written")
		}
		w.want(w.Evict(n.c.ID()), ErrDelay)
	}
	n.mustOpen("x", 1)
	n.mustOpen("x", 2)
	if added != 1 || w.tracking.owners()[0] != "o" {
		t.Errorf("the client tracking was written %d times, and is %v", added, w.tracking.list)
	}
}

func TestOpenLimits(t *testing.T) {
	w := newWorld(t, Limits{Opens: 10, OwnerBytes: 3000})
	n, other := w.ready("o", 1), w.ready("other", 1)
	var id Stateid
	for i := range 10 {
		id = n.mustOpen("x", i)
	}
	_, e := n.open("x", 10, Read, 0)
	w.want(e, ErrNoSpc)
	n.mustOpen("x", 9) // it is open already
	other.mustOpen("x", 10)
	w.want(w.Close(n.c, Stateid{Other: id.Other}, file1(9)), OK)
	_, e = n.open(strings.Repeat("x", OwnerMax+1), 1, Read, 0)
	w.want(e, ErrInval)
	_, e = n.open(strings.Repeat("x", OwnerMax), 9, Read, 0)
	w.want(e, OK)
	for i := range 2 {
		_, e = other.open(strings.Repeat("x", OwnerMax-1), i, Read, 0)
		w.want(e, OK)
	}
	_, e = other.open(strings.Repeat("x", OwnerMax), 3, Read, 0)
	w.want(e, ErrNoSpc)
	w.ok()
}
