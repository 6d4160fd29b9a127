package nfstest4

import (
	"bytes"
	"fmt"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
)

// handoverTests are a restart of which clients notice nothing but that they have to connect
// again: sessions with their replies, what is open and locked, and who waits.
var handoverTests = []test{
	{"sessions", testHandoverSessions},
	{"opens and locks", testHandoverLocks},
	{"a waiter is told", testHandoverWaiter},
	{"a waiter that could not be told", testHandoverNotice},
	{"deny modes", testHandoverDeny},
	{"removed while open", testHandoverRemoved},
	{"in the grace period", testHandoverGrace},
	{"again and again", testHandoverAgain},
	{"handles of what is open", testHandoverHandles},
	{"a COPY under way", testHandoverCopy},
}

func (e *env) handover() {
	e.Helper()
	e.target.Handover(e.T)
	e.reconnect()
}

// Section 2.10.6.1: a call whose reply was lost with the connection is done once.
func testHandoverSessions(e *env) {
	seq := e.next()
	a := &call{minor: e.minor, ops: []op{seq, putfh(e.dir), mkdir("once"), getfh()}}
	before := e.compound(a)
	second := *e.client
	second.createSeq++
	create := e.createSessionArgs()
	created := e.bare(createSession(create))
	e.handover()
	if after := e.compound(a); before.status != nfs4.OK || !bytes.Equal(after.bytes, before.bytes) {
		e.Errorf("the same call got %v, and then %v", before.status, after.status)
	}
	if again := e.bare(createSession(create)); !bytes.Equal(again.bytes, created.bytes) {
		e.Errorf("the same CREATE_SESSION got %v, and then %v", created.status, again.status)
	}
	other := &call{minor: e.minor, ops: []op{seq, putfh(e.dir), mkdir("other"), getfh()}}
	e.wants(e.compound(other), nfs4.OpSequence, 1, nfs4.ErrSeqFalseRetry)
	e.ok(putfh(e.dir), lookup("once"))
	if flags := get[nfs4.SequenceRes](e, e.ok()).StatusFlags; flags != 0 {
		e.Errorf("SEQUENCE has the flags %#x", flags)
	}
	if res := e.exchangeID(); res.Flags&nfs4.ExchangeConfirmedR == 0 {
		e.Error("the client is not confirmed any more")
	}
}

func testHandoverLocks(e *env) {
	l := e.locker(e.client, "l")
	other := e.another()
	m := e.locker(other, "m")
	l.want("LOCK", l.lock(nfs4.LockWrite, 0, 10), nfs4.OK)
	l.want("LOCK", l.lock(nfs4.LockRead, 20, 1), nfs4.OK)
	e.ok(putfh(l.fh), write(l.openID, 0, "content"))
	e.handover()
	other.reconnect()
	m.want("LOCK of what is locked", m.lock(nfs4.LockWrite, 9, 1), nfs4.ErrDenied)
	m.want("LOCK of what is locked to read", m.lock(nfs4.LockWrite, 20, 1), nfs4.ErrDenied)
	m.want("LOCK of what is free", m.lock(nfs4.LockWrite, 10, 10), nfs4.OK)
	e.goesOn(l, m)
}

// goesOn is what two clients do after a restart that l has not noticed, who has locks that m wants.
func (e *env) goesOn(l, m *locker) {
	e.Helper()
	if res := get[nfs4.ReadRes](e, e.ok(putfh(l.fh), read(l.openID, 0, 100))); string(res.Data) != "content" {
		e.Errorf("READ: %q", res.Data)
	}
	e.ok(putfh(l.fh), write(l.id, 7, " and more"))
	for _, s := range get[nfs4.TestStateidRes](e, e.ok(testStateid(l.openID, l.id))).Statuses {
		if s != nfs4.OK {
			e.Errorf("TEST_STATEID: %v", s)
		}
	}
	l.want("LOCKU", l.unlock(0, 10), nfs4.OK)
	m.want("LOCK", m.lock(nfs4.LockWrite, 0, 10), nfs4.OK)
	// Nobody is in a grace period, and a new stateid is none of the old ones.
	_, id := e.client.open(e.dir, opening{name: "new", create: true})
	if id.Other == l.openID.Other || id.Other == m.openID.Other {
		e.Error("a stateid came twice")
	}
}

func testHandoverWaiter(e *env) {
	c := e.called()
	l, waits := e.waiter(c)
	e.handover()
	c.conn = c.connect()
	if r := c.bare(bindConn(c.session, nfs4.ConnForeOrBoth)); r.status != nfs4.OK {
		e.Fatalf("BIND_CONN_TO_SESSION: %v", r.status)
	}
	l.want("LOCKU", l.unlock(0, 10), nfs4.OK)
	told := c.toldOf(waits.fh, 0)
	e.handover()
	c.conn = c.connect()
	c.bare(bindConn(c.session, nfs4.ConnForeOrBoth))
	l.want("LOCK", l.lock(nfs4.LockWriteWait, 30, 10), nfs4.OK)
	m := e.locker(c.client, "m")
	m.want("LOCK that waits", m.lock(nfs4.LockWriteWait, 30, 10), nfs4.ErrDenied)
	l.want("LOCKU", l.unlock(30, 10), nfs4.OK)
	c.toldOf(m.fh, told)
}

