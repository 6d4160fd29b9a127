package state

import (
	"fmt"
	"testing"
)

// CREATE_SESSION has a sequence and a cache of its own; RFC 8881 section 18.36.4.
func TestCreateSessionSequence(t *testing.T) {
	w := newWorld(t, Limits{Sessions: 2})
	id, e := w.exchange("o", 1)
	w.want(e, OK)
	a := CreateSessionArgs{ClientID: id.ClientID, Seq: id.Seq - 1, Principal: root, Fore: channel, Back: channel}
	_, e = w.CreateSession(a)
	w.want(e, ErrSeqMisordered) // there is nothing to replay
	a.Seq = id.Seq
	stranger := a
	stranger.Principal.UID = 1000
	_, e = w.CreateSession(stranger)
	w.want(e, ErrClidInUse)
	first, e := w.CreateSession(a)
	w.want(e, OK)
	again, e := w.CreateSession(a)
	w.want(e, OK)
	if again != first || len(w.sessions.byID) != 1 {
		t.Errorf("a retransmission made %+v after %+v", again, first)
	}
	again, e = w.CreateSession(stranger) // the client ID is confirmed
	w.want(e, OK)
	if again != first || len(w.sessions.byID) != 1 {
		t.Errorf("a retransmission by another principal made %+v after %+v", again, first)
	}

	// A failure is cached, and the sequence moves on.
	a.Seq++
	small := a
	small.Fore.MaxRequest = 10
	for range 3 {
		_, e = w.CreateSession(small)
		w.want(e, ErrTooSmall)
	}
	a.Seq += 2
	_, e = w.CreateSession(a)
	w.want(e, ErrSeqMisordered)
	a.Seq--
	stranger.Seq = a.Seq
	second, e := w.CreateSession(stranger)
	w.want(e, OK)
	if second.ID == first.ID {
		t.Error("two sessions have one ID")
	}
	a.Seq++
	_, e = w.CreateSession(a)
	w.want(e, ErrNoSpc)
	w.ok()
}

// After a failure a request with the same sequence and other channels is no retransmission.
func TestCreateSessionTriesOther(t *testing.T) {
	w := newWorld(t, Limits{})
	n := w.join("o", 1)
	a := n.create
	a.Seq++
	for name, change := range map[string]func(a *CreateSessionArgs){
		"requests":          func(a *CreateSessionArgs) { a.Fore.MaxRequest = 20 },
		"responses":         func(a *CreateSessionArgs) { a.Fore.MaxResponse = 20 },
		"operations":        func(a *CreateSessionArgs) { a.Fore.MaxOps = 0 },
		"callbacks":         func(a *CreateSessionArgs) { a.Back.MaxRequest = 20 },
		"replies to them":   func(a *CreateSessionArgs) { a.Back.MaxResponse = 20 },
		"CB_SEQUENCE alone": func(a *CreateSessionArgs) { a.Back.MaxOps = 1 },
	} {
		for _, back := range []bool{false, true} {
			small := a
			small.BackChannel = back
			change(&small)
			if _, e := w.CreateSession(small); e != ErrTooSmall {
				t.Errorf("%s, back channel %t: %v", name, back, e)
			}
		}
	}
	first, e := w.CreateSession(a)
	w.want(e, OK)
	other := a
	other.Fore.MaxOps--
	again, e := w.CreateSession(other) // after a success it is one
	w.want(e, OK)
	if again != first || len(w.sessions.byID) != 2 {
		t.Errorf("a retransmission made %+v after %+v", again, first)
	}
	w.ok()
}

// A session that can't be had does not end the incarnation before.
func TestCreateSessionThatFails(t *testing.T) {
	w := newWorld(t, Limits{})
	old := w.ready("o", 1)
	id, e := w.exchange("o", 2)
	w.want(e, OK)
	_, e = w.CreateSession(CreateSessionArgs{ClientID: id.ClientID, Seq: id.Seq, Principal: root})
	w.want(e, ErrTooSmall)
	_, e = old.renew()
	w.want(e, OK)
	w.ok()
}

