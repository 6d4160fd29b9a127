package nfstest4

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

// callbackTests are the back channel, and what a server calls by it: RFC 8881 sections
// 2.10.3.1, 20.9 and 20.11.
var callbackTests = []test{
	{"a lock is free", testNotifyLock},
	{"delay", testCallbackDelay},
	{"not answered", testCallbackNotAnswered},
	{"another connection", testCallbackReconnect},
	{"backchannel ctl", testBackchannelCtl},
	{"no back channel", testNoBackChannel},
	{"bind", testBindBack},
	{"too long", testCallbackTooLong},
	{"deadlock", testDeadlock},
}

const callbackProgram = 0x40000001

// called is a client that the server calls back.
type called struct {
	*client
	calls chan callback
	mu    sync.Mutex
	says  []nfs4.Status // to CB_SEQUENCE, one after the other; then OK
	done  uint32        // the sequence of the last call that was done
}

// callback is a callback that came.
type callback struct {
	header rpc.CallHeader
	seq    nfs4.CBSequenceArgs
	op     nfs4.CBOpNum
	notify nfs4.CBNotifyLockArgs
	err    error
}

// silent is not said.
const silent nfs4.Status = 1 << 31

// called is another client, that takes callbacks, and may open and lock.
func (e *env) called(says ...nfs4.Status) *called {
	e.Helper()
	c := &called{client: e.stranger(e.T), calls: make(chan callback, 100), says: says}
	c.conn = c.connect()
	c.exchangeID()
	args := c.createSessionArgs()
	args.Flags, args.CBProgram = nfs4.SessionConnBackChan, callbackProgram
	args.SecParms = []nfs4.CallbackSec{{Flavor: rpc.AuthSys, Sys: rpc.SysCred{MachineName: []byte("callback")}}}
	r := c.bare(createSession(args))
	if r.status != nfs4.OK {
		e.Fatalf("CREATE_SESSION: %v", r.status)
	}
	res := get[nfs4.CreateSessionRes](e, r)
	if res.Flags&nfs4.SessionConnBackChan == 0 {
		e.Fatalf("CREATE_SESSION does not bind the connection to the back channel: flags %#x", res.Flags)
	}
	c.use(res)
	e.Cleanup(func() {
		gone := c.client.with(e.T)
		gone.conn = gone.dial()
		if err := gone.leave(); err != nil {
			e.Errorf("clean up: %v", err)
		}
	})
	c.ok(reclaimComplete(false))
	return c
}

// connect connects with a connection that takes callbacks.
func (c *called) connect() *rpc.Client {
	c.Helper()
	conn, err := net.Dial("tcp", c.addr)
	if err != nil {
		c.Fatal(err)
	}
	peer := rpc.NewPeer(conn, c.answer)
	c.Cleanup(func() { peer.Close() })
	return peer
}

// answer answers a callback.
func (c *called) answer(h *rpc.CallHeader, args *xdr.Decoder, reply []byte) []byte {
	if h.Proc == nfs4.ProcCBNull {
		return reply
	}
	cb := callback{header: *h}
	var head nfs4.CBCompoundArgs
	head.Decode(args)
	var op nfs4.CBOpNum
	op.Decode(args)
	cb.seq.Decode(args)
	cb.op.Decode(args)
	if cb.op == nfs4.OpCBNotifyLock {
		cb.notify.Decode(args)
	}
	if cb.err = args.Finish(); cb.err == nil && head.MinorVersion != c.minor {
		cb.err = fmt.Errorf("it is of version 4.%d, and the session of 4.%d", head.MinorVersion, c.minor) // BADSESSION for Linux
	}
	c.mu.Lock()
	say := nfs4.OK
	switch {
	case cb.seq.SequenceID == c.done: // the server does not know whether it was done
		say = nfs4.ErrRetryUncachedRep
	case len(c.says) > 0:
		say, c.says = c.says[0], c.says[1:]
	}
	if say == nfs4.OK {
		c.done = cb.seq.SequenceID
	}
	c.mu.Unlock()
	if say != nfs4.ErrRetryUncachedRep {
		c.calls <- cb
	}
	if say == silent {
		<-c.Context().Done()
	}
	res := nfs4.CBCompoundRes{Status: say, NumOps: 1}
	seq := nfs4.CBSequenceRes{Status: say, SessionID: cb.seq.SessionID, SequenceID: cb.seq.SequenceID}
	if say == nfs4.OK {
		res.NumOps = 2
	}
	reply = seq.Append(nfs4.OpCBSequence.Append(res.Append(reply)))
	if say == nfs4.OK {
		reply = (&nfs4.CBNotifyLockRes{}).Append(cb.op.Append(reply))
	}
	return reply
}

