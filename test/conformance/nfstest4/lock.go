package nfstest4

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
)

// lockTests are byte-range locks: RFC 8881 sections 9.1 to 9.5, 18.10 to 18.12, and
// FREE_STATEID and TEST_STATEID, 18.38 and 18.48.
var lockTests = []test{
	{"ranges refused", testLockRanges},
	{"refused", testLockRefused},
	{"seqid", testLockSeqid},
	{"who is in the way", testDenied},
	{"of the largest offset", testLockEnd},
	{"against a model", testLockModel},
	{"upgrade", testLockUpgrade},
	{"blocking", testLockBlocking},
	{"beside one that waited", testLockAfterWaiter},
	{"close", testLockClose},
	{"free stateid", testFreeStateid},
	{"test stateid", testTestStateid},
	{"read and write", testLockIO},
}

// locker is a lock owner of a client with a file open.
type locker struct {
	*client
	fh     nfs4.FH
	owner  string
	openID nfs4.Stateid
	id     nfs4.Stateid // once it has locked
}

func (e *env) locker(c *client, owner string) *locker {
	e.Helper()
	fh, id := c.open(e.dir, opening{name: "locked", create: true, owner: owner})
	return &locker{client: c, fh: fh, owner: owner, openID: id}
}

func (l *locker) args(kind nfs4.LockType, offset, length uint64) nfs4.LockArgs {
	a := nfs4.LockArgs{Type: kind, Offset: offset, Length: length}
	if l.id == (nfs4.Stateid{}) {
		a.NewOwner, a.OpenStateid, a.Owner = true, l.openID, nfs4.StateOwner{ClientID: l.client.id, Owner: []byte(l.owner)}
	} else {
		a.LockStateid = l.id
	}
	return a
}

// lock locks, and returns the status.
func (l *locker) lock(kind nfs4.LockType, offset, length uint64) nfs4.Status {
	l.Helper()
	r := l.do(putfh(l.fh), lock(l.args(kind, offset, length)))
	if r.status == nfs4.OK {
		l.id = get[nfs4.LockRes](l, r).Stateid
	}
	return r.status
}

func (l *locker) unlock(offset, length uint64) nfs4.Status {
	l.Helper()
	r := l.do(putfh(l.fh), locku(l.id, offset, length))
	if r.status == nfs4.OK {
		l.id = get[nfs4.StateidRes](l, r).Stateid
	}
	return r.status
}

// test is LOCKT.
func (l *locker) test(kind nfs4.LockType, offset, length uint64) (nfs4.Status, nfs4.LockDenied) {
	l.Helper()
	r := l.do(putfh(l.fh), lockt(nfs4.LocktArgs{Type: kind, Offset: offset, Length: length, Owner: nfs4.StateOwner{ClientID: l.client.id, Owner: []byte(l.owner)}}))
	return r.status, get[nfs4.LocktRes](l, r).Denied
}

func (l *locker) want(what string, got, want nfs4.Status) {
	l.Helper()
	if got != want {
		l.Errorf("%s: %v, want %v", what, got, want)
	}
}

// Section 18.10.3.
func testLockRanges(e *env) {
	l := e.locker(e.client, "l")
	for _, tt := range []struct{ offset, length uint64 }{
		{0, 0}, {5, 0}, {math.MaxUint64, 0}, {1, math.MaxUint64 - 0}, {2, math.MaxUint64 - 1}, {math.MaxUint64, 1}, {math.MaxUint64 - 1, 2}, {1 << 63, 1 << 63},
	} {
		want := nfs4.ErrInval
		if tt.length == math.MaxUint64 {
			continue // to the end
		}
		e.Run(fmt.Sprintf("%x-%x", tt.offset, tt.length), func(t *testing.T) {
			l := *l
			l.client = e.with(t)
			l.want("LOCK", l.lock(nfs4.LockWrite, tt.offset, tt.length), want)
			s, _ := l.test(nfs4.LockWrite, tt.offset, tt.length)
			l.want("LOCKT", s, want)
		})
	}
	l.want("LOCK", l.lock(nfs4.LockWrite, 10, 10), nfs4.OK)
	l.want("LOCKU of nothing", l.unlock(0, 0), nfs4.ErrInval)
	l.want("LOCKU past the end", l.unlock(2, math.MaxUint64-1), nfs4.ErrInval)
	l.want("LOCKU of what is not locked", l.unlock(1000, 10), nfs4.OK)
	s, _ := e.locker(e.another(), "m").test(nfs4.LockRead, 10, 1)
	l.want("it is locked still", s, nfs4.ErrDenied)
}

