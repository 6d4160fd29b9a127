package state_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// An open's seqid goes up by one with each OPEN and OPEN_DOWNGRADE, and its
// descriptors live as long as what they are for.
func TestUpgradeAndDowngrade(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n := w.ready("o", 1)
	open := func(a state.Access, h state.Descriptor) nfs4.Stateid {
		t.Helper()
		id, _, e := w.Open(n.c, state.OpenArgs{Owner: []byte("x"), File: file1(1), Access: a, Descriptor: h})
		w.want(e, nfs4.OK)
		w.ok()
		return id
	}
	check := func(id nfs4.Stateid, a state.Access, want *fakeHeld) {
		t.Helper()
		h, e := w.Check(n.c, id, file1(1), a)
		if want == nil {
			w.want(e, nfs4.ErrOpenMode)
			return
		}
		w.want(e, nfs4.OK)
		if h != want {
			t.Error("Check returned another descriptor")
		}
		h.Release()
	}
	reads, writes, both := newHeld(t), newHeld(t), newHeld(t)
	id := open(state.Read, reads)
	check(id, state.Read, reads)
	check(id, state.Write, nil)
	id = open(state.Write, writes)
	check(id, state.Read, reads)
	check(id, state.Write, writes)
	check(id, state.Both, writes)
	id = open(state.Both, both)
	if id.Seqid != 3 {
		t.Errorf("seqid is %d after three OPENs", id.Seqid)
	}
	if both.users.Load() != 0 {
		t.Error("a descriptor that is not needed is kept")
	}
	old := id
	old.Seqid--
	_, e := w.Check(n.c, old, file1(1), state.Read)
	w.want(e, nfs4.ErrOldStateid)
	old.Seqid += 2
	_, e = w.Check(n.c, old, file1(1), state.Read)
	w.want(e, nfs4.ErrBadStateid)

	id, e = w.Downgrade(n.c, id, file1(1), state.Write, 0)
	w.want(e, nfs4.OK)
	w.ok()
	if id.Seqid != 4 || reads.users.Load() != 0 {
		t.Errorf("seqid %d, %d users", id.Seqid, reads.users.Load())
	}
	_, e = w.Downgrade(n.c, id, file1(1), state.Both, 0)
	w.want(e, nfs4.ErrInval)
	check(id, state.Write, writes)
	check(id, state.Read, nil)

	// A descriptor that is in use outlives the open.
	h, e := w.Check(n.c, id, file1(1), state.Write)
	w.want(e, nfs4.OK)
	w.want(w.Close(n.c, id, file1(1)), nfs4.OK)
	w.ok()
	if writes.users.Load() != 1 {
		t.Errorf("%d users", writes.users.Load())
	}
	h.Release()
	w.want(w.Close(n.c, id, file1(1)), nfs4.ErrBadStateid)
	w.want(w.Close(n.c, nfs4.InvalidStateid(), file1(1)), nfs4.ErrBadStateid)
}

// OPEN_DOWNGRADE can only undo OPENs, RFC 8881 section 18.18.3.
func TestDowngradeToWhatWasNotOpened(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n := w.ready("o", 1)
	id, e := n.open("x", 1, state.Both, 0)
	w.want(e, nfs4.OK)
	_, e = w.Downgrade(n.c, id, file1(1), state.Read, 0)
	w.want(e, nfs4.ErrInval)
	_, e = n.open("x", 1, state.Read, 0)
	w.want(e, nfs4.OK)
	id.Seqid = 0
	got, e := w.Downgrade(n.c, id, file1(1), state.Read, 0)
	w.want(e, nfs4.OK)
	if got.Seqid != 3 {
		t.Errorf("seqid is %d; one that failed must not count", got.Seqid)
	}
}

