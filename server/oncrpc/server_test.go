package oncrpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/stats"
)

// The program of these tests.
const (
	testProg = 400_000
	testVers = 3

	procNull  = 0
	procEcho  = 1 // the arguments, as they came
	procAgain = 2 // as procBlock, twice
	procBlock = 3 // as procEcho, when the test lets it
	procPanic = 4
	procLater = 5  // panics when another goroutine reads
	procLarge = 6  // 1 MiB of results
	procNone  = 7  // has no handler
	procWait  = 8  // as procBlock, but on the goroutine that reads; then as procEcho
	procDisk  = 9  // as procWait, but in a system call
	procAlone = 10 // whether it is alone
	procThen  = 11 // as procWait, but when another goroutine reads
	procMore  = 12 // see moreChunks
)

type testServer struct {
	t       testing.TB
	addr    string
	blocked chan struct{}     // a receiver for each procBlock that goes on
	disk    atomic.Int64      // a descriptor that each procDisk reads a byte from
	waiting atomic.Int32      // procBlocks that wait
	handled atomic.Int32      // how often a handler was called
	waiters chan *oncrpc.Call // procBlocks that wait
	stop    func()
	logs    bytes.Buffer
	stats   *stats.Server
	server  *oncrpc.Server
}

type words []uint32

func (w words) Append(b []byte) []byte {
	for _, v := range w {
		b = xdr.AppendUint32(b, v)
	}
	return b
}

// volumeIn is whose call a test's is: the first word of its arguments.
func volumeIn(c *oncrpc.Call) uint64 {
	args := c.Args
	return uint64(args.Uint32())
}

// startServer serves until the end of the test.
func startServer(t testing.TB, limits oncrpc.Limits) *testServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startServerOn(t, l, limits)
}

func startServerOn(t testing.TB, l net.Listener, limits oncrpc.Limits) *testServer {
	t.Helper()
	s := &testServer{t: t, blocked: make(chan struct{}), waiters: make(chan *oncrpc.Call, 256)}
	echo := func(c *oncrpc.Call) rpc.AcceptStat {
		c.Reply = append(c.Reply, c.Args.Rest()...)
		return rpc.Success
	}
	wait := func() {
		s.waiting.Add(1)
		<-s.blocked
	}
	program := oncrpc.Program{Number: testProg, Version: testVers, Procedures: []oncrpc.Procedure{
		procNull: {Name: "NULL", AnyAuth: true, Handle: func(*oncrpc.Call) rpc.AcceptStat { return rpc.Success }},
		procEcho: {Name: "ECHO", AnyAuth: true, Handle: echo},
		procBlock: {Name: "BLOCK", AnyAuth: true, Handle: func(c *oncrpc.Call) rpc.AcceptStat {
			c.Wait()
			s.waits(c)
			wait()
			return echo(c)
		}},
		procAgain: {Name: "AGAIN", AnyAuth: true, Handle: func(c *oncrpc.Call) rpc.AcceptStat {
			c.Wait()
			s.waits(c)
			wait()
			c.Wait()
			wait()
			return echo(c)
		}},
		procPanic: {Name: "PANIC", AnyAuth: true, Handle: func(*oncrpc.Call) rpc.AcceptStat { panic("at once") }},
		procLater: {Name: "LATER", AnyAuth: true, Handle: func(c *oncrpc.Call) rpc.AcceptStat {
			c.Wait()
			panic("later")
		}},
		procLarge: {Name: "LARGE", AnyAuth: true, Handle: func(c *oncrpc.Call) rpc.AcceptStat {
			const size = 1 << 20
			if !c.Reserve(size) {
				return rpc.SystemErr
			}
			c.Reply = c.Reply[:len(c.Reply)+size]
			c.Wait()
			return rpc.Success
		}},
		procNone: {Name: "NONE"},
		procWait: {Name: "WAIT", AnyAuth: true, Handle: func(c *oncrpc.Call) rpc.AcceptStat {
			if !c.MayWait(volumeIn(c), false) {
				return rpc.SystemErr
			}
			wait()
			c.MayWait(volumeIn(c), false) // by now another may read the connection
			return echo(c)
		}},
		procThen: {Name: "THEN", AnyAuth: true, Handle: func(c *oncrpc.Call) rpc.AcceptStat {
			c.Wait()
			if !c.MayWait(volumeIn(c), false) {
				return rpc.SystemErr
			}
			wait()
			c.Wait() // it has
			return echo(c)
		}},
		procAlone: {Name: "ALONE", AnyAuth: true, Handle: func(c *oncrpc.Call) rpc.AcceptStat {
			c.Reply = xdr.AppendBool(c.Reply, c.Alone())
			return rpc.Success
		}},
		procMore: {Name: "MORE", AnyAuth: true, Handle: func(c *oncrpc.Call) rpc.AcceptStat {
			moreChunks(t, c)
			return rpc.Success
		}},
		procDisk: {Name: "DISK", AnyAuth: true, Handle: func(c *oncrpc.Call) rpc.AcceptStat {
			c.MayWait(volumeIn(c), false)
			s.waiting.Add(1)
			if _, err := syscall.Read(int(s.disk.Load()), make([]byte, 1)); err != nil {
				panic(err)
			}
			return echo(c)
		}},
	}}
	for i := range program.Procedures {
		if handle := program.Procedures[i].Handle; handle != nil {
			program.Procedures[i].Handle = func(c *oncrpc.Call) rpc.AcceptStat {
				s.handled.Add(1)
				return handle(c)
			}
		}
	}
	server := oncrpc.NewLimited(oncrpc.ServerConfig{Programs: []oncrpc.Program{program}, Log: slog.New(slog.NewTextHandler(&s.logs, nil))}, limits)
	s.server, s.stats = server, server.Stats()
	s.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-served:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("Serve does not end")
		}
	})
	t.Cleanup(s.stop)
	return s
}

