package nfstest4

import (
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
)

// diedTests are a server that has died and goes on with what clients have open and locked, but
// with no session and no reply: clients make new sessions, and need not reclaim anything.
var diedTests = []test{
	{"opens and locks", testDiedLocks},
	{"what had no reply", testDiedAgain},
	{"an OPEN that had no reply", testDiedOpen},
	{"sessions that had no reply", testDiedSession},
	{"a waiter is told", testDiedWaiter},
	{"a waiter that could not be told", testDiedNotice},
	{"in the grace period", testDiedGrace},
	{"again and again", testDiedOften},
	{"handles of what is open", testDiedHandles},
	{"a COPY that was not committed", testDiedCopy},
}

func (e *env) died() {
	e.Helper()
	e.target.Die(e.T)
	e.again()
}

// again makes another session, as Linux does after BADSESSION.
func (c *client) again() {
	c.Helper()
	c.reconnect()
	c.wants(c.bare(c.next(), putrootfh()), nfs4.OpSequence, 1, nfs4.ErrBadSession)
	c.wants(c.bare(destroySession(c.session)), nfs4.OpDestroySession, 1, nfs4.ErrBadSession)
	c.createSession(c.createSessionArgs())
}

func testDiedLocks(e *env) {
	l := e.locker(e.client, "l")
	other := e.another()
	m := e.locker(other, "m")
	l.want("LOCK", l.lock(nfs4.LockWrite, 0, 10), nfs4.OK)
	l.want("LOCK", l.lock(nfs4.LockRead, 20, 1), nfs4.OK)
	l.want("LOCKU", l.unlock(2, 3), nfs4.OK)
	args := e.openArgs(opening{name: "denied", create: true})
	args.ShareDeny = nfs4.ShareDenyWrite
	e.ok(putfh(e.dir), open(args))
	e.ok(putfh(l.fh), write(l.openID, 0, "content"))
	e.died()
	other.again()
	for offset, want := range map[uint64]nfs4.Status{0: nfs4.ErrDenied, 2: nfs4.OK, 5: nfs4.ErrDenied, 10: nfs4.OK, 20: nfs4.ErrDenied} {
		s, _ := m.test(nfs4.LockWrite, offset, 1)
		m.want("LOCKT", s, want)
	}
	m.want("LOCK of what is free", m.lock(nfs4.LockWrite, 10, 10), nfs4.OK)
	other.refused([]op{putfh(e.dir), open(other.openArgs(opening{name: "denied"}))}, nfs4.ErrShareDenied)
	e.refused([]op{reclaimComplete(false)}, nfs4.ErrCompleteAlready)
	e.goesOn(l, m)
}

// Calls that were done, and whose replies never came, are sent again in the new session.
func testDiedAgain(e *env) {
	l := e.locker(e.client, "l")
	l.want("LOCK", l.lock(nfs4.LockWrite, 0, 10), nfs4.OK)
	before := l.id
	l.want("LOCK", l.lock(nfs4.LockWrite, 10, 10), nfs4.OK)
	l.id = before
	e.died()
	l.want("LOCK again", l.lock(nfs4.LockWrite, 10, 10), nfs4.OK)
	before = l.id
	l.want("LOCKU", l.unlock(0, 5), nfs4.OK)
	l.id = before
	e.died()
	l.want("LOCKU again", l.unlock(0, 5), nfs4.OK)
	l.id = before
	l.want("LOCKU with a seqid that is old", l.unlock(0, 5), nfs4.ErrOldStateid)
	e.ok(putfh(l.fh), closeOp(l.openID))
	e.died()
	e.refused([]op{putfh(l.fh), closeOp(l.openID)}, nfs4.ErrBadStateid)
}