func TestShareReservations(t *testing.T) {
	for _, c := range []struct {
		name                   string
		access, deny           state.Access
		otherAccess, otherDeny state.Access
		want                   nfs4.Status
	}{
		{"none", state.Both, 0, state.Both, 0, nfs4.OK},
		{"denied write", state.Read, state.Write, state.Write, 0, nfs4.ErrShareDenied},
		{"denied write, reads", state.Read, state.Write, state.Read, 0, nfs4.OK},
		{"denied read", state.Write, state.Read, state.Read, 0, nfs4.ErrShareDenied},
		{"both deny write", state.Read, state.Write, state.Read, state.Write, nfs4.OK},
		{"denies what is open", state.Write, 0, state.Read, state.Write, nfs4.ErrShareDenied},
		{"denies nothing that is open", state.Read, 0, state.Read, state.Write, nfs4.OK},
		{"bad access", state.Read, 0, 0, 0, nfs4.ErrInval},
		{"bad deny", state.Read, 0, state.Read, 4, nfs4.ErrInval},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, state.Limits{})
			a, b := w.ready("a", 1), w.ready("b", 1)
			_, e := a.open("x", 1, c.access, c.deny)
			w.want(e, nfs4.OK)
			args := state.OpenArgs{Owner: []byte("x"), File: file1(1), Access: c.otherAccess, Deny: c.otherDeny}
			w.want(w.MayOpen(b.c, args), c.want)
			h := newHeld(t)
			args.Descriptor = h
			_, _, e = w.Open(b.c, args)
			w.want(e, c.want)
			w.ok()
			if e != nfs4.OK && h.users.Load() != 1 {
				t.Error("an OPEN that failed took the descriptor")
			}
		})
	}
}

// READ and WRITE without an open, and those of version 3, respect what is denied.
func TestDeniedWithoutOpen(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n := w.ready("o", 1)
	if w.Denies(file1(1), state.Both) {
		t.Error("denied by nobody")
	}
	id, e := n.open("x", 1, state.Both, state.Both)
	w.want(e, nfs4.OK)
	for _, c := range []struct {
		id     nfs4.Stateid
		file   int
		access state.Access
		want   nfs4.Status
	}{
		{nfs4.Stateid{}, 1, state.Read, nfs4.ErrLocked},
		{nfs4.Stateid{}, 1, state.Write, nfs4.ErrLocked},
		{nfs4.Stateid{}, 2, state.Both, nfs4.OK},
		{nfs4.BypassStateid(), 1, state.Read, nfs4.OK},
		{nfs4.BypassStateid(), 1, state.Write, nfs4.ErrLocked},
		{nfs4.CurrentStateid(), 1, state.Read, nfs4.ErrBadStateid},
		{nfs4.InvalidStateid(), 1, state.Read, nfs4.ErrBadStateid},
		{id, 1, state.Read, nfs4.ErrBadStateid},
	} {
		w.want(w.CheckSpecial(c.id, file1(c.file), c.access), c.want)
	}
	if !w.Denies(file1(1), state.Write) || w.Denies(file1(2), state.Write) {
		t.Error("Denies says the wrong thing")
	}
	w.pass(lease + 1) // nobody keeps others away who doesn't answer
	if w.Denies(file1(1), state.Write) {
		t.Error("denied by a client whose lease is over")
	}
	w.ok()
}

// A stateid is of one client and one file, and one process.
func TestForeignStateids(t *testing.T) {
	w := newWorld(t, state.Limits{})
	a, b := w.ready("a", 1), w.ready("b", 1)
	id := a.mustOpen("x", 1)
	b.mustOpen("x", 1)
	lock, _, e := a.lock(id, "l", 1, true, 0, 1)
	w.want(e, nfs4.OK)
	for _, id := range []nfs4.Stateid{id, lock, {}, nfs4.BypassStateid(), nfs4.CurrentStateid(), nfs4.InvalidStateid()} {
		_, e = w.Check(b.c, id, file1(1), state.Read)
		w.want(e, nfs4.ErrBadStateid)
		w.want(w.Close(b.c, id, file1(1)), nfs4.ErrBadStateid)
		w.want(w.TestStateid(b.c, id), nfs4.ErrBadStateid)
		w.want(w.FreeStateid(b.c, id), nfs4.ErrBadStateid)
		_, e = w.Unlock(b.c, id, file1(1), 0, 1)
		w.want(e, nfs4.ErrBadStateid)
		_, _, e = b.lock(id, "l", 1, true, 0, 1)
		w.want(e, nfs4.ErrBadStateid)
	}
	_, e = w.Check(a.c, id, file1(2), state.Read)
	w.want(e, nfs4.ErrBadStateid)
	_, e = w.Check(a.c, lock, file1(1), state.Write) // a lock's stateid stands for its open
	w.want(e, nfs4.OK)
	w.want(w.Close(a.c, lock, file1(1)), nfs4.ErrBadStateid)

	w.crash()
	a = w.join("a", 1)
	w.want(w.TestStateid(a.c, id), nfs4.ErrBadStateid) // never STALE_STATEID
	_, e = w.Check(a.c, id, file1(1), state.Read)
	w.want(e, nfs4.ErrBadStateid)
}