// Linux gives up if it gets more bytes than it asked for, fewer operations, or no
// slots. However many come, each gets a session, and the memory has a bound.
func TestNegotiation(t *testing.T) {
	limits := Limits{Slots: 16, Clients: 400, MoreSessions: 100}
	limits.ReplyBytes = 500*(slotBytes+1024) + 64*16*(slotBytes+3428)
	w := newWorld(t, limits)
	linux := Channel{MaxRequest: 1049620, MaxResponse: 1049480, MaxResponseCached: 3428, MaxOps: 8, MaxSlots: 64}
	back := Channel{MaxRequest: 4096, MaxResponse: 4096, MaxOps: 2, MaxSlots: 16}
	for i := range 400 {
		id, e := w.exchangeFrom(fmt.Sprintf("10.0.%d.%d:700", i/256, i%256), fmt.Sprint(i), 1)
		if e != OK && i > 300 { // the last quarter of the clients
			break
		}
		w.want(e, OK)
		r, e := w.CreateSession(CreateSessionArgs{
			ClientID: id.ClientID, Seq: id.Seq, Principal: root, Fore: linux, Back: back, BackChannel: true,
		})
		w.want(e, OK)
		w.ok()
		if i == 0 && (r.Fore.MaxSlots != 16/4+1 || r.Fore.MaxResponseCached != 3428) {
			t.Errorf("the first session got %+v", r.Fore)
		}
		if r.Fore.MaxSlots == 0 || r.Fore.MaxOps < 8 || r.Fore.MaxRequest > linux.MaxRequest || r.Fore.MaxResponseCached < 1024 ||
			r.Fore.MaxResponse > linux.MaxResponse || r.Fore.MaxResponseCached > linux.MaxResponseCached || r.Back != back {
			t.Fatalf("got %+v, %+v", r.Fore, r.Back)
		}
	}
	if n := len(w.sessions.byID); n < 300 {
		t.Errorf("%d sessions", n)
	}
}

// A session without replies has memory, too.
func TestSlotsWithoutReplies(t *testing.T) {
	w := newWorld(t, Limits{ReplyBytes: 1, Clients: 64, MoreSessions: 64})
	n := w.ready("o", 1)
	again := n.create
	again.Fore.MaxResponseCached, again.Fore.MaxSlots = 0, 64
	for range 15 {
		again.Seq++
		r, e := w.CreateSession(again)
		w.want(e, OK)
		if r.Fore.MaxSlots != 1 {
			t.Errorf("%d slots where there is memory for one", r.Fore.MaxSlots)
		}
		w.ok()
	}
}

// Who ends sessions while its lease is over has less to lose then: others with more go first.
func TestSilentSessionsEnd(t *testing.T) {
	w := newWorld(t, Limits{MoreSessions: 8})
	a, b := w.ready("a", 1), w.ready("b", 1)
	var ended []SessionID
	for i := range 3 {
		a.create.Seq++
		r, e := w.CreateSession(a.create)
		w.want(e, OK)
		ended = append(ended, r.ID)
		if i > 0 {
			b.create.Seq++
			_, e = w.CreateSession(b.create)
			w.want(e, OK)
		}
	}
	w.pass(lease + 1)
	w.Expire()
	for _, id := range ended[:2] {
		w.want(w.DestroySession(id, a.conn, nil), OK)
		w.ok()
	}
	w.mu.Lock()
	room := w.sessions.makeRoomForSession(nil)
	w.unlock()
	if !room {
		t.Fatal("nobody's sessions go")
	}
	w.ok()
	_, e := b.renew()
	w.want(e, ErrBadSession)
	_, e = a.renew()
	w.want(e, OK)
}

// When all sessions are taken, a client whose lease is over loses those that it has, and keeps what it has
// open.
func TestSilentSessionsMakeRoom(t *testing.T) {
	w := newWorld(t, Limits{MoreSessions: 4})
	a, b := w.ready("a", 1), w.ready("b", 1)
	id := a.mustOpen("x", 1)
	more := func(n *node) (CreateSessionResult, Error) {
		n.create.Seq++
		return w.CreateSession(n.create)
	}
	for range 3 {
		_, e := more(a)
		w.want(e, OK)
	}
	_, e := more(b)
	w.want(e, ErrNoSpc) // the last is for another address
	c := w.joinFrom("10.0.0.2:700", "c", 1)
	w.ok()
	w.pass(lease + 1)
	_, e = c.renew()
	w.want(e, OK)
	_, e = more(b)
	w.want(e, OK)
	w.ok()
	_, e = a.renew()
	w.want(e, ErrBadSession)
	a.create.Seq++
	_, e = w.CreateSession(a.create)
	w.want(e, OK)
	w.want(w.Close(a.c, id, file1(1)), OK)
	w.ok()
}

