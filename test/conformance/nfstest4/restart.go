package nfstest4

import (
	"bytes"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
)

// restartTests are what a restart does to clients: RFC 8881 sections 8.4.2 and 18.51.
var restartTests = []test{
	{"nobody had state", testRestartIdle},
	{"reclaim", testReclaim},
	{"reclaim of too much", testReclaimRefused},
	{"restart in the grace period", testRestartTwice},
	{"removed while open", testReclaimRemoved},
	{"handles of what is open", testReclaimHandles},
}

func (e *env) restart() {
	e.Helper()
	if e.target.Restart == nil {
		e.Skip("named skip: restart: the server can't be restarted from here")
	}
	e.target.Restart(e.T)
}

// lost checks that the client has nothing left, and makes it known again, as Linux does.
func (c *client) lost() {
	c.Helper()
	c.reconnect()
	c.wants(c.bare(c.next(), putrootfh()), nfs4.OpSequence, 1, nfs4.ErrBadSession)
	c.wants(c.bare(createSession(c.createSessionArgs())), nfs4.OpCreateSession, 1, nfs4.ErrStaleClientID)
	if res := c.exchangeID(); res.Flags&nfs4.ExchangeConfirmedR != 0 {
		c.Error("confirmed after a restart")
	}
	c.createSession(c.createSessionArgs())
}

// crashed is a crash after which one client reclaims the file that l has open, but no lock, and the
// other reclaims nothing.
func (e *env) crashed(l *locker, other *client) {
	e.Helper()
	e.restart()
	e.lost()
	other.lost()
	e.ok(putfh(l.fh), open(e.previous(opening{owner: "l"})))
	e.ok(reclaimComplete(false))
	other.ok(reclaimComplete(false))
}

// Without state there is no grace period.
func testRestartIdle(e *env) {
	server := e.exchangeID()
	e.restart()
	e.lost()
	e.ok(reclaimComplete(false))
	e.client.open(e.dir, opening{name: "f", create: true})
	// Section 2.10.4: it is the same server.
	if now := e.exchangeID(); !bytes.Equal(now.MajorID, server.MajorID) || !bytes.Equal(now.Scope, server.Scope) {
		e.Errorf("owner %q, scope %q; they were %q, %q", now.MajorID, now.Scope, server.MajorID, server.Scope)
	}
}

// previous are the arguments to reclaim an OPEN.
func (c *client) previous(o opening) nfs4.OpenArgs {
	args := c.openArgs(o)
	args.Claim = nfs4.ClaimPrevious
	return args
}

func testReclaim(e *env) {
	l := e.locker(e.client, "l")
	other := e.another()
	m := e.locker(other, "m")
	l.want("LOCK", l.lock(nfs4.LockWrite, 0, 10), nfs4.OK)
	m.want("LOCK", m.lock(nfs4.LockRead, 10, 10), nfs4.OK)
	e.ok(putfh(l.fh), write(l.openID, 0, "content"))
	old := []nfs4.Stateid{l.openID, l.id}
	newcomer := e.newClient(e.T)
	e.restart()
	e.lost()
	other.lost()
	newcomer.lost()
	newcomer.ok(reclaimComplete(false))
	// Section 18.48: what the process before gave out is bad, never stale: clients hang.
	for _, s := range get[nfs4.TestStateidRes](e, e.ok(testStateid(old...))).Statuses {
		if s != nfs4.ErrBadStateid {
			e.Errorf("TEST_STATEID: %v", s)
		}
	}
	// Section 8.4.2.1: nobody gets anything new, nor reads and writes without an open.
	name := "locked"
	plainOpen := e.openArgs(opening{name: name, owner: "l"})
	for _, c := range []*client{e.client, newcomer} {
		c.refused([]op{putfh(e.dir), open(plainOpen)}, nfs4.ErrGrace)
		c.refused([]op{putfh(l.fh), read(nfs4.Stateid{}, 0, 1)}, nfs4.ErrGrace)
		c.refused([]op{putfh(l.fh), write(nfs4.Stateid{}, 0, "x")}, nfs4.ErrGrace)
		c.refused([]op{putfh(l.fh), setattr(nfs4.Stateid{}, size(0))}, nfs4.ErrGrace)
		c.refused([]op{putfh(l.fh), lockt(nfs4.LocktArgs{Type: nfs4.LockRead, Offset: 100, Length: 1, Owner: nfs4.StateOwner{Owner: []byte("l")}})}, nfs4.ErrGrace)
		c.ok(putfh(l.fh), getattrs(nfs4.AttrSize))
	}
	newcomer.refused([]op{putfh(l.fh), open(newcomer.previous(opening{}))}, nfs4.ErrNoGrace, nfs4.ErrReclaimBad)
	// Both reclaim: the open, and then the lock.
	for _, who := range []*locker{l, m} {
		r := who.ok(putfh(who.fh), open(who.previous(opening{owner: who.owner})))
		who.openID, who.id = get[nfs4.OpenRes](e, r).Stateid, nfs4.Stateid{}
	}
	l.want("a lock that is new", l.lock(nfs4.LockWrite, 50, 10), nfs4.ErrGrace)
	reclaim := func(who *locker, kind nfs4.LockType, offset uint64) {
		e.Helper()
		args := who.args(kind, offset, 10)
		args.Reclaim = true
		who.id = get[nfs4.LockRes](e, who.ok(putfh(who.fh), lock(args))).Stateid
	}
	reclaim(l, nfs4.LockWrite, 0)
	e.ok(putfh(l.fh), write(l.openID, 0, "CONTENT"), read(l.id, 0, 1))
	e.ok(reclaimComplete(false))
	e.refused([]op{reclaimComplete(false)}, nfs4.ErrCompleteAlready)
	// Section 18.51.3: after its own RECLAIM_COMPLETE it reclaims nothing, though others do.
	e.refused([]op{putfh(l.fh), open(e.previous(opening{owner: "x"}))}, nfs4.ErrNoGrace)
	reclaim(m, nfs4.LockRead, 10)
	e.refused([]op{putfh(e.dir), open(plainOpen)}, nfs4.ErrGrace)
	other.ok(reclaimComplete(false))
	// All have: the grace period is over at once, and all is as it was.
	newcomer.open(e.dir, opening{name: name})
	w := e.locker(newcomer, "w")
	for offset, want := range map[uint64]nfs4.Status{0: nfs4.ErrDenied, 10: nfs4.ErrDenied, 20: nfs4.OK} {
		s, _ := w.test(nfs4.LockWrite, offset, 10)
		w.want("LOCKT", s, want)
	}
	e.content(l.fh, "CONTENT")
}