// No state is acknowledged before the client tracking has its client.
func TestTrackingBeforeState(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n := w.ready("o", 1)
	w.tracking.err = errors.New("disk")
	_, e := n.open("x", 1, state.Read, 0)
	w.want(e, nfs4.ErrServerFault)
	w.ok()
	w.tracking.err = nil
	added := 0
	w.tracking.before = func(bool, state.TrackedClient) {
		added++
		if w.Counts().Opens != 0 {
			t.Error("the open is there before the client tracking is written")
		}
		w.want(w.Evict(n.c.ID()), nfs4.ErrDelay)
	}
	n.mustOpen("x", 1)
	n.mustOpen("x", 2)
	if added != 1 || w.tracking.owners()[0] != "o" {
		t.Errorf("the client tracking was written %d times, and is %v", added, w.tracking.list)
	}
}

func TestOpenLimits(t *testing.T) {
	w := newWorld(t, state.Limits{Opens: 10, OwnerBytes: 3000})
	n, other := w.ready("o", 1), w.ready("other", 1)
	var id nfs4.Stateid
	for i := range 10 {
		id = n.mustOpen("x", i)
	}
	_, e := n.open("x", 10, state.Read, 0)
	w.want(e, nfs4.ErrNoSpc)
	n.mustOpen("x", 9) // it is open already
	other.mustOpen("x", 10)
	w.want(w.Close(n.c, nfs4.Stateid{Other: id.Other}, file1(9)), nfs4.OK)
	_, e = n.open(strings.Repeat("x", state.OwnerMax+1), 1, state.Read, 0)
	w.want(e, nfs4.ErrInval)
	_, e = n.open(strings.Repeat("x", state.OwnerMax), 9, state.Read, 0)
	w.want(e, nfs4.OK)
	for i := range 2 {
		_, e = other.open(strings.Repeat("x", state.OwnerMax-1), i, state.Read, 0)
		w.want(e, nfs4.OK)
	}
	_, e = other.open(strings.Repeat("x", state.OwnerMax), 3, state.Read, 0)
	w.want(e, nfs4.ErrNoSpc)
	w.ok()
}

// What clients hold of a volume that has ended goes, with the descriptors; of others it stays. A process that goes on
// with the log knows it.
func TestForgetVolume(t *testing.T) {
	w := newWorld(t, state.Limits{})
	w.startLog()
	n, other := w.ready("o", 1), w.ready("other", 1)
	ended := file1(1)
	ended.Volume = 2
	open := func(n *node, owner string, f state.FileKey) (nfs4.Stateid, *fakeHeld) {
		t.Helper()
		h := newHeld(t)
		id, _, e := w.Open(n.c, state.OpenArgs{Owner: []byte(owner), File: f, Access: state.Both, Descriptor: h})
		w.want(e, nfs4.OK)
		return id, h
	}
	stays, kept := open(n, "x", file1(1))
	first, held := open(n, "x", ended)
	_, heldToo := open(n, "y", ended)
	second, heldByOther := open(other, "x", ended)
	lock := func(n *node, id nfs4.Stateid) nfs4.Status {
		_, _, e := w.Lock(n.c, state.LockArgs{Stateid: id, NewOwner: true, Owner: []byte("l"), File: ended, Write: true, Wait: true, Length: 1})
		return e
	}
	w.want(lock(n, first), nfs4.OK)
	w.want(lock(other, second), nfs4.ErrDenied)
	w.ok()
	w.ForgetVolume(3)
	if n := w.Counts(); n.Opens != 4 {
		t.Errorf("%d opens after a volume that nobody has open", n.Opens)
	}
	w.ForgetVolume(2)
	w.ok()
	for i, h := range []*fakeHeld{held, heldToo, heldByOther} {
		if users := h.users.Load(); users != 0 {
			t.Errorf("descriptor %d has %d users", i, users)
		}
	}
	if users, c := kept.users.Load(), w.Counts(); users == 0 || c.Opens != 1 || c.Locks != 0 || c.Waiters != 0 {
		t.Errorf("%d users of what stays, of %+v", users, c)
	}
	w.want(w.Close(n.c, first, ended), nfs4.ErrBadStateid)
	w.want(w.TestStateid(n.c, second), nfs4.ErrBadStateid)
	w.checkLog()
	w.dies()
	if c := w.Counts(); c.Opens != 1 {
		t.Errorf("the next process has %+v", c)
	}
	n.c = w.Client(n.c.ID())
	w.want(w.Close(n.c, stays, file1(1)), nfs4.OK)
}
