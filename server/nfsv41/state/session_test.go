package state_test

import (
	"fmt"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// CREATE_SESSION has a sequence and a cache of its own; RFC 8881 section 18.36.4.
func TestCreateSessionSequence(t *testing.T) {
	w := newWorld(t, state.Limits{Sessions: 2})
	id, e := w.exchange("o", 1)
	w.want(e, nfs4.OK)
	a := state.CreateSessionArgs{ClientID: id.ClientID, Seq: id.Seq - 1, Principal: root, Fore: channel, Back: channel}
	_, e = w.CreateSession(a)
	w.want(e, nfs4.ErrSeqMisordered) // there is nothing to replay
	a.Seq = id.Seq
	stranger := a
	stranger.Principal.UID = 1000
	_, e = w.CreateSession(stranger)
	w.want(e, nfs4.ErrClidInUse)
	first, e := w.CreateSession(a)
	w.want(e, nfs4.OK)
	again, e := w.CreateSession(a)
	w.want(e, nfs4.OK)
	if again != first || w.Counts().Sessions != 1 {
		t.Errorf("a retransmission made %+v after %+v", again, first)
	}
	again, e = w.CreateSession(stranger) // the client ID is confirmed
	w.want(e, nfs4.OK)
	if again != first || w.Counts().Sessions != 1 {
		t.Errorf("a retransmission by another principal made %+v after %+v", again, first)
	}

	// A failure is cached, and the sequence moves on.
	a.Seq++
	small := a
	small.Fore.MaxRequest = 10
	for range 3 {
		_, e = w.CreateSession(small)
		w.want(e, nfs4.ErrTooSmall)
	}
	a.Seq += 2
	_, e = w.CreateSession(a)
	w.want(e, nfs4.ErrSeqMisordered)
	a.Seq--
	stranger.Seq = a.Seq
	second, e := w.CreateSession(stranger)
	w.want(e, nfs4.OK)
	if second.ID == first.ID {
		t.Error("two sessions have one ID")
	}
	a.Seq++
	_, e = w.CreateSession(a)
	w.want(e, nfs4.ErrNoSpc)
	w.ok()
}

// After a failure a request with the same sequence and other channels is no retransmission.
func TestCreateSessionTriesOther(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n := w.join("o", 1)
	a := n.create
	a.Seq++
	for name, change := range map[string]func(a *state.CreateSessionArgs){
		"requests":          func(a *state.CreateSessionArgs) { a.Fore.MaxRequest = 20 },
		"responses":         func(a *state.CreateSessionArgs) { a.Fore.MaxResponse = 20 },
		"operations":        func(a *state.CreateSessionArgs) { a.Fore.MaxOps = 0 },
		"callbacks":         func(a *state.CreateSessionArgs) { a.Back.MaxRequest = 20 },
		"replies to them":   func(a *state.CreateSessionArgs) { a.Back.MaxResponse = 20 },
		"CB_SEQUENCE alone": func(a *state.CreateSessionArgs) { a.Back.MaxOps = 1 },
	} {
		for _, back := range []bool{false, true} {
			small := a
			small.BackChannel = back
			change(&small)
			if _, e := w.CreateSession(small); e != nfs4.ErrTooSmall {
				t.Errorf("%s, back channel %t: %v", name, back, e)
			}
		}
	}
	first, e := w.CreateSession(a)
	w.want(e, nfs4.OK)
	other := a
	other.Fore.MaxOps--
	again, e := w.CreateSession(other) // after a success it is one
	w.want(e, nfs4.OK)
	if again != first || w.Counts().Sessions != 2 {
		t.Errorf("a retransmission made %+v after %+v", again, first)
	}
	w.ok()
}

// A session that can't be had does not end the incarnation before.
func TestCreateSessionThatFails(t *testing.T) {
	w := newWorld(t, state.Limits{})
	old := w.ready("o", 1)
	id, e := w.exchange("o", 2)
	w.want(e, nfs4.OK)
	_, e = w.CreateSession(state.CreateSessionArgs{ClientID: id.ClientID, Seq: id.Seq, Principal: root})
	w.want(e, nfs4.ErrTooSmall)
	_, e = old.renew()
	w.want(e, nfs4.OK)
	w.ok()
}

// Linux gives up if it gets more bytes than it asked for, fewer operations, or no
// slots. However many come, each gets a session, and the memory has a bound.
func TestNegotiation(t *testing.T) {
	limits := state.Limits{Slots: 16, Clients: 400, MoreSessions: 100}
	limits.ReplyBytes = 500*(state.SlotBytes+1024) + 64*16*(state.SlotBytes+3428)
	w := newWorld(t, limits)
	linux := state.Channel{MaxRequest: 1049620, MaxResponse: 1049480, MaxResponseCached: 3428, MaxOps: 8, MaxSlots: 64}
	back := state.Channel{MaxRequest: 4096, MaxResponse: 4096, MaxOps: 2, MaxSlots: 16}
	for i := range 400 {
		id, e := w.exchangeFrom(fmt.Sprintf("10.0.%d.%d:700", i/256, i%256), fmt.Sprint(i), 1)
		if e != nfs4.OK && i > 300 { // the last quarter of the clients
			break
		}
		w.want(e, nfs4.OK)
		r, e := w.CreateSession(state.CreateSessionArgs{
			ClientID: id.ClientID, Seq: id.Seq, Principal: root, Fore: linux, Back: back, BackChannel: true,
		})
		w.want(e, nfs4.OK)
		w.ok()
		if i == 0 && (r.Fore.MaxSlots != 16/4+1 || r.Fore.MaxResponseCached != 3428) {
			t.Errorf("the first session got %+v", r.Fore)
		}
		if r.Fore.MaxSlots == 0 || r.Fore.MaxOps < 8 || r.Fore.MaxRequest > linux.MaxRequest || r.Fore.MaxResponseCached < 1024 ||
			r.Fore.MaxResponse > linux.MaxResponse || r.Fore.MaxResponseCached > linux.MaxResponseCached || r.Back != back {
			t.Fatalf("got %+v, %+v", r.Fore, r.Back)
		}
	}
	if n := w.Counts().Sessions; n < 300 {
		t.Errorf("%d sessions", n)
	}
}

// A session without replies has memory, too.
func TestSlotsWithoutReplies(t *testing.T) {
	w := newWorld(t, state.Limits{ReplyBytes: 1, Clients: 64, MoreSessions: 64})
	n := w.ready("o", 1)
	again := n.create
	again.Fore.MaxResponseCached, again.Fore.MaxSlots = 0, 64
	for range 15 {
		again.Seq++
		r, e := w.CreateSession(again)
		w.want(e, nfs4.OK)
		if r.Fore.MaxSlots != 1 {
			t.Errorf("%d slots where there is memory for one", r.Fore.MaxSlots)
		}
		w.ok()
	}
}

// Who ends sessions while its lease is over has less to lose then: others with more go first.
func TestSilentSessionsEnd(t *testing.T) {
	w := newWorld(t, state.Limits{MoreSessions: 8})
	a, b := w.ready("a", 1), w.ready("b", 1)
	var ended []state.SessionID
	for i := range 3 {
		a.create.Seq++
		r, e := w.CreateSession(a.create)
		w.want(e, nfs4.OK)
		ended = append(ended, r.ID)
		if i > 0 {
			b.create.Seq++
			_, e = w.CreateSession(b.create)
			w.want(e, nfs4.OK)
		}
	}
	w.pass(lease + 1)
	w.Expire()
	for _, id := range ended[:2] {
		w.want(w.DestroySession(id, a.conn, nil), nfs4.OK)
		w.ok()
	}
	before := w.Counts().Sessions + 1
	for c := w.ready("c", 1); ; {
		w.ok()
		c.create.Seq++
		_, e := w.CreateSession(c.create)
		w.want(e, nfs4.OK)
		if w.Counts().Sessions < before {
			break
		}
		before++
	}
	w.ok()
	_, e := b.renew()
	w.want(e, nfs4.ErrBadSession)
	_, e = a.renew()
	w.want(e, nfs4.OK)
}

// When all sessions are taken, a client whose lease is over loses those that it has, and keeps what it has
// open.
func TestSilentSessionsMakeRoom(t *testing.T) {
	w := newWorld(t, state.Limits{MoreSessions: 4})
	a, b := w.ready("a", 1), w.ready("b", 1)
	id := a.mustOpen("x", 1)
	more := func(n *node) (state.CreateSessionResult, nfs4.Status) {
		n.create.Seq++
		return w.CreateSession(n.create)
	}
	for range 3 {
		_, e := more(a)
		w.want(e, nfs4.OK)
	}
	_, e := more(b)
	w.want(e, nfs4.ErrNoSpc) // the last is for another address
	c := w.joinFrom("10.0.0.2:700", "c", 1)
	w.ok()
	w.pass(lease + 1)
	_, e = c.renew()
	w.want(e, nfs4.OK)
	_, e = more(b)
	w.want(e, nfs4.OK)
	w.ok()
	_, e = a.renew()
	w.want(e, nfs4.ErrBadSession)
	a.create.Seq++
	_, e = w.CreateSession(a.create)
	w.want(e, nfs4.OK)
	w.want(w.Close(a.c, id, file1(1)), nfs4.OK)
	w.ok()
}

func TestConnections(t *testing.T) {
	w := newWorld(t, state.Limits{Conns: 3})
	n := w.ready("o", 1)
	paths := w.CallbackPaths(n.c.ID())
	if len(paths) != 1 || paths[0].Session != n.session || len(paths[0].Conns) != 1 || paths[0].Callback != "o" {
		t.Fatalf("paths are %+v", paths)
	}
	status, e := n.renew()
	w.want(e, nfs4.OK)
	if status != 0 {
		t.Errorf("status is %x", status)
	}

	// The connection breaks: the client is told, and binds another.
	w.ConnClosed(n.conn)
	w.ok()
	n.conn = newConn("10.0.0.1:701")
	status, _ = n.renew()
	if status != state.StatusCallbackPathDown|state.StatusCallbackPathDownSession || len(w.CallbackPaths(n.c.ID())) != 0 {
		t.Errorf("status is %x", status)
	}
	_, _, e = w.BindConn(n.session, n.conn, 0)
	w.want(e, nfs4.ErrInval)
	_, _, e = w.BindConn(state.SessionID{}, n.conn, state.Back)
	w.want(e, nfs4.ErrBadSession)
	dir, client, e := w.BindConn(n.session, n.conn, state.Fore|state.Back)
	w.want(e, nfs4.OK)
	status, _ = n.renew()
	if can, known := w.CanCallBack(client); client != n.c.ID() || !can || !known {
		t.Errorf("client %d can be called: %t", client, can)
	}
	if dir != state.Fore|state.Back || status != 0 || len(w.CallbackPaths(n.c.ID())) != 1 {
		t.Errorf("direction %d, status %x", dir, status)
	}
	w.CallbackFailed(n.session, n.conn)
	if status, _ = n.renew(); status == 0 {
		t.Error("the client is not told that callbacks fail")
	}

	for i := range 100 {
		n.conn = newConn(fmt.Sprint(i))
		_, e = n.renew()
		w.want(e, nfs4.OK)
		w.ok()
	}
	_, _, e = w.BindConn(n.session, n.conn, state.Back)
	w.want(e, nfs4.OK)
	if paths := w.CallbackPaths(n.c.ID()); paths[0].Callback != "o" {
		t.Errorf("paths are %+v", paths)
	}
	w.want(w.Evict(n.c.ID()), nfs4.OK)
	w.ok()
	if w.CallbackPaths(n.c.ID()) != nil {
		t.Error("connections of no session are left")
	}
	if can, known := w.CanCallBack(n.c.ID()); can || known {
		t.Error("a client that is gone can be called")
	}
}

// DESTROY_SESSION waits for the session's other requests, but not for its own.
func TestDestroySessionInUse(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n := w.ready("o", 1)
	a := state.SequenceArgs{Session: n.session, Seq: 1, Ops: 2, Conn: n.conn}
	own, e := w.Sequence(a)
	w.want(e, nfs4.OK)
	a.Slot, a.HighestSlot = 1, 1
	other, e := w.Sequence(a)
	w.want(e, nfs4.OK)
	w.want(w.DestroySession(n.session, n.conn, own.Slot), nfs4.ErrDelay)
	other.Slot.Done(nil, false)
	w.want(w.DestroySession(n.session, n.conn, nil), nfs4.ErrDelay)
	w.want(w.DestroySession(n.session, n.conn, own.Slot), nfs4.OK)
	own.Slot.Done([]byte("destroyed"), true)
	w.ok()
	w.want(w.DestroyClientID(n.c.ID(), root, newConn(home)), nfs4.OK) // nothing of it is under way
}

// DESTROY_SESSION comes by a connection of the session, or by any if it has none: RFC 8881 section
// 18.37.3.
func TestDestroySessionByAnother(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n, stranger := w.ready("o", 1), newConn("10.0.0.2:700")
	w.want(w.DestroySession(n.session, stranger, nil), nfs4.ErrConnNotBoundToSession)
	w.ConnClosed(n.conn)
	w.want(w.DestroySession(n.session, stranger, nil), nfs4.OK)
	w.ok()
}
