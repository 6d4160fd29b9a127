package oncrpc_test

import (
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/internal/heartbeat"
	"github.com/podnas/podnas/internal/statedir"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/oncrpc"
)

// lostServer is a server whose disk a test can lose.
type lostServer struct {
	addr    string
	lost    atomic.Bool
	hang    atomic.Pointer[chan struct{}] // beats wait until it is closed; nil: they don't
	handled atomic.Int32
	goOn    chan struct{} // ends the calls of procBlock
	status  atomic.Uint32 // of procEcho's results
	sure    atomic.Bool   // whether it says that this is not the disk's
	beats   *heartbeat.Heartbeat
	end     func() // stops it
}

// startLost starts one that closes connections a second after its disk is lost.
func startLost(t *testing.T) *lostServer {
	t.Helper()
	return startLostWith(t, 10*time.Millisecond, 200*time.Millisecond, time.Second)
}

func startLostWith(t *testing.T, every, hold, closes time.Duration) *lostServer {
	t.Helper()
	s := &lostServer{goOn: make(chan struct{})}
	log := slog.New(slog.DiscardHandler)
	dir, err := statedir.Open(filepath.Join(t.TempDir(), "state"), nil, log)
	if err != nil {
		t.Fatal(err)
	}
	s.beats, err = heartbeat.Open(heartbeat.Config{
		Dir: dir, Mounted: time.Now(), Every: every, Hold: hold, Close: closes, Log: log,
		Overwrite: func([]byte) error {
			if hang := s.hang.Load(); hang != nil {
				<-*hang
			}
			if s.lost.Load() {
				return syscall.EIO
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	program := oncrpc.Program{Number: testProg, Version: testVers, Procedures: []oncrpc.Procedure{
		procNull: {Name: "NULL", AnyAuth: true, Handle: func(*oncrpc.Call) rpc.AcceptStat {
			s.handled.Add(1)
			return rpc.Success
		}},
		procBlock: {Name: "BLOCK", AnyAuth: true, Handle: func(c *oncrpc.Call) rpc.AcceptStat {
			s.handled.Add(1)
			c.Wait()
			<-s.goOn
			return rpc.Success
		}},
		procEcho: {Name: "STATUS", AnyAuth: true, Handle: func(c *oncrpc.Call) rpc.AcceptStat {
			s.handled.Add(1)
			c.Sure = s.sure.Load()
			c.Reply = binary.BigEndian.AppendUint32(c.Reply, s.status.Load())
			return rpc.Success
		}},
	}}
	server := oncrpc.NewLimited(oncrpc.ServerConfig{Programs: []oncrpc.Program{program}, Heartbeat: s.beats, Log: log}, oncrpc.Limits{Idle: time.Second, Record: time.Second, Write: time.Second})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l) }()
	stopped := false
	s.end = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		server.Wait()
	}
	t.Cleanup(func() {
		s.end()
		s.beats.Close()
	})
	return s
}

// lose loses the disk, and returns when replies are held.
func (s *lostServer) lose(t *testing.T) {
	t.Helper()
	s.lost.Store(true)
	eventually(t, "replies are held", func() bool { return !s.beats.Passes() })
}

// call calls a procedure on a connection of its own, and returns what its reply comes as.
func (s *lostServer) call(t *testing.T, proc uint32) <-chan error {
	t.Helper()
	client, err := rpc.Dial(t.Context(), s.addr)
	if err != nil {
		t.Fatal(err)
	}
	before := s.handled.Load()
	replied := make(chan error, 1)
	go func() {
		defer client.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_, err := client.Do(ctx, rpc.CallHeader{RPCVersion: rpc.Version, Prog: testProg, Vers: testVers, Proc: proc}, nil)
		replied <- err
	}()
	eventually(t, "the call is executed", func() bool { return s.handled.Load() > before })
	return replied
}

// A call that was executed while the disk is not known to be ours is answered when it is.
func TestReplyIsHeld(t *testing.T) {
	s := startLost(t)
	if err := <-s.call(t, procNull); err != nil {
		t.Fatal(err)
	}
	s.lose(t)
	held := s.call(t, procNull)
	time.Sleep(300 * time.Millisecond)
	if len(held) > 0 {
		t.Fatalf("answered: %v", <-held)
	}
	s.lost.Store(false)
	if err := <-held; err != nil {
		t.Errorf("not answered later: %v", err)
	}
}

// A disk that was lost makes calls fail before it is known to be lost. The errors are not told: another may have the disk, on which
// nothing is wrong. Errors of a disk that is ours are, soon.
func TestErrorsOfALostDisk(t *testing.T) {
	const wait = time.Minute // no beat comes by itself
	s := startLostWith(t, wait, wait, wait)
	for _, status := range []nfs3.Status{nfs3.ErrIO, nfs3.ErrNXIO, nfs3.ErrROFS, nfs3.ErrStale, nfs3.ErrServerFault} {
		s.status.Store(uint32(status))
		if err := <-s.call(t, procEcho); err != nil {
			t.Errorf("%v with a disk that is well: %v", status, err)
		}
		s.lost.Store(true)
		if !s.beats.Passes() {
			t.Fatal("it is known already")
		}
		held := s.call(t, procEcho)
		time.Sleep(200 * time.Millisecond)
		if len(held) > 0 {
			t.Errorf("%v was told", status)
		}
		s.lost.Store(false)
		if err := s.beats.WaitBeat(nil); err != nil {
			t.Fatal(err)
		}
		if err := <-held; err != nil {
			t.Errorf("%v when the disk is back: %v", status, err)
		}
	}
	s.status.Store(uint32(nfs3.ErrNoEnt))
	s.lost.Store(true)
	if err := <-s.call(t, procEcho); err != nil {
		t.Errorf("an error that is not the disk's: %v", err)
	}
	s.status.Store(uint32(nfs3.ErrNXIO))
	s.sure.Store(true)
	if err := <-s.call(t, procEcho); err != nil {
		t.Errorf("one that the handler knows not to be: %v", err)
	}
}

// A reply that waits for a beat delays no other one of its connection.
func TestErrorDelaysItsCallAlone(t *testing.T) {
	const wait = time.Minute
	s := startLostWith(t, wait, wait, wait)
	s.status.Store(uint32(nfs3.ErrIO))
	hang := make(chan struct{})
	s.hang.Store(&hang)
	client, err := rpc.Dial(t.Context(), s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	do := func(proc uint32) error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_, err := client.Do(ctx, rpc.CallHeader{RPCVersion: rpc.Version, Prog: testProg, Vers: testVers, Proc: proc}, nil)
		return err
	}
	held := make(chan error, 1)
	go func() { held <- do(procEcho) }()
	eventually(t, "the call is executed", func() bool { return s.handled.Load() > 0 })
	for range 20 {
		if err := do(procNull); err != nil {
			t.Fatalf("another call: %v", err)
		}
	}
	if len(held) > 0 {
		t.Errorf("the error was told: %v", <-held)
	}
	close(hang)
	if err := <-held; err != nil {
		t.Errorf("the error was not told: %v", err)
	}
}

// With the disk lost for long, connections are closed, and new ones, too: those with a reply, and those whose call
// hangs.
func TestConnectionsOfALostDiskAreClosed(t *testing.T) {
	s := startLost(t)
	hangs := s.call(t, procBlock)
	s.lose(t)
	held := s.call(t, procNull)
	began := time.Now()
	for what, replied := range map[string]<-chan error{"that waits": held, "that hangs": hangs} {
		if err := <-replied; err == nil {
			t.Errorf("a call %s was answered", what)
		}
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("closed after %s", took)
	}
	if err := <-s.call(t, procNull); err == nil {
		t.Error("a new connection was answered")
	}
	s.lost.Store(false)
	eventually(t, "replies leave", s.beats.Passes)
	if err := <-s.call(t, procNull); err != nil {
		t.Errorf("when the disk is back: %v", err)
	}
	close(s.goOn)
}

// A server that is to end does not wait for a disk.
func TestStopWhileRepliesAreHeld(t *testing.T) {
	s := startLost(t)
	s.lose(t)
	held := s.call(t, procNull)
	began := time.Now()
	s.end()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
	if err := <-held; err == nil {
		t.Error("answered at the end")
	}
}
