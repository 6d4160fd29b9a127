package oncrpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/stats"
)

// The program of these tests.
const (
	testProg = 400_000
	testVers = 3

	procNull  = 0
	procEcho  = 1 // the arguments, as they came
	procCount = 2 // how often it was called; Replay
	procBlock = 3 // answers when the test lets it
	procPanic = 4
	procLater = 5  // panics on another goroutine
	procLarge = 6  // 1 MiB of results
	procNone  = 7  // has no handler
	procWait  = 8  // as procBlock, but on the connection's goroutine; then as procEcho
	procDisk  = 9  // as procWait, but in a system call
	procAlone = 10 // whether it is alone
)

type testServer struct {
	t       testing.TB
	addr    string
	counted atomic.Uint32
	blocked chan struct{} // a receiver for each procBlock that goes on
	disk    atomic.Int64  // a descriptor that each procDisk reads a byte from
	waiting atomic.Int32  // procBlocks that wait
	stop    func()
	logs    bytes.Buffer
	stats   *stats.Server
	server  *Server
}

type words []uint32

func (w words) Append(b []byte) []byte {
	for _, v := range w {
		b = xdr.AppendUint32(b, v)
	}
	return b
}

// volumeIn is whose call a test's is: the first word of its arguments.
func volumeIn(c *Call) uint64 {
	args := c.Args
	return uint64(args.Uint32())
}

// startServer serves until the end of the test.
func startServer(t testing.TB, change func(*limits)) *testServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startServerOn(t, l, change)
}