// waits tells the test of a call, if it takes them.
func (s *testServer) waits(c *oncrpc.Call) {
	select {
	case s.waiters <- c:
	default:
	}
}

func (s *testServer) dial() *rpc.Client {
	s.t.Helper()
	c, err := rpc.Dial(s.t.Context(), s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// dialFrom is dial of another client, with an address of the loopback interface.
func (s *testServer) dialFrom(address string) *rpc.Client {
	s.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := d.DialContext(s.t.Context(), "tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	c := rpc.NewClient(conn)
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *testServer) connect() net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// record is a call as it stands on the wire.
func record(xid, proc uint32, args ...uint32) []byte {
	b, at := rpc.BeginRecord(nil)
	h := rpc.CallHeader{XID: xid, RPCVersion: rpc.Version, Prog: testProg, Vers: testVers, Proc: proc}
	b = words(args).Append(h.Append(b))
	rpc.EndRecord(b, at)
	return b
}

// replyTo reads one reply and returns its xid and results.
func replyTo(t testing.TB, conn net.Conn) (uint32, []byte) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b, err := rpc.ReadRecord(conn, nil, 2<<20)
	if err != nil {
		t.Fatalf("read a reply: %v", err)
	}
	d := xdr.NewDecoder(b)
	var h rpc.ReplyHeader
	h.Decode(&d)
	if err := errors.Join(d.Err(), h.Err()); err != nil {
		t.Fatalf("reply: %v", err)
	}
	return h.XID, d.Rest()
}

func TestServerAnswers(t *testing.T) {
	s := startServer(t, oncrpc.Limits{})
	c := s.dial()
	got, err := c.Call(t.Context(), testProg, testVers, procEcho, words{1, 2, 3})
	if err != nil || !bytes.Equal(got, words{1, 2, 3}.Append(nil)) {
		t.Errorf("echo: %x, %v", got, err)
	}
	for _, tt := range []struct {
		name             string
		prog, vers, proc uint32
		want             rpc.RPCError
	}{
		{"program", 1, testVers, 0, rpc.RPCError{Accept: rpc.ProgUnavail}},
		{"version", testProg, 4, 0, rpc.RPCError{Accept: rpc.ProgMismatch, Low: testVers, High: testVers}},
		{"procedure", testProg, testVers, 99, rpc.RPCError{Accept: rpc.ProcUnavail}},
		{"no handler", testProg, testVers, procNone, rpc.RPCError{Accept: rpc.ProcUnavail}},
		{"panic", testProg, testVers, procPanic, rpc.RPCError{Accept: rpc.SystemErr}},
		{"panic later", testProg, testVers, procLater, rpc.RPCError{Accept: rpc.SystemErr}},
	} {
		_, err := c.Call(t.Context(), tt.prog, tt.vers, tt.proc, nil)
		var got *rpc.RPCError
		if !errors.As(err, &got) || *got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, err, &tt.want)
		}
	}
	if _, err := c.Call(t.Context(), testProg, testVers, procNull, nil); err != nil {
		t.Errorf("after the panics: %v", err)
	}
	s.stop()
	if logs := s.logs.String(); bytes.Count(s.logs.Bytes(), []byte("ended in a panic")) != 2 || !bytes.Contains(s.logs.Bytes(), []byte("server_test.go")) {
		t.Errorf("the log lacks the panics and their stacks: %s", logs)
	}
}

