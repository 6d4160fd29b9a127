package nfsv3_test

import (
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/nfsv3"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// counter is a server with one procedure, which tells how often it was called. One that is
// repeated gets the reply of the first.
type counter struct {
	t       *testing.T
	server  *oncrpc.Server
	addr    string
	counted atomic.Uint32
	waiting atomic.Int32  // calls with an argument of 1 wait
	blocked chan struct{} // until this is closed
}

func startCounter(t *testing.T) *counter {
	t.Helper()
	s := &counter{t: t, blocked: make(chan struct{})}
	s.server, s.addr = serve(t, oncrpc.Procedure{Name: "COUNT", AnyAuth: true, Repeated: nfsv3.NewRepeated(), Handle: func(c *oncrpc.Call) rpc.AcceptStat {
		if c.Args.Len() > 0 && c.Args.Uint32() == 1 {
			c.Wait()
			s.waiting.Add(1)
			<-s.blocked
		}
		c.Reply = xdr.AppendUint32(c.Reply, s.counted.Add(1))
		return rpc.Success
	}})
	return s
}

func (s *counter) connect() net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// send sends a call.
func (s *counter) send(conn net.Conn, xid uint32, cred rpc.Auth, args ...uint32) {
	s.t.Helper()
	b, at := rpc.BeginRecord(nil)
	h := rpc.CallHeader{XID: xid, RPCVersion: rpc.Version, Prog: nfs3.Program, Vers: nfs3.Version, Cred: cred}
	b = h.Append(b)
	for _, v := range args {
		b = xdr.AppendUint32(b, v)
	}
	rpc.EndRecord(b, at)
	if _, err := conn.Write(b); err != nil {
		s.t.Fatal(err)
	}
}

// number reads a reply: how often the procedure was called then.
func (s *counter) number(conn net.Conn, xid uint32) uint32 {
	s.t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		s.t.Fatal(err)
	}
	b, err := rpc.ReadRecord(conn, nil, 1<<10)
	if err != nil {
		s.t.Fatalf("read a reply: %v", err)
	}
	d := xdr.NewDecoder(b)
	var h rpc.ReplyHeader
	h.Decode(&d)
	n := d.Uint32()
	if err := errors.Join(h.Err(), d.Finish()); err != nil || h.XID != xid {
		s.t.Fatalf("reply to %d: xid %d, %v", xid, h.XID, err)
	}
	return n
}

func (s *counter) count(conn net.Conn, xid uint32, args ...uint32) uint32 {
	s.t.Helper()
	s.send(conn, xid, rpc.Auth{}, args...)
	return s.number(conn, xid)
}

// A repeated call gets the first reply, over any connection, and is done once.
func TestReplays(t *testing.T) {
	s := startCounter(t)
	first, other := s.connect(), s.connect()
	for _, tt := range []struct {
		name string
		conn net.Conn
		xid  uint32
		args []uint32
		want uint32
	}{
		{"first", first, 1, nil, 1},
		{"again", first, 1, nil, 1},
		{"again elsewhere", other, 1, nil, 1},
		{"another xid", first, 2, nil, 2},
		{"other arguments", first, 1, []uint32{7}, 3},
		{"the first again", other, 1, nil, 1},
	} {
		if got := s.count(tt.conn, tt.xid, tt.args...); got != tt.want {
			t.Errorf("%s: call number %d, want %d", tt.name, got, tt.want)
		}
	}

	// While the first is under way, the same call waits for it.
	for _, conn := range []net.Conn{first, other, first} {
		s.send(conn, 9, rpc.Auth{}, 1)
	}
	for s.waiting.Load() != 1 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond)
	close(s.blocked)
	for _, conn := range []net.Conn{first, other, first} {
		if n := s.number(conn, 9); n != 4 {
			t.Errorf("call number %d, want 4", n)
		}
	}
	if n := s.counted.Load(); n != 4 {
		t.Errorf("done %d times, want 4", n)
	}
	if n := s.server.Stats().Replayed.Load(); n != 5 {
		t.Errorf("%d calls are counted as made again, want 5", n)
	}
}

// So many calls are remembered, each with its own reply.
func TestReplaysAreBounded(t *testing.T) {
	s := startCounter(t)
	conn := s.connect()
	const calls = 2*nfsv3.ReplaysPerClient + 100
	for xid := uint32(1); xid <= calls; xid++ {
		if got := s.count(conn, xid); got != xid {
			t.Fatalf("call %d is number %d", xid, got)
		}
	}
	for xid := uint32(calls - nfsv3.ReplaysPerClient + 1); xid <= calls; xid++ {
		if got := s.count(conn, xid); got != xid {
			t.Errorf("call %d again: the reply to %d", xid, got)
		}
	}
	if got := s.count(conn, calls-nfsv3.ReplaysPerClient); got != calls+1 {
		t.Errorf("a call that is forgotten is number %d, want %d", got, calls+1)
	}
}

// A reply belongs to a call of the same caller, with the same groups.
func TestReplaysOfOthers(t *testing.T) {
	s := startCounter(t)
	conn := s.connect()
	count := func(cred *rpc.SysCred) uint32 {
		var auth rpc.Auth
		if cred != nil {
			auth = cred.Auth()
		}
		s.send(conn, 1, auth)
		return s.number(conn, 1)
	}
	as := func(stamp, uid, gid uint32, groups ...uint32) *rpc.SysCred {
		cred := &rpc.SysCred{Stamp: stamp, UID: uid, GID: gid}
		cred.SetGroups(groups...)
		return cred
	}
	callers := []*rpc.SysCred{nil, as(1, 0, 0), as(1, 1, 0), as(1, 0, 1), as(1, 0, 0, 0), as(1, 0, 0, 1), as(1, 0, 0, 1, 2), as(1, 0, 0, 2, 1)}
	for round := range 2 {
		for n, cred := range callers {
			if got := count(cred); got != uint32(n)+1 {
				t.Errorf("round %d, caller %d: call number %d, want %d", round, n, got, n+1)
			}
		}
	}
	if got := count(as(2, 0, 0)); got != 2 {
		t.Errorf("with another stamp: call number %d, want 2", got)
	}
}

// serve serves one procedure, of number 0, until the end of the test.
func serve(t *testing.T, p oncrpc.Procedure) (server *oncrpc.Server, address string) {
	t.Helper()
	server, err := oncrpc.NewServer(oncrpc.ServerConfig{
		Programs: []oncrpc.Program{{Number: nfs3.Program, Version: nfs3.Version, Procedures: []oncrpc.Procedure{p}}},
		Log:      slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return server, nfstest.Serve(t, server).String()
}