// Section 8.4.2.1: who had nothing gets nothing, and nothing is granted twice.
func testReclaimRefused(e *env) {
	fh, _ := e.client.open(e.dir, opening{name: "f", create: true, deny: nfs4.ShareDenyWrite})
	other := e.another()
	other.open(e.dir, opening{name: "g", create: true})
	e.restart()
	e.lost()
	other.lost()
	e.ok(putfh(fh), open(e.previous(opening{deny: nfs4.ShareDenyWrite})))
	other.refused([]op{putfh(fh), open(other.previous(opening{}))}, nfs4.ErrReclaimConflict, nfs4.ErrReclaimBad)
	// Another client by another name had nothing.
	c := e.stranger(e.T)
	c.start()
	c.refused([]op{putfh(fh), open(c.previous(opening{}))}, nfs4.ErrNoGrace, nfs4.ErrReclaimBad)
	if err := c.leave(); err != nil {
		e.Error(err)
	}
	e.ok(reclaimComplete(false))
	other.ok(reclaimComplete(false))
	e.refused([]op{putfh(fh), open(e.previous(opening{owner: "2"}))}, nfs4.ErrNoGrace)
}

// Section 8.4.2.1: a second restart before all have reclaimed forgets nobody.
func testRestartTwice(e *env) {
	fh, _ := e.client.open(e.dir, opening{name: "f", create: true})
	other := e.another()
	gh, _ := other.open(e.dir, opening{name: "g", create: true})
	e.restart()
	e.lost()
	e.ok(putfh(fh), open(e.previous(opening{})))
	e.ok(reclaimComplete(false))
	e.restart()
	e.lost()
	other.lost()
	other.ok(putfh(gh), open(other.previous(opening{})))
	e.ok(putfh(fh), open(e.previous(opening{})))
	e.ok(reclaimComplete(false))
	began := time.Now()
	other.ok(reclaimComplete(false))
	e.client.open(e.dir, opening{name: "f", owner: "2"})
	if d := time.Since(began); d > 20*time.Second {
		e.Errorf("the grace period went on for %v when all had reclaimed", d)
	}
}

// pastGrace waits for the end of the grace period, which may go on for clients of earlier tests, as they do
// not come back.
func (e *env) pastGrace() {
	e.Helper()
	for ends := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if e.do(putfh(e.dir), open(e.openArgs(opening{name: "grace", owner: "grace", create: true}))).status != nfs4.ErrGrace {
			return
		}
		if time.Now().After(ends) {
			e.Fatal("the grace period does not end")
		}
	}
}

func testReclaimHandles(e *env) {
	e.pastGrace()
	fh, _ := e.client.open(e.dir, opening{name: "0", create: true})
	for range 2 {
		e.restart()
		e.lost()
		e.ok(putfh(fh), open(e.previous(opening{})))
		e.ok(reclaimComplete(false))
		e.pastGrace()
		e.keepHandles([]nfs4.FH{fh})
	}
}