// Section 18.10.3 and .4.
func testLockRefused(e *env) {
	l := e.locker(e.client, "l")
	_, reader := e.client.open(e.dir, opening{name: "locked", owner: "r", access: nfs4.ShareAccessRead})
	_, writer := e.client.open(e.dir, opening{name: "locked", owner: "w", access: nfs4.ShareAccessWrite})
	other := e.file("other", "")
	byOpen := func(id nfs4.Stateid, kind nfs4.LockType) nfs4.LockArgs {
		return nfs4.LockArgs{Type: kind, Length: 1, NewOwner: true, OpenStateid: id, Owner: nfs4.StateOwner{Owner: []byte("x")}}
	}
	byLock := nfs4.LockArgs{Type: nfs4.LockWrite, Length: 1, LockStateid: l.openID}
	old := l.openID
	_, l.openID = e.client.open(e.dir, opening{name: "locked", owner: "l"})
	reclaim := l.args(nfs4.LockWrite, 0, 1)
	reclaim.Reclaim = true
	e.expect([]expect{
		{"write lock of an open to read", []op{putfh(l.fh), lock(byOpen(reader, nfs4.LockWrite))}, is(nfs4.ErrOpenMode)},
		{"read lock of an open to write", []op{putfh(l.fh), lock(byOpen(writer, nfs4.LockRead))}, is(nfs4.ErrOpenMode)},
		{"old stateid", []op{putfh(l.fh), lock(byOpen(old, nfs4.LockWrite))}, is(nfs4.ErrOldStateid)},
		{"special stateid", []op{putfh(l.fh), lock(byOpen(nfs4.Stateid{}, nfs4.LockWrite))}, is(nfs4.ErrBadStateid)},
		{"stateid of an open for that of a lock", []op{putfh(l.fh), lock(byLock)}, is(nfs4.ErrBadStateid)},
		{"of another file", []op{putfh(other), lock(byOpen(l.openID, nfs4.LockWrite))}, is(nfs4.ErrBadStateid)},
		{"reclaim without a grace period", []op{putfh(l.fh), lock(reclaim)}, is(nfs4.ErrNoGrace)},
		{"directory", []op{putfh(e.dir), lock(byOpen(l.openID, nfs4.LockWrite))}, is(nfs4.ErrIsDir)},
		{"test of a directory", []op{putfh(e.dir), lockt(nfs4.LocktArgs{Type: nfs4.LockRead, Length: 1, Owner: nfs4.StateOwner{Owner: []byte("l")}})}, is(nfs4.ErrIsDir)},
		{"unlock by an open", []op{putfh(l.fh), locku(l.openID, 0, 1)}, is(nfs4.ErrBadStateid)},
	})
	e.another().refused([]op{putfh(l.fh), lock(byOpen(l.openID, nfs4.LockWrite))}, nfs4.ErrBadStateid)
	l.want("LOCK", l.lock(nfs4.LockWrite, 0, 1), nfs4.OK)
	e.another().refused([]op{putfh(l.fh), locku(l.id, 0, 1)}, nfs4.ErrBadStateid)
	e.refused([]op{putfh(other), locku(l.id, 0, 1)}, nfs4.ErrBadStateid)
	e.refused([]op{putfh(l.fh), closeOp(l.id)}, nfs4.ErrBadStateid)
}

// Section 8.2.2: a lock owner's stateid begins at 1, and rises with each LOCK and LOCKU; a
// refused one leaves it.
func testLockSeqid(e *env) {
	l := e.locker(e.client, "l")
	l.want("LOCK", l.lock(nfs4.LockWrite, 0, 10), nfs4.OK)
	want := l.id
	if want.Seqid != 1 || want.Other == l.openID.Other {
		e.Errorf("%+v; the open's is %+v", want, l.openID)
	}
	first := l.id
	for range 3 {
		l.want("LOCK", l.lock(nfs4.LockRead, 20, 10), nfs4.OK)
		if want.Seqid++; l.id != want {
			e.Fatalf("%+v, want %+v", l.id, want)
		}
		l.want("LOCKU", l.unlock(20, 5), nfs4.OK)
		if want.Seqid++; l.id != want {
			e.Fatalf("%+v, want %+v", l.id, want)
		}
	}
	e.refused([]op{putfh(l.fh), locku(first, 0, 1)}, nfs4.ErrOldStateid)
	// The same owner as a new one is the same.
	id := l.id
	l.id = nfs4.Stateid{}
	l.want("LOCK of a new owner that is known", l.lock(nfs4.LockWrite, 100, 1), nfs4.OK)
	if l.id.Other != id.Other || l.id.Seqid != id.Seqid+1 {
		e.Errorf("%+v, want the one after %+v", l.id, id)
	}
}