func testDiedOpen(e *env) {
	args := e.openArgs(opening{name: "f", create: true})
	first := get[nfs4.OpenRes](e, e.ok(putfh(e.dir), open(args))).Stateid
	e.died()
	if again := get[nfs4.OpenRes](e, e.ok(putfh(e.dir), open(args))).Stateid; again != first {
		e.Errorf("OPEN again: %v, was %v", again, first)
	}
	next := get[nfs4.OpenRes](e, e.ok(putfh(e.dir), open(args))).Stateid
	if next.Other != first.Other || next.Seqid != first.Seqid+1 {
		e.Errorf("the next OPEN: %v after %v", next, first)
	}
	e.ok(putrootfh()) // it has the reply
	e.client.open(e.dir, opening{name: "other", create: true})
	e.died()
	if id := get[nfs4.OpenRes](e, e.ok(putfh(e.dir), open(args))).Stateid; id.Seqid != next.Seqid+1 {
		e.Errorf("the next OPEN: %v after %v", id, next)
	}
	// One that denies what it does itself, and truncates the file, is not in its own way.
	for name, access := range map[string]uint32{"both": nfs4.ShareAccessBoth, "read": nfs4.ShareAccessRead} {
		args = e.openArgs(opening{name: name, create: true})
		args.ShareAccess, args.ShareDeny = access, nfs4.ShareDenyWrite
		args.Attr.Mask.Set(nfs4.AttrSize)
		first = get[nfs4.OpenRes](e, e.ok(putfh(e.dir), open(args))).Stateid
		e.died()
		if again := get[nfs4.OpenRes](e, e.ok(putfh(e.dir), open(args))).Stateid; again != first {
			e.Errorf("OPEN with access %d again: %v, was %v", access, again, first)
		}
		e.refused([]op{putfh(e.dir), open(args)}, nfs4.ErrShareDenied)
	}
}

func testDiedSession(e *env) {
	args := e.createSessionArgs()
	if r := e.bare(createSession(args)); r.status != nfs4.OK {
		e.Fatalf("CREATE_SESSION: %v", r.status)
	}
	e.target.Die(e.T)
	e.reconnect()
	e.createSession(args) // its reply had not come
	e.ok(putrootfh())
	args.SequenceID += 2
	e.wants(e.bare(createSession(args)), nfs4.OpCreateSession, 1, nfs4.ErrSeqMisordered)
	e.died()
	if res := e.exchangeID(); res.Flags&nfs4.ExchangeConfirmedR == 0 {
		e.Error("the client is not confirmed any more")
	}
	e.createSession(e.createSessionArgs())
	e.ok(putrootfh())
}

func testDiedWaiter(e *env) {
	c := e.called()
	l, _ := e.waiter(c)
	e.died()
	l.want("LOCKU", l.unlock(0, 10), nfs4.OK)
	c.toldAgain()
}

// toldAgain wants a waiter to be told when it can be called again.
func (c *called) toldAgain() {
	c.Helper()
	c.conn = c.connect()
	args := c.createSessionArgs()
	args.Flags, args.CBProgram = nfs4.SessionConnBackChan, callbackProgram
	c.createSession(args)
	if cb := c.called(); cb.op != nfs4.OpCBNotifyLock || cb.seq.SessionID != c.session {
		c.Errorf("told %v with %+v", cb.op, cb.seq)
	}
}

func testDiedNotice(e *env) {
	c := e.called()
	l, _ := e.waiter(c)
	c.conn.Close()
	l.want("LOCKU", l.unlock(0, 10), nfs4.OK)
	time.Sleep(2500 * time.Millisecond) // until it is no longer its turn
	e.died()
	c.toldAgain()
}

func testDiedGrace(e *env) { e.inGrace(e.died) }

func testDiedOften(e *env) {
	l := e.locker(e.client, "l")
	other := e.another()
	m := e.locker(other, "m")
	for n := range uint64(4) {
		l.want("LOCK", l.lock(nfs4.LockWrite, 10*n, 5), nfs4.OK)
		if n%2 == 0 || e.target.Handover == nil {
			e.died()
			other.again()
		} else {
			e.handover()
			other.reconnect()
		}
		m.want("LOCK of what is locked", m.lock(nfs4.LockWrite, 0, 10*n+1), nfs4.ErrDenied)
	}
	// After a grace period the state before it does not come back.
	e.crashed(l, other)
	e.died()
	other.again()
	m = e.locker(other, "m")
	m.want("LOCK that was not reclaimed", m.lock(nfs4.LockWrite, 0, 100), nfs4.OK)
}

func testDiedHandles(e *env) {
	fh, _ := e.client.open(e.dir, opening{name: "0", create: true})
	for range 2 {
		e.died()
		e.keepHandles([]nfs4.FH{fh})
	}
}