func startServerOn(t testing.TB, l net.Listener, change func(*limits)) *testServer {
	t.Helper()
	s := &testServer{t: t, blocked: make(chan struct{})}
	echo := func(c *Call) {
		c.Reply = append(c.Reply, c.Args.Rest()...)
		c.Finish(rpc.Success)
	}
	program := Program{Number: testProg, Version: testVers, Procedures: []Procedure{
		procNull: {Name: "NULL", Handle: func(c *Call) { c.Finish(rpc.Success) }, AnyAuth: true},
		procEcho: {Name: "ECHO", Handle: echo, AnyAuth: true},
		procCount: {Name: "COUNT", AnyAuth: true, Replay: true, Handle: func(c *Call) {
			wait := c.Args.Len() > 0 && c.Args.Uint32() == 1
			c.Later()
			go func() {
				defer c.Recover()
				if wait {
					s.waiting.Add(1)
					<-s.blocked
				}
				c.Reply = xdr.AppendUint32(c.Reply, s.counted.Add(1))
				c.Finish(rpc.Success)
			}()
		}},
		procBlock: {Name: "BLOCK", AnyAuth: true, Handle: func(c *Call) {
			c.Later()
			go func() {
				defer c.Recover()
				s.waiting.Add(1)
				<-s.blocked
				c.Finish(rpc.Success)
			}()
		}},
		procPanic: {Name: "PANIC", AnyAuth: true, Handle: func(*Call) { panic("at once") }},
		procLater: {Name: "LATER", AnyAuth: true, Handle: func(c *Call) {
			c.Later()
			go func() {
				defer c.Recover()
				panic("later")
			}()
		}},
		procLarge: {Name: "LARGE", AnyAuth: true, Handle: func(c *Call) {
			const size = 1 << 20
			c.Reserve(size)
			c.Reply = c.Reply[:len(c.Reply)+size]
			c.Later()
			go c.Finish(rpc.Success)
		}},
		procNone: {Name: "NONE"},
		procWait: {Name: "WAIT", AnyAuth: true, Handle: func(c *Call) {
			if !c.MayWait(volumeIn(c)) {
				c.Finish(rpc.SystemErr)
				return
			}
			s.waiting.Add(1)
			<-s.blocked
			c.MayWait(volumeIn(c)) // by now another may read the connection
			echo(c)
		}},
		procAlone: {Name: "ALONE", AnyAuth: true, Handle: func(c *Call) {
			c.Reply = xdr.AppendBool(c.Reply, c.Alone())
			c.Finish(rpc.Success)
		}},
		procDisk: {Name: "DISK", AnyAuth: true, Handle: func(c *Call) {
			c.MayWait(volumeIn(c))
			s.waiting.Add(1)
			if _, err := syscall.Read(int(s.disk.Load()), make([]byte, 1)); err != nil {
				panic(err)
			}
			echo(c)
		}},
	}}
	limits := defaultLimits()
	if change != nil {
		change(&limits)
	}
	server := newServer(ServerConfig{Programs: []Program{program}, Log: slog.New(slog.NewTextHandler(&s.logs, nil))}, limits)
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

// held is what is taken: bytes of the budget, and buffers to read into.
func (s *testServer) held() string {
	b := s.server.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprint(s.server.limits.totalBytes-b.free, " ", s.server.inputs.lent.Load())
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
	s := startServer(t, nil)
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
	s := startServer(t, nil)
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

// What can't be followed ends its connection, and no other.
func TestServerEndsBadConnections(t *testing.T) {
	s := startServer(t, nil)
	for name, sent := range map[string][]byte{
		"too large":      {0xff, 0xff, 0xff, 0xff},
		"a reply":        {0x80, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 1},
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

// A client that sends half a record, or reads no replies, costs only itself, and
// only for a while.
func TestServerStuckClients(t *testing.T) {
	s := startServer(t, func(l *limits) {
		l.connBytes, l.totalBytes = 4<<20, 16<<20
		l.record, l.write = 500*time.Millisecond, 500*time.Millisecond
	})
	var stuck sync.WaitGroup
	for range 3 {
		half := s.connect()
		if _, err := half.Write([]byte{0x80, 0x10, 0, 0, 1, 2, 3}); err != nil {
			t.Fatal(err)
		}
		deaf := s.connect()
		// Until the server closes them.
		stuck.Go(func() { _, _ = io.Copy(io.Discard, half) })
		stuck.Go(func() {
			for {
				if _, err := deaf.Write(record(1, procLarge)); err != nil {
					return
				}
			}
		})
	}
	c := s.dial()
	for range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, err := c.Call(ctx, testProg, testVers, procLarge, nil)
		cancel()
		if err != nil {
			t.Fatalf("beside stuck clients: %v", err)
		}
	}
	letGo := make(chan struct{})
	go func() {
		stuck.Wait()
		close(letGo)
	}()
	select {
	case <-letGo:
	case <-time.After(30 * time.Second):
		t.Error("stuck clients are never let go")
	}
	if s.stats.MemoryWaits.Load() == 0 {
		t.Error("nobody is counted who had to wait for memory")
	}
}

// Past the calls that one connection may have in flight, the server stops
// reading from it; others go on.
func TestServerBoundsCalls(t *testing.T) {
	s := startServer(t, func(l *limits) { l.connCalls = 4 })
	conn := s.connect()
	for xid := range uint32(10) {
		if _, err := conn.Write(record(xid, procBlock)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "4 calls wait", func() bool { return s.waiting.Load() == 4 })
	time.Sleep(50 * time.Millisecond)
	if n := s.waiting.Load(); n != 4 {
		t.Errorf("%d calls in flight, the limit is 4", n)
	}
	if _, err := s.dial().Call(t.Context(), testProg, testVers, procNull, nil); err != nil {
		t.Error(err)
	}
	close(s.blocked)
	for range 10 {
		replyTo(t, conn)
	}
	if s.stats.CallWaits.Load() == 0 {
		t.Error("it is not counted that the connection had to wait")
	}
}

// A connection too many has an idle one closed. One that is in use is not, and then
// the new one is refused, but for the server's own.
func TestServerBoundsConnections(t *testing.T) {
	s := startServer(t, func(l *limits) { l.conns, l.peerConns = 3, 2 })
	// which tells which of some connections the server has closed, when it has closed n.
	which := func(conns []net.Conn, n uint64) (closed []bool) {
		eventually(t, "connections are closed", func() bool { return s.stats.Closed.Load()+s.stats.Refused.Load() == n })
		for _, conn := range conns {
			if err := conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			_, err := conn.Read(make([]byte, 1))
			closed = append(closed, !errors.Is(err, os.ErrDeadlineExceeded))
		}
		return closed
	}
	var idle []net.Conn
	for n := range 3 { // two of one address
		conn := s.connectFrom(net.IPv4(127, 0, 1, byte(n/2)))
		s.count(conn, 1)
		idle = append(idle, conn)
		eventually(t, "it is idle", func() bool { return s.idle() == n+1 })
		s.server.endWaits(time.Now()) // now it is known since when
	}
	var busy []net.Conn
	for n := range int32(3) {
		conn := s.connectFrom(net.IPv4(127, 0, 2, byte(n/2)))
		if _, err := conn.Write(record(1, procBlock)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is served", func() bool { return s.waiting.Load() == n+1 })
		busy = append(busy, conn)
		if n == 0 && !slices.Equal(which(idle, 1), []bool{true, false, false}) {
			t.Error("the first to be closed is not the longest idle of the address that has most")
		}
	}
	if closed := which(idle, 3); slices.Contains(closed, false) {
		t.Errorf("idle connections are there beside as many busy ones as may be: %v", closed)
	}
	other := s.connectFrom(net.IPv4(127, 0, 3, 1))
	if !which([]net.Conn{other}, 4)[0] || s.stats.Refused.Load() != 1 {
		t.Error("one too many is not refused")
	}
	if _, err := s.dial().Call(t.Context(), testProg, testVers, procNull, nil); err != nil {
		t.Errorf("from the server's own address: %v", err)
	}
	for _, conn := range busy {
		s.blocked <- struct{}{}
		replyTo(t, conn)
	}
}

// idle counts the connections that have no call in flight.
func (s *testServer) idle() (n int) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	for c := range s.server.conns {
		if activity, _ := c.Activity(); activity == Idle {
			n++
		}
	}
	return n
}

// Half a record makes room for a connection from an address that has fewer.
func TestStuckConnectionsMakeRoom(t *testing.T) {
	s := startServer(t, func(l *limits) { l.conns, l.peerConns = 8, 6 })
	for n := range 40 {
		conn := s.connectFrom(net.IPv4(127, 0, 4, byte(n%2)))
		if _, err := conn.Write([]byte{0x80, 0, 0, 100, 1}); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(50 * time.Millisecond) // until all are read
	for n := range 10 {
		conn := s.connectFrom(net.IPv4(127, 0, 5, 1))
		if got := s.count(conn, uint32(n)+1); got != uint32(n)+1 {
			t.Errorf("call number %d, want %d", got, n+1)
		}
	}
}

// connectFrom connects from an address of this machine that is not the server's.
func (s *testServer) connectFrom(ip net.IP) net.Conn {
	s.t.Helper()
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: ip}}).DialContext(s.t.Context(), "tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestServerIdle(t *testing.T) {
	s := startServer(t, func(l *limits) { l.idle = 50 * time.Millisecond })
	conn := s.connect()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("an idle connection: %v, want the end", err)
	}
}

// A repeated call gets the first reply, over any connection, and is done once.
func TestServerReplays(t *testing.T) {
	s := startServer(t, nil)
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
		if _, err := conn.Write(record(9, procCount, 1)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the call is under way", func() bool { return s.waiting.Load() == 1 })
	time.Sleep(20 * time.Millisecond)
	close(s.blocked)
	for _, conn := range []net.Conn{first, other, first} {
		if _, results := replyTo(t, conn); !bytes.Equal(results, words{4}.Append(nil)) {
			t.Errorf("reply %x, want call number 4", results)
		}
	}
	if n := s.counted.Load(); n != 4 {
		t.Errorf("done %d times, want 4", n)
	}
	if n := s.stats.Replayed.Load(); n != 5 {
		t.Errorf("%d calls are counted as made again, want 5", n)
	}
}

// count calls procCount, which tells how often it was called.
func (s *testServer) count(conn net.Conn, xid uint32, args ...uint32) uint32 {
	s.t.Helper()
	if _, err := conn.Write(record(xid, procCount, args...)); err != nil {
		s.t.Fatal(err)
	}
	got, results := replyTo(s.t, conn)
	d := xdr.NewDecoder(results)
	if n := d.Uint32(); got == xid && d.Finish() == nil {
		return n
	}
	s.t.Fatalf("reply to %d: xid %d, %x", xid, got, results)
	return 0
}

// So many calls are remembered, each with its own reply.
func TestReplaysAreBounded(t *testing.T) {
	s := startServer(t, nil)
	conn := s.connect()
	const calls = 2*replaysPerClient + 100
	for xid := uint32(1); xid <= calls; xid++ {
		if got := s.count(conn, xid); got != xid {
			t.Fatalf("call %d is number %d", xid, got)
		}
	}
	for xid := uint32(calls - replaysPerClient + 1); xid <= calls; xid++ {
		if got := s.count(conn, xid); got != xid {
			t.Errorf("call %d again: the reply to %d", xid, got)
		}
	}
	if got := s.count(conn, calls-replaysPerClient); got != calls+1 {
		t.Errorf("a call that is forgotten is number %d, want %d", got, calls+1)
	}
}

// Stopping lets the calls under way finish, and leaves nothing behind.
func TestServerStops(t *testing.T) {
	before := runtime.NumGoroutine()
	s := startServer(t, nil)
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
	f.Add(record(1, procCount))
	f.Add(append(record(1, procPanic), record(2, procLarge)...))
	f.Add([]byte{0, 0, 0, 1, 0, 0x80, 0, 0, 0})
	l, err := net.Listen("unix", filepath.Join(f.TempDir(), "rpc"))
	if err != nil {
		f.Fatal(err)
	}
	s := startServerOn(f, l, func(l *limits) { l.record = 100 * time.Millisecond })
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