// Sections 18.10.3 and 18.11.3: the reply says which lock is in the way, and whose.
func testDenied(e *env) {
	l := e.locker(e.client, "first \x00\xff owner")
	l.want("LOCK", l.lock(nfs4.LockWrite, 100, 50), nfs4.OK)
	m := e.locker(e.another(), "second")
	check := func(what string, d nfs4.LockDenied) {
		e.Helper()
		if d.Offset != 100 || d.Length != 50 || d.Type != nfs4.LockWrite || string(d.Owner.Owner) != l.owner || d.Owner.ClientID != l.client.id {
			e.Errorf("%s: %+v of %x", what, d, l.client.id)
		}
	}
	r := m.do(putfh(m.fh), lock(m.args(nfs4.LockRead, 120, 100)))
	m.wants(r, nfs4.OpLock, 3, nfs4.ErrDenied)
	check("LOCK", get[nfs4.LockRes](e, r).Denied)
	s, d := m.test(nfs4.LockWrite, 0, math.MaxUint64)
	m.want("LOCKT", s, nfs4.ErrDenied)
	check("LOCKT", d)
	for _, free := range []uint64{99, 150} {
		s, _ = m.test(nfs4.LockWrite, free, 1)
		m.want(fmt.Sprint("LOCKT of ", free), s, nfs4.OK)
	}
	s, _ = l.test(nfs4.LockWrite, 0, math.MaxUint64)
	l.want("LOCKT of one's own lock", s, nfs4.OK)
	other := e.locker(e.client, "other owner")
	s, d = other.test(nfs4.LockRead, 100, 1)
	other.want("LOCKT by another owner of the same client", s, nfs4.ErrDenied)
	check("LOCKT", d)
	other.want("LOCK by another owner of the same client", other.lock(nfs4.LockRead, 149, 1), nfs4.ErrDenied)
	l.want("LOCKU", l.unlock(0, math.MaxUint64), nfs4.OK)
	m.want("LOCK", m.lock(nfs4.LockRead, 120, 100), nfs4.OK)
}

// Section 18.10.3: a length of all ones is to the end of the largest file.
func testLockEnd(e *env) {
	l, m := e.locker(e.client, "l"), e.locker(e.another(), "m")
	l.want("LOCK", l.lock(nfs4.LockWrite, 1<<63, math.MaxUint64), nfs4.OK)
	for offset, want := range map[uint64]nfs4.Status{
		1<<63 - 1: nfs4.OK, 1 << 63: nfs4.ErrDenied, math.MaxUint64 - 1: nfs4.ErrDenied,
	} {
		s, d := m.test(nfs4.LockRead, offset, 1)
		m.want(fmt.Sprintf("LOCKT of %x", offset), s, want)
		if s == nfs4.ErrDenied && (d.Offset != 1<<63 || d.Length != math.MaxUint64) {
			e.Errorf("%+v", d)
		}
	}
	s, _ := m.test(nfs4.LockRead, math.MaxUint64, math.MaxUint64)
	m.want("LOCKT of the last byte", s, nfs4.ErrDenied)
	l.want("LOCKU of the middle", l.unlock(1<<63+10, 10), nfs4.OK)
	m.want("LOCK of the middle", m.lock(nfs4.LockWrite, 1<<63+10, 10), nfs4.OK)
	s, _ = m.test(nfs4.LockWrite, 1<<63+20, 1)
	m.want("LOCKT after the middle", s, nfs4.ErrDenied)
	l.want("LOCKU of all", l.unlock(0, math.MaxUint64), nfs4.OK)
	m.want("LOCK of all", m.lock(nfs4.LockWrite, 0, math.MaxUint64), nfs4.OK)
}