// toldOf waits until the client is told that a lock of a file is free, by the handle that it has of the file:
// Linux compares them. It may be told by another handle of the file, too. It returns the last
// sequence number of the back channel.
func (c *called) toldOf(fh nfs4.FH, last uint32) uint32 {
	c.Helper()
	for {
		cb := c.called()
		if last++; cb.op != nfs4.OpCBNotifyLock || cb.seq.SequenceID != last {
			c.Fatalf("told %v with %+v, want the sequence number %d", cb.op, cb.seq, last)
		}
		if bytes.Equal(cb.notify.FH, fh) {
			return last
		}
	}
}

// A client that is told of a free lock, and has no connection at that time, is told by the next
// process, however long ago it was. It would wait for half a minute otherwise.
func testHandoverNotice(e *env) {
	c := e.called()
	l, _ := e.waiter(c)
	c.conn.Close()
	l.want("LOCKU", l.unlock(0, 10), nfs4.OK)
	time.Sleep(2500 * time.Millisecond) // until it is no longer its turn
	e.handover()
	c.conn = c.connect()
	if r := c.bare(bindConn(c.session, nfs4.ConnForeOrBoth)); r.status != nfs4.OK {
		e.Fatalf("BIND_CONN_TO_SESSION: %v", r.status)
	}
	if cb := c.called(); cb.op != nfs4.OpCBNotifyLock {
		e.Errorf("told %v", cb.op)
	}
}

func testHandoverDeny(e *env) {
	args := e.openArgs(opening{name: "f", create: true})
	args.ShareDeny = nfs4.ShareDenyWrite
	r := e.ok(putfh(e.dir), open(args), getfh())
	fh, id := get[nfs4.GetfhRes](e, r).FH, get[nfs4.OpenRes](e, r).Stateid
	other := e.another()
	e.handover()
	other.reconnect()
	writes := other.openArgs(opening{name: "f"})
	other.refused([]op{putfh(e.dir), open(writes)}, nfs4.ErrShareDenied)
	e.ok(putfh(fh), closeOp(id))
	other.ok(putfh(e.dir), open(writes))
}

func testHandoverGrace(e *env) { e.inGrace(e.handover) }

// inGrace restarts the server within a grace period, in which one of two clients has reclaimed.
func (e *env) inGrace(restart func()) {
	e.Helper()
	fh, _ := e.client.open(e.dir, opening{name: "f", create: true})
	other := e.another()
	other.open(e.dir, opening{name: "g", create: true})
	e.restart()
	e.lost()
	id := get[nfs4.OpenRes](e, e.ok(putfh(fh), open(e.previous(opening{})))).Stateid
	restart()
	e.ok(putfh(fh), write(id, 0, "x"))
	e.ok(reclaimComplete(false))
	e.refused([]op{putfh(e.dir), open(e.openArgs(opening{name: "f", owner: "2"}))}, nfs4.ErrGrace)
	other.lost()
	other.ok(reclaimComplete(false))
	began := time.Now()
	e.client.open(e.dir, opening{name: "f", owner: "2"})
	if d := time.Since(began); d > 20*time.Second {
		e.Errorf("the grace period went on for %v when all had reclaimed", d)
	}
}

func testHandoverAgain(e *env) {
	l := e.locker(e.client, "l")
	other := e.another()
	m := e.locker(other, "m")
	for n := range uint64(5) {
		l.want("LOCK", l.lock(nfs4.LockWrite, 10*n, 5), nfs4.OK)
		e.handover()
		other.reconnect()
		m.want("LOCK of what is locked", m.lock(nfs4.LockWrite, 0, 10*n+1), nfs4.ErrDenied)
	}
	// After a crash the state before it does not come back.
	e.crashed(l, other)
	m = e.locker(other, "m")
	m.want("LOCK that was not reclaimed", m.lock(nfs4.LockWrite, 0, 100), nfs4.OK)
}

// Linux takes files with different handles for different files, with pages of their own, although one
// CLOSE is for both. So what a client has open keeps its handle.
func testHandoverHandles(e *env) {
	var handles []nfs4.FH
	for n := range 3 {
		fh, _ := e.client.open(e.dir, opening{name: fmt.Sprint(n), create: true})
		handles = append(handles, fh)
		e.handover()
		e.keepHandles(handles)
	}
}

// keepHandles checks all ways in which the client may be told the handles of the files 0, 1, 2... that it
// has open.
func (e *env) keepHandles(handles []nfs4.FH) {
	e.Helper()
	all := nfs4.ReaddirArgs{DirCount: 8192, MaxCount: 8192, Request: nfs4.BitmapOf(nfs4.AttrFilehandle)}
	listed := map[string]nfs4.FH{}
	for _, entry := range e.client.list(e.dir, all) {
		a, err := entry.Attr.Attrs()
		if err != nil {
			e.Fatal(err)
		}
		listed[string(entry.Name)] = a.Filehandle
	}
	for n, fh := range handles {
		name := fmt.Sprint(n)
		opened, id := e.client.open(e.dir, opening{name: name, owner: "2"})
		e.ok(putfh(opened), closeOp(id))
		created, id := e.client.open(e.dir, opening{name: name, owner: "2", create: true})
		e.ok(putfh(created), closeOp(id))
		for by, got := range map[string]nfs4.FH{
			"LOOKUP":          e.fh(putfh(e.dir), lookup(name)),
			"OPEN":            opened,
			"OPEN that makes": created,
			"READDIR":         listed[name],
			"GETATTR":         e.attr([]op{putfh(e.dir), lookup(name)}, nfs4.AttrFilehandle).Filehandle,
		} {
			if !bytes.Equal(got, fh) {
				e.Errorf("%s of file %s: %x, which was opened by %x", by, name, got, fh)
			}
		}
	}
}
