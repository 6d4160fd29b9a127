package oncrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podnas/podnas/server/oncrpc"
)

// A client that sends half a record, or reads no replies, costs only itself, and
// only for a while.
func TestServerStuckClients(t *testing.T) {
	s := startServer(t, oncrpc.Limits{
		ConnBytes: 4 << 20, TotalBytes: 16 << 20,
		Record: 2 * time.Second, Write: 2 * time.Second, // in which the other one reads, however busy the machine is
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
	s := startServer(t, oncrpc.Limits{ConnCalls: 4})
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
	s := startServer(t, oncrpc.Limits{Conns: 3, PeerConns: 2})
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
		s.echo(conn, 1)
		idle = append(idle, conn)
		eventually(t, "it is idle", func() bool { return s.idle() == n+1 })
		s.server.LookForWaits(time.Now()) // now it is known since when
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
func (s *testServer) idle() int {
	_, idle, _ := s.server.ConnsIn()
	return idle
}

// Half a record makes room for a connection from an address that has fewer.
func TestStuckConnectionsMakeRoom(t *testing.T) {
	s := startServer(t, oncrpc.Limits{Conns: 8, PeerConns: 6})
	for n := range 40 {
		conn := s.connectFrom(net.IPv4(127, 0, 4, byte(n%2)))
		if _, err := conn.Write([]byte{0x80, 0, 0, 100, 1}); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(50 * time.Millisecond) // until all are read
	for n := range 10 {
		conn := s.connectFrom(net.IPv4(127, 0, 5, 1))
		s.echo(conn, uint32(n)+1)
	}
}

// Connections whose calls take long are not closed for others, but a few addresses can't have all there are with these, and what others
// have is not closed for them.
func TestBusyConnectionsLeaveRoom(t *testing.T) {
	const conns, perPeer, addresses = 320, 100, 4
	s := startServer(t, oncrpc.Limits{Conns: conns, PeerConns: perPeer})
	neighbour := s.connectFrom(net.IPv4(127, 0, 9, 1))
	s.echo(neighbour, 1)
	for n := range int32(addresses * perPeer) {
		conn := s.connectFrom(net.IPv4(127, 0, 7, byte(n%addresses)))
		_, _ = conn.Write(record(1, procBlock)) // it may be refused already
		eventually(t, "it is served, or refused", func() bool { return s.waiting.Load()+int32(s.stats.Refused.Load()) == n+1 })
	}
	defer close(s.blocked)
	if n := s.waiting.Load(); n != addresses*16+conns*3/4 {
		t.Errorf("%d are served, which is not the first 16 of each address and three quarters of all", n)
	}
	s.echo(neighbour, 2)
	for n := range byte(15) {
		s.echo(s.connectFrom(net.IPv4(127, 0, 9, n+2)), 3)
	}
	s.echo(neighbour, 4)
	if n := s.stats.Closed.Load(); n != 0 {
		t.Errorf("%d connections were closed", n)
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
	s := startServer(t, oncrpc.Limits{Idle: 50 * time.Millisecond})
	conn := s.connect()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("an idle connection: %v, want the end", err)
	}
}

// A record that comes byte by byte has no more time than one that stops.
func TestServerDrippingClient(t *testing.T) {
	s := startServer(t, oncrpc.Limits{Record: 200 * time.Millisecond})
	conn := s.connect()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = conn.Read(make([]byte, 1)) // until the server ends it
	}()
	if _, err := conn.Write([]byte{0x80, 0x10, 0, 0}); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(20 * time.Second); ; {
		select {
		case <-ended:
			return
		case <-tick.C:
			_, _ = conn.Write([]byte{0}) // fails once it is ended
		case <-limit:
			t.Fatal("the connection is still there")
		}
	}
}

// A client that reads slowly, but all the time, gets all replies, however many were written together. While others want the memory of
// these, it does not.
func TestSlowReaders(t *testing.T) {
	const calls = 9
	// read reads 24 KiB at a time, 100 times a second at most.
	read := func(conn net.Conn) (n int, err error) {
		buf := make([]byte, 24<<10)
		for n < calls<<20 && err == nil {
			var more int
			more, err = conn.Read(buf)
			n += more
			time.Sleep(10 * time.Millisecond)
		}
		return n, err
	}
	// narrow opens so many connections that the kernel buffers little of further ones.
	narrow := func(s *testServer) {
		for range oncrpc.WidePerPeer {
			s.echo(s.connect(), 1)
		}
	}
	ask := func(s *testServer) net.Conn {
		conn := s.connect()
		if err := conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
			t.Fatal(err)
		}
		for xid := range uint32(calls) {
			if _, err := conn.Write(record(xid, procLarge)); err != nil {
				t.Fatal(err)
			}
		}
		return conn
	}
	t.Run("beside others", func(t *testing.T) {
		t.Parallel()
		s := startServer(t, oncrpc.Limits{Write: 2 * time.Second}) // 1 MiB takes half a second
		narrow(s)
		if n, err := read(ask(s)); err != nil {
			t.Errorf("%v after %d bytes", err, n)
		}
	})
	t.Run("others wait", func(t *testing.T) {
		t.Parallel()
		s := startServer(t, oncrpc.Limits{Write: 8 * time.Second, TotalBytes: 96 << 20})
		narrow(s)
		var slow sync.WaitGroup
		var cut atomic.Int32
		for range 6 { // more than one address may have
			conn := ask(s)
			slow.Go(func() {
				if _, err := read(conn); err != nil {
					cut.Add(1)
				}
			})
		}
		slow.Wait()
		if cut.Load() == 0 {
			t.Error("all have their replies")
		}
		if s.stats.MemoryWaits.Load() == 0 {
			t.Error("nobody has waited for memory")
		}
	})
}

// An idle connection holds no memory for calls.
func TestIdleConnectionsHoldNothing(t *testing.T) {
	s := startServer(t, oncrpc.Limits{})
	conn := s.connect()
	for range 3 {
		for xid := range uint32(100) {
			if _, err := conn.Write(record(xid, procEcho, xid)); err != nil {
				t.Fatal(err)
			}
		}
		for range 100 {
			replyTo(t, conn)
		}
		eventually(t, "nothing is held", func() bool { return s.server.Held() == "0 0" })
	}
	if _, err := conn.Write([]byte{0x80, 0x10, 0, 0}); err != nil { // 1 MiB follow
		t.Fatal(err)
	}
	eventually(t, "what has begun is charged", func() bool { return s.server.Held() == fmt.Sprint(oncrpc.Taken(1<<20), " ", 0) })
}