// Sections 9.5 and 18.10.4, as POSIX has it: any ranges split, join and change their type, through whatever open of the owner.
func testLockModel(e *env) {
	const size = 16
	lockers := []*locker{e.locker(e.client, "a"), e.locker(e.client, "b"), e.locker(e.another(), "a"), e.locker(e.client, "opened again")}
	lockers[3].owner = "a"
	watcher := e.locker(e.another(), "watcher")
	var model [3][size]nfs4.LockType // by owner; 0: not locked
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		by, from := rnd.IntN(len(lockers)), rnd.IntN(size)
		who := by % len(model)
		n := 1 + rnd.IntN(size-from)
		kind := nfs4.LockType(rnd.IntN(3)) // 0: unlock
		l := lockers[by]
		what := fmt.Sprintf("step %d: %d of %d, %d by %d", i, kind, from, n, by)
		if kind == 0 {
			if l.id == (nfs4.Stateid{}) {
				continue
			}
			l.want(what, l.unlock(uint64(from), uint64(n)), nfs4.OK)
		} else {
			want := nfs4.OK
			for o := range model {
				for b := from; b < from+n; b++ {
					if o != who && (model[o][b] == nfs4.LockWrite || model[o][b] != 0 && kind == nfs4.LockWrite) {
						want = nfs4.ErrDenied
					}
				}
			}
			l.want(what, l.lock(kind, uint64(from), uint64(n)), want)
			if want != nfs4.OK {
				continue
			}
		}
		for b := from; b < from+n; b++ {
			model[who][b] = kind
		}
		for b := range size {
			for _, asked := range []nfs4.LockType{nfs4.LockRead, nfs4.LockWrite} {
				want := nfs4.OK
				for o := range model {
					if model[o][b] == nfs4.LockWrite || model[o][b] != 0 && asked == nfs4.LockWrite {
						want = nfs4.ErrDenied
					}
				}
				if rnd.IntN(6) > 0 {
					continue
				}
				s, d := watcher.test(asked, uint64(b), 1)
				watcher.want(fmt.Sprintf("%s: LOCKT %d of %d", what, asked, b), s, want)
				if s == nfs4.ErrDenied && (uint64(b) < d.Offset || uint64(b) >= d.Offset+d.Length) {
					e.Errorf("%s: byte %d is denied by %+v", what, b, d)
				}
			}
		}
		if e.Failed() {
			return
		}
	}
}

// Section 9.4: from a read lock to a write lock, if nobody else reads, and back.
func testLockUpgrade(e *env) {
	l, m := e.locker(e.client, "l"), e.locker(e.another(), "m")
	l.want("read lock", l.lock(nfs4.LockRead, 0, 10), nfs4.OK)
	m.want("another", m.lock(nfs4.LockRead, 5, 10), nfs4.OK)
	l.want("upgrade against it", l.lock(nfs4.LockWrite, 0, 10), nfs4.ErrDenied)
	s, _ := m.test(nfs4.LockWrite, 0, 1)
	m.want("the read lock is still there", s, nfs4.ErrDenied)
	l.want("upgrade of the rest", l.lock(nfs4.LockWrite, 0, 5), nfs4.OK)
	m.want("LOCKU", m.unlock(5, 10), nfs4.OK)
	l.want("upgrade of all", l.lock(nfs4.LockWrite, 0, 10), nfs4.OK)
	m.want("read lock against it", m.lock(nfs4.LockRead, 9, 1), nfs4.ErrDenied)
	l.want("downgrade", l.lock(nfs4.LockRead, 0, 10), nfs4.OK)
	m.want("read lock beside it", m.lock(nfs4.LockRead, 9, 1), nfs4.OK)
}

// Section 9.6: who may wait is denied like everyone, and gets the lock when it is free.
func testLockBlocking(e *env) {
	l, m := e.locker(e.client, "l"), e.locker(e.another(), "m")
	l.want("LOCK", l.lock(nfs4.LockWriteWait, 0, 10), nfs4.OK)
	m.want("LOCK that may wait", m.lock(nfs4.LockWriteWait, 0, 10), nfs4.ErrDenied)
	m.want("LOCK that may wait, to read", m.lock(nfs4.LockReadWait, 0, 10), nfs4.ErrDenied)
	l.want("LOCKU", l.unlock(0, 10), nfs4.OK)
	m.want("LOCK again", m.lock(nfs4.LockWriteWait, 0, 10), nfs4.OK)
	l.want("LOCK of the first", l.lock(nfs4.LockWriteWait, 0, 10), nfs4.ErrDenied)
}

// A lock that is free is given to who does not wait, as LOCKT says, though another has waited for it: that may have been killed.
func testLockAfterWaiter(e *env) {
	l, m := e.locker(e.client, "l"), e.locker(e.another(), "m")
	l.want("LOCK", l.lock(nfs4.LockWriteWait, 0, 10), nfs4.OK)
	m.want("LOCK that may wait", m.lock(nfs4.LockWriteWait, 0, 10), nfs4.ErrDenied)
	for range 2 {
		l.want("LOCKU", l.unlock(0, 10), nfs4.OK)
		l.want("LOCK that does not wait", l.lock(nfs4.LockWrite, 0, 10), nfs4.OK)
	}
	m.want("LOCK that may wait", m.lock(nfs4.LockWriteWait, 0, 10), nfs4.ErrDenied)
	l.want("LOCKU", l.unlock(0, 10), nfs4.OK)
	m.want("LOCK", m.lock(nfs4.LockWriteWait, 0, 10), nfs4.OK)
}