// Many calls in one write are answered, small and large, in fragments of any
// size.
func TestServerPipeline(t *testing.T) {
	s := startServer(t, oncrpc.Limits{})
	conn := s.connect()
	var batch []byte
	for xid := range uint32(500) {
		batch = append(batch, record(xid, procEcho, xid)...)
	}
	go func() {
		for len(batch) > 0 {
			n := min(len(batch), 1+len(batch)%977)
			if _, err := conn.Write(batch[:n]); err != nil {
				t.Error(err)
				return
			}
			batch = batch[n:]
		}
	}()
	for want := range uint32(500) {
		xid, results := replyTo(t, conn)
		if xid != want || !bytes.Equal(results, words{want}.Append(nil)) {
			t.Fatalf("reply to %d: %x, want %d", xid, results, want)
		}
	}
	whole := record(7, procEcho, 1, 2, 3)[4:]
	var fragments []byte
	for i, b := range whole {
		mark := uint32(1)
		if i == len(whole)-1 {
			mark |= 1 << 31
		}
		fragments = append(xdr.AppendUint32(fragments, mark), b)
	}
	if _, err := conn.Write(fragments); err != nil {
		t.Fatal(err)
	}
	if xid, results := replyTo(t, conn); xid != 7 || len(results) != 12 {
		t.Errorf("of fragments: %d, %x", xid, results)
	}
}

// A credential or verifier that is longer than RFC 5531 section 8.2 lets it be is refused. The connection
// lasts.
func TestLongCredential(t *testing.T) {
	s := startServer(t, oncrpc.Limits{})
	conn := s.connect()
	long := rpc.Auth{Flavor: rpc.AuthSys, Body: make([]byte, rpc.MaxAuthBody+4)}
	for _, tt := range []struct {
		name       string
		cred, verf rpc.Auth
		want       rpc.AuthStat
	}{
		{"credential", long, rpc.Auth{}, rpc.AuthBadCred},
		{"verifier", rpc.Auth{}, long, rpc.AuthBadVerf},
		{"both", long, long, rpc.AuthBadCred},
	} {
		h := rpc.CallHeader{XID: 1, RPCVersion: rpc.Version, Prog: testProg, Vers: testVers, Proc: procEcho, Cred: tt.cred, Verf: tt.verf}
		b, at := rpc.BeginRecord(nil)
		b = h.Append(b)
		rpc.EndRecord(b, at)
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
		var mark [4]byte
		if _, err := io.ReadFull(conn, mark[:]); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		reply := make([]byte, binary.BigEndian.Uint32(mark[:])&^(1<<31))
		if _, err := io.ReadFull(conn, reply); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		var got rpc.ReplyHeader
		d := xdr.NewDecoder(reply)
		if got.Decode(&d); d.Finish() != nil || got.Stat != rpc.MsgDenied || got.Reject != rpc.AuthError || got.Auth != tt.want {
			t.Errorf("%s: %+v, %v", tt.name, got, d.Err())
		}
	}
	if _, err := conn.Write(record(9, procEcho, 1)); err != nil {
		t.Fatal(err)
	}
	if xid, results := replyTo(t, conn); xid != 9 || len(results) != 4 {
		t.Errorf("afterwards: %d, %x", xid, results)
	}
}