// called waits for a callback.
func (c *called) called() callback {
	c.Helper()
	select {
	case cb := <-c.calls:
		if cb.err != nil {
			c.Fatalf("a callback: %v", cb.err)
		}
		return cb
	case <-time.After(callTimeout):
		c.Fatal("no callback came")
		return callback{}
	}
}

// waiter has l lock a range, and m wait for it.
func (e *env) waiter(c *called) (l, m *locker) {
	e.Helper()
	l, m = e.locker(e.client, "l"), e.locker(c.client, "m")
	l.want("LOCK", l.lock(nfs4.LockWriteWait, 0, 10), nfs4.OK)
	m.want("LOCK that waits", m.lock(nfs4.LockWriteWait, 0, 10), nfs4.ErrDenied)
	return l, m
}

// Section 20.11: the waiter is told of the file and the owner, in its session, by the
// program and credential that it said.
func testNotifyLock(e *env) {
	c := e.called()
	if r := c.ok(putfh(e.dir), open(c.openArgs(opening{name: "locked", create: true})), getfh()); get[nfs4.OpenRes](e, r).Flags&nfs4.OpenResultMayNotifyLock == 0 {
		e.Error("OPEN does not say that callbacks may come")
	}
	l, m := e.waiter(c)
	for n := range uint32(3) {
		l.want("LOCKU", l.unlock(0, 10), nfs4.OK)
		cb := c.called()
		switch h := cb.header; {
		case h.Prog != callbackProgram || h.Vers != nfs4.CBVersion || h.Proc != nfs4.ProcCBCompound:
			e.Errorf("called as program %#x, version %d, procedure %d", h.Prog, h.Vers, h.Proc)
		case h.Cred.Flavor != rpc.AuthSys:
			e.Errorf("called with the flavor %v", h.Cred.Flavor)
		}
		if cb.seq.SessionID != c.session || cb.seq.SlotID != 0 || cb.seq.SequenceID != n+1 {
			e.Errorf("callback %d: CB_SEQUENCE %+v", n, cb.seq)
		}
		owner := nfs4.StateOwner{ClientID: c.id, Owner: []byte("m")}
		if cb.op != nfs4.OpCBNotifyLock || !bytes.Equal(cb.notify.FH, m.fh) || cb.notify.Owner.ClientID != owner.ClientID || !bytes.Equal(cb.notify.Owner.Owner, owner.Owner) {
			e.Errorf("told %v %+v, want the file %x and %+v", cb.op, cb.notify, m.fh, owner)
		}
		m.want("LOCK", m.lock(nfs4.LockWriteWait, 0, 10), nfs4.OK)
		m.want("LOCKU", m.unlock(0, 10), nfs4.OK)
		l.want("LOCK", l.lock(nfs4.LockWriteWait, 0, 10), nfs4.OK)
		m.want("LOCK that waits", m.lock(nfs4.LockWriteWait, 0, 10), nfs4.ErrDenied)
	}
}

// Section 2.10.6.1: a call that got DELAY comes again, with the same sequence.
func testCallbackDelay(e *env) {
	c := e.called(nfs4.ErrDelay, nfs4.ErrDelay)
	l, _ := e.waiter(c)
	l.want("LOCKU", l.unlock(0, 10), nfs4.OK)
	for range 3 {
		if cb := c.called(); cb.seq.SequenceID != 1 {
			e.Errorf("CB_SEQUENCE %+v", cb.seq)
		}
	}
}

// A client that does not answer is told that its back channel is down, section 18.46.3, and
// keeps nobody else from being served.
func testCallbackNotAnswered(e *env) {
	c := e.called(silent)
	l, m := e.waiter(c)
	l.want("LOCKU", l.unlock(0, 10), nfs4.OK)
	c.called()
	c.waitForFlag(nfs4.SeqCBPathDown)
	l.want("LOCK of another range", l.lock(nfs4.LockWriteWait, 20, 10), nfs4.OK)
	m.want("LOCK", m.lock(nfs4.LockWriteWait, 0, 10), nfs4.OK)
}

// waitForFlag waits until SEQUENCE has a flag.
func (c *client) waitForFlag(flag uint32) {
	c.Helper()
	for end := time.Now().Add(callTimeout); ; time.Sleep(20 * time.Millisecond) {
		if get[nfs4.SequenceRes](c, c.ok()).StatusFlags&flag != 0 {
			return
		}
		if time.Now().After(end) {
			c.Fatalf("SEQUENCE never has the flag %#x", flag)
		}
	}
}