// Section 18.2.3: CLOSE releases the locks, or refuses to.
func testLockClose(e *env) {
	l, m := e.locker(e.client, "l"), e.locker(e.another(), "m")
	l.want("LOCK", l.lock(nfs4.LockWrite, 0, 10), nfs4.OK)
	r := l.do(putfh(l.fh), closeOp(l.openID))
	switch r.status {
	case nfs4.OK:
		m.want("LOCK after CLOSE", m.lock(nfs4.LockWrite, 0, 10), nfs4.OK)
		l.want("LOCKU after CLOSE", l.unlock(0, 10), nfs4.ErrBadStateid)
	case nfs4.ErrLocksHeld:
		m.want("LOCK after a CLOSE that was refused", m.lock(nfs4.LockWrite, 0, 10), nfs4.ErrDenied)
	default:
		e.Errorf("CLOSE: %v", r.status)
	}
}

// Section 18.38.
func testFreeStateid(e *env) {
	l := e.locker(e.client, "l")
	e.refused([]op{freeStateid(l.openID)}, nfs4.ErrLocksHeld)
	e.refused([]op{freeStateid(nfs4.Stateid{Seqid: 1, Other: [12]byte{1, 2, 3}})}, nfs4.ErrBadStateid)
	l.want("LOCK", l.lock(nfs4.LockWrite, 0, 10), nfs4.OK)
	e.refused([]op{freeStateid(l.id)}, nfs4.ErrLocksHeld)
	e.another().refused([]op{freeStateid(l.id)}, nfs4.ErrBadStateid)
	l.want("LOCKU", l.unlock(0, 10), nfs4.OK)
	e.ok(freeStateid(l.id))
	e.refused([]op{freeStateid(l.id)}, nfs4.ErrBadStateid)
	l.want("LOCK by what is free", l.lock(nfs4.LockWrite, 0, 10), nfs4.ErrBadStateid)
	l.id = nfs4.Stateid{}
	l.want("LOCK of the owner, anew", l.lock(nfs4.LockWrite, 0, 10), nfs4.OK)
}

// Section 18.48.
func testTestStateid(e *env) {
	l := e.locker(e.client, "l")
	l.want("LOCK", l.lock(nfs4.LockWrite, 0, 10), nfs4.OK)
	old := l.openID
	_, l.openID = e.client.open(e.dir, opening{name: "locked", owner: "l"})
	_, foreign := e.another().open(e.dir, opening{name: "locked"})
	future := l.openID
	future.Seqid += 10
	ids := []nfs4.Stateid{l.openID, l.id, old, future, foreign, {}, nfs4.BypassStateid(), nfs4.InvalidStateid(), {Seqid: 1, Other: [12]byte{5: 5}}}
	want := []nfs4.Status{
		nfs4.OK, nfs4.OK, nfs4.ErrOldStateid, nfs4.ErrBadStateid, nfs4.ErrBadStateid, nfs4.ErrBadStateid, nfs4.ErrBadStateid, nfs4.ErrBadStateid, nfs4.ErrBadStateid,
	}
	if got := get[nfs4.TestStateidRes](e, e.ok(testStateid(ids...))).Statuses; fmt.Sprint(got) != fmt.Sprint(want) {
		e.Errorf("%v, want %v", got, want)
	}
	if got := get[nfs4.TestStateidRes](e, e.ok(testStateid())).Statuses; len(got) != 0 {
		e.Errorf("of none: %v", got)
	}
}

// Section 18.22.3: a lock's stateid reads and writes as its open's does; locks are advisory
// or not, but their owner is not refused.
func testLockIO(e *env) {
	l := e.locker(e.client, "l")
	l.want("LOCK", l.lock(nfs4.LockWrite, 0, 10), nfs4.OK)
	e.ok(putfh(l.fh), write(l.id, 0, "content"), read(l.id, 0, 10))
	for name, id := range map[string]nfs4.Stateid{"future": {Seqid: l.id.Seqid + 1, Other: l.id.Other}, "forged": {Seqid: 1, Other: [12]byte{3: 1}}} {
		e.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			e.with(t).refused([]op{putfh(l.fh), write(id, 0, "x")}, nfs4.ErrBadStateid)
		})
	}
	e.content(l.fh, "content")
}