// What can't be followed ends its connection, and no other.
func TestServerEndsBadConnections(t *testing.T) {
	s := startServer(t, oncrpc.Limits{})
	for name, sent := range map[string][]byte{
		"too large":      {0xff, 0xff, 0xff, 0xff},
		"no message":     {0x80, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 2},
		"short":          {0x80, 0, 0, 4, 0, 0, 0, 1},
		"empty":          {0x80, 0, 0, 0},
		"long flavor":    append([]byte{0x80, 0, 0, 36}, bytes.Repeat([]byte{0xff}, 36)...),
		"only fragments": bytes.Repeat([]byte{0, 0, 0, 0}, 1<<16),
	} {
		conn := s.connect()
		if _, err := conn.Write(sent); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(conn); errors.Is(err, context.DeadlineExceeded) || len(b) > 0 {
			t.Errorf("%s: %x, %v, want the end", name, b, err)
		}
	}
	if _, err := s.dial().Call(t.Context(), testProg, testVers, procNull, nil); err != nil {
		t.Error(err)
	}
}

// A connection that ends in the middle of what was read ahead keeps no memory that others want.
func TestEndedConnectionsHoldNothing(t *testing.T) {
	s := startServer(t, oncrpc.Limits{})
	for _, sent := range [][]byte{{0xff, 0xff, 0xff, 0xff}, append(record(1, procEcho), 0x80, 0, 0, 4, 0, 0, 0, 1, 0, 0)} {
		conn := s.connect()
		if _, err := conn.Write(sent); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, conn) // until the server ends it
	}
	eventually(t, "nothing is held", func() bool { return s.server.Held() == "0 0" })
}

// A reply is no call. The server has asked nobody, and goes on with the next record.
func TestReplyFromClient(t *testing.T) {
	s := startServer(t, oncrpc.Limits{})
	conn := s.connect()
	for xid := range uint32(300) { // more than there are calls in flight
		b, at := rpc.BeginRecord(nil)
		b = (&rpc.ReplyHeader{XID: xid}).Append(b)
		rpc.EndRecord(b, at)
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	s.echo(conn, 1)
}

// echo has a call answered.
func (s *testServer) echo(conn net.Conn, xid uint32) {
	s.t.Helper()
	if _, err := conn.Write(record(xid, procEcho, xid)); err != nil {
		s.t.Fatal(err)
	}
	if got, results := replyTo(s.t, conn); got != xid || !bytes.Equal(results, words{xid}.Append(nil)) {
		s.t.Fatalf("reply to %d: xid %d, %x", xid, got, results)
	}
}

// Stopping lets the calls under way finish, and leaves nothing behind.
func TestServerStops(t *testing.T) {
	before := runtime.NumGoroutine()
	s := startServer(t, oncrpc.Limits{})
	conn := s.connect()
	if _, err := conn.Write(record(5, procBlock)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the call is under way", func() bool { return s.waiting.Load() == 1 })
	stopped := make(chan struct{})
	go func() {
		s.stop()
		close(stopped)
	}()
	time.Sleep(50 * time.Millisecond)
	select {
	case <-stopped:
		t.Error("stopped with a call under way")
	default:
	}
	close(s.blocked)
	if xid, _ := replyTo(t, conn); xid != 5 {
		t.Errorf("reply to %d", xid)
	}
	<-stopped
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection: %v, want the end", err)
	}
	if _, err := net.Dial("tcp", s.addr); err == nil {
		t.Error("still accepting")
	}
	eventually(t, "goroutines are gone", func() bool { return runtime.NumGoroutine() <= before })
}

// FuzzServer sends anything to a live server, which must go on. Over Unix sockets:
// so many connections would use up the ports.
func FuzzServer(f *testing.F) {
	f.Add(record(1, procEcho, 1, 2))
	f.Add(append(record(1, procPanic), record(2, procLarge)...))
	f.Add([]byte{0, 0, 0, 1, 0, 0x80, 0, 0, 0})
	l, err := net.Listen("unix", filepath.Join(f.TempDir(), "rpc"))
	if err != nil {
		f.Fatal(err)
	}
	s := startServerOn(f, l, oncrpc.Limits{Record: 100 * time.Millisecond})
	close(s.blocked)
	f.Fuzz(func(t *testing.T, sent []byte) {
		conn, err := net.Dial("unix", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write(sent); err != nil {
			return // the server was faster
		}
		other, err := net.Dial("unix", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		c := rpc.NewClient(other)
		defer c.Close()
		if _, err := c.Call(t.Context(), testProg, testVers, procNull, nil); err != nil {
			t.Errorf("after %x: %v", sent, err)
		}
	})
}