// What a client could not be told it is told by the connection that it binds next: section
// 18.34.
func testCallbackReconnect(e *env) {
	c := e.called()
	l, _ := e.waiter(c)
	c.conn.Close()
	c.conn = c.connect()
	c.waitForFlag(nfs4.SeqCBPathDown)
	l.want("LOCKU", l.unlock(0, 10), nfs4.OK)
	r := c.bare(bindConn(c.session, nfs4.ConnForeOrBoth))
	if r.status != nfs4.OK || get[nfs4.BindConnToSessionRes](e, r).Dir != nfs4.ConnBoth {
		e.Fatalf("BIND_CONN_TO_SESSION: %v %+v", r.status, r.res)
	}
	if cb := c.called(); cb.op != nfs4.OpCBNotifyLock {
		e.Errorf("told %v", cb.op)
	}
	if flags := get[nfs4.SequenceRes](e, c.ok()).StatusFlags; flags != 0 {
		e.Errorf("flags %#x after BIND_CONN_TO_SESSION", flags)
	}
}

// Section 18.33: another program.
func testBackchannelCtl(e *env) {
	c := e.called()
	l, _ := e.waiter(c)
	c.ok(backchannelCtl(callbackProgram + 1))
	l.want("LOCKU", l.unlock(0, 10), nfs4.OK)
	if cb := c.called(); cb.header.Prog != callbackProgram+1 {
		e.Errorf("called as program %#x", cb.header.Prog)
	}
}

// A session without a back channel is never told that it is down.
func testNoBackChannel(e *env) {
	c := e.stranger(e.T)
	c.exchangeID()
	r := c.bare(createSession(c.createSessionArgs()))
	res := get[nfs4.CreateSessionRes](e, r)
	if r.status != nfs4.OK || res.Flags != 0 {
		e.Fatalf("CREATE_SESSION: %v, flags %#x", r.status, res.Flags)
	}
	c.use(res)
	c.ok(reclaimComplete(false))
	if err := c.leave(); err != nil {
		e.Error(err)
	}
}

// Section 18.36.3: no callback is longer than the client takes. That a lock is free need not be
// said, and the back channel is as it was.
func testCallbackTooLong(e *env) {
	c := e.called()
	args := c.createSessionArgs()
	args.Flags, args.CBProgram = nfs4.SessionConnBackChan, callbackProgram
	args.Back.MaxRequestSize = 400
	c.wants(c.bare(destroySession(c.session)), nfs4.OpDestroySession, 1, nfs4.OK)
	c.createSession(args)
	l := e.locker(e.client, "l")
	for _, owner := range []string{strings.Repeat("long", 200), "m"} {
		m := e.locker(c.client, owner)
		l.want("LOCK", l.lock(nfs4.LockWriteWait, 0, 10), nfs4.OK)
		m.want("LOCK that waits", m.lock(nfs4.LockWriteWait, 0, 10), nfs4.ErrDenied)
		l.want("LOCKU", l.unlock(0, 10), nfs4.OK)
		m.want("LOCK", m.lock(nfs4.LockWriteWait, 0, 10), nfs4.OK)
		m.want("LOCKU", m.unlock(0, 10), nfs4.OK)
	}
	if cb := c.called(); string(cb.notify.Owner.Owner) != "m" { // the first that came
		e.Errorf("told of %q", cb.notify.Owner.Owner)
	}
	if flags := get[nfs4.SequenceRes](e, c.ok()).StatusFlags; flags != 0 {
		e.Errorf("flags %#x", flags)
	}
}

// Section 18.34: what is asked for, and what comes of it.
func testBindBack(e *env) {
	c := e.called()
	for _, tt := range []struct{ ask, want nfs4.ConnDir }{
		{nfs4.ConnFore, nfs4.ConnFore},
		{nfs4.ConnBack, nfs4.ConnBack},
		{nfs4.ConnForeOrBoth, nfs4.ConnBoth},
		{nfs4.ConnBackOrBoth, nfs4.ConnBoth},
	} {
		c.conn = c.connect()
		r := c.bare(bindConn(c.session, tt.ask))
		if r.status != nfs4.OK || get[nfs4.BindConnToSessionRes](e, r).Dir != tt.want {
			e.Errorf("BIND_CONN_TO_SESSION %v: %v %+v", tt.ask, r.status, r.res)
		}
	}
}

// Section 15.1.8.8: of two that wait for each other one gets DEADLOCK.
func testDeadlock(e *env) {
	l, m := e.locker(e.client, "l"), e.locker(e.another(), "m")
	l.want("LOCK", l.lock(nfs4.LockWriteWait, 0, 10), nfs4.OK)
	m.want("LOCK", m.lock(nfs4.LockWriteWait, 10, 10), nfs4.OK)
	l.want("LOCK that waits", l.lock(nfs4.LockWriteWait, 10, 10), nfs4.ErrDenied)
	m.want("LOCK that closes the circle", m.lock(nfs4.LockWriteWait, 0, 10), nfs4.ErrDeadlock)
	m.want("LOCK that does not wait", m.lock(nfs4.LockWrite, 0, 10), nfs4.ErrDenied)
	m.want("LOCKU", m.unlock(10, 10), nfs4.OK)
	l.want("LOCK", l.lock(nfs4.LockWriteWait, 10, 10), nfs4.OK)
}