func TestConnections(t *testing.T) {
	w := newWorld(t, Limits{Conns: 3})
	n := w.ready("o", 1)
	paths := w.CallbackPaths(n.c.ID())
	if len(paths) != 1 || paths[0].Session != n.session || len(paths[0].Conns) != 1 || paths[0].Callback != "o" {
		t.Fatalf("paths are %+v", paths)
	}
	status, e := n.renew()
	w.want(e, OK)
	if status != 0 {
		t.Errorf("status is %x", status)
	}

	// The connection breaks: the client is told, and binds another.
	w.ConnClosed(n.conn)
	w.ok()
	n.conn = newConn("10.0.0.1:701")
	status, _ = n.renew()
	if status != StatusCallbackPathDown|StatusCallbackPathDownSession || len(w.CallbackPaths(n.c.ID())) != 0 {
		t.Errorf("status is %x", status)
	}
	_, _, e = w.BindConn(n.session, n.conn, 0)
	w.want(e, ErrInval)
	_, _, e = w.BindConn(SessionID{}, n.conn, Back)
	w.want(e, ErrBadSession)
	dir, client, e := w.BindConn(n.session, n.conn, Fore|Back)
	w.want(e, OK)
	status, _ = n.renew()
	if can, known := w.CanCallBack(client); client != n.c.ID() || !can || !known {
		t.Errorf("client %d can be called: %t", client, can)
	}
	if dir != Fore|Back || status != 0 || len(w.CallbackPaths(n.c.ID())) != 1 {
		t.Errorf("direction %d, status %x", dir, status)
	}
	w.CallbackFailed(n.session, n.conn)
	if status, _ = n.renew(); status == 0 {
		t.Error("the client is not told that callbacks fail")
	}

	for i := range 100 {
		n.conn = newConn(fmt.Sprint(i))
		_, e = n.renew()
		w.want(e, OK)
		w.ok()
	}
	if len(w.sessions.conns) != 3 {
		t.Errorf("%d connections are remembered", len(w.sessions.conns))
	}
	_, _, e = w.BindConn(n.session, n.conn, Back)
	w.want(e, OK)
	if paths := w.CallbackPaths(n.c.ID()); paths[0].Callback != "o" {
		t.Errorf("paths are %+v", paths)
	}
	w.want(w.Evict(n.c.ID()), OK)
	w.ok()
	if len(w.sessions.conns) != 0 || w.CallbackPaths(n.c.ID()) != nil {
		t.Error("connections of no session are left")
	}
	if can, known := w.CanCallBack(n.c.ID()); can || known {
		t.Error("a client that is gone can be called")
	}
}

// DESTROY_SESSION waits for the session's other requests, but not for its own.
func TestDestroySessionInUse(t *testing.T) {
	w := newWorld(t, Limits{})
	n := w.ready("o", 1)
	a := SequenceArgs{Session: n.session, Seq: 1, Ops: 2, Conn: n.conn}
	own, e := w.Sequence(a)
	w.want(e, OK)
	a.Slot, a.HighestSlot = 1, 1
	other, e := w.Sequence(a)
	w.want(e, OK)
	w.want(w.DestroySession(n.session, n.conn, own.Slot), ErrDelay)
	other.Slot.Done(nil, false)
	w.want(w.DestroySession(n.session, n.conn, nil), ErrDelay)
	w.want(w.DestroySession(n.session, n.conn, own.Slot), OK)
	own.Slot.Done([]byte("destroyed"), true)
	w.ok()
	if n.c.busy != 0 {
		t.Errorf("the client is busy: %d", n.c.busy)
	}
}

// DESTROY_SESSION comes by a connection of the session, or by any if it has none: RFC 8881 section
// 18.37.3.
func TestDestroySessionByAnother(t *testing.T) {
	w := newWorld(t, Limits{})
	n, stranger := w.ready("o", 1), newConn("10.0.0.2:700")
	w.want(w.DestroySession(n.session, stranger, nil), ErrConnNotBound)
	w.ConnClosed(n.conn)
	w.want(w.DestroySession(n.session, stranger, nil), OK)
	w.ok()
}
