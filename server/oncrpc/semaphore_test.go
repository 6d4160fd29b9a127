package oncrpc_test

import (
	"bytes"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/oncrpc"
)

// ofOneClient is how many permits the calls of one client have, and ofOneVolume those of
// one volume.
const (
	ofOneClient = oncrpc.PermitsMax - oncrpc.SharedMax + oncrpc.SharedMax*3/4
	ofOneVolume = oncrpc.PermitsMax - oncrpc.SharedMax + oncrpc.SharedMax/2
)

// However many calls the disk keeps waiting, they take so many threads and no more.
// Those that don't wait for it are answered meanwhile, those of another client find a
// permit, and in the end all are.
func TestThreadsAreBounded(t *testing.T) {
	var pipe [2]int
	if err := syscall.Pipe(pipe[:]); err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(pipe[0])
	defer syscall.Close(pipe[1])
	threads := func() int {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		return len(tasks)
	}
	s := startServer(t, oncrpc.Limits{})
	s.disk.Store(int64(pipe[0]))
	const calls = 4 * oncrpc.PermitsMax
	before := threads()
	var answers sync.WaitGroup
	for i := range uint32(calls) / 2 {
		c := s.dial()
		for n := range uint32(2) { // the second finds that the connection's reader was replaced, or waits for that
			answers.Go(func() {
				args := words{2*i + n}
				got, err := c.Call(t.Context(), testProg, testVers, procDisk, args)
				if err != nil || !bytes.Equal(got, args.Append(nil)) {
					t.Errorf("DISK %d: %v", args[0], err)
				}
			})
		}
	}
	eventually(t, "as many as may wait for the disk", func() bool { return s.waiting.Load() >= ofOneClient })
	time.Sleep(50 * oncrpc.CheckEvery) // for more that would
	if n := s.waiting.Load(); n != ofOneClient {
		t.Errorf("%d calls wait in the disk, want %d", n, ofOneClient)
	}
	if n := threads() - before; n > oncrpc.PermitsMax+32 { // and some of Go's own
		t.Errorf("%d threads more for %d calls", n, calls)
	}
	c := s.dial()
	if _, err := c.Call(t.Context(), testProg, testVers, procEcho, words{1}); err != nil {
		t.Errorf("ECHO meanwhile: %v", err)
	}
	other := s.dialFrom("127.0.0.2")
	answers.Go(func() {
		if _, err := other.Call(t.Context(), testProg, testVers, procDisk, words{7777}); err != nil {
			t.Errorf("DISK of another client: %v", err)
		}
	})
	eventually(t, "another client's call is made", func() bool { return s.waiting.Load() == ofOneClient+1 })
	for range calls + 1 {
		if _, err := syscall.Write(pipe[1], []byte{0}); err != nil {
			t.Fatal(err)
		}
	}
	answers.Wait()
}

// However slow the calls of a volume are, over one connection or many, those of another
// volume are made meanwhile, also over the very connection.
func TestSlowVolumeHoldsUpNoOther(t *testing.T) {
	for name, conns := range map[string]int{"one connection": 1, "many connections": 40} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, oncrpc.Limits{})
			const calls = 160
			var answers sync.WaitGroup
			clients := make([]*rpc.Client, conns)
			for i := range clients {
				clients[i] = s.dial()
			}
			for i := range calls {
				answers.Go(func() {
					if _, err := clients[i%conns].Call(t.Context(), testProg, testVers, procWait, words{1}); err != nil {
						t.Errorf("WAIT: %v", err)
					}
				})
			}
			eventually(t, "a volume's calls wait", func() bool { return s.waiting.Load() == ofOneVolume })
			for n, c := range []*rpc.Client{clients[0], s.dial()} {
				answers.Go(func() {
					if _, err := c.Call(t.Context(), testProg, testVers, procWait, words{2}); err != nil {
						t.Errorf("WAIT of another volume: %v", err)
					}
				})
				eventually(t, "another volume's call is made", func() bool { return s.waiting.Load() == ofOneVolume+int32(n)+1 })
			}
			for range calls + 2 {
				s.blocked <- struct{}{}
			}
			answers.Wait()
		})
	}
}

// What a client has asked for is not begun when it has gone meanwhile.
func TestGoneClientsCallsAreNotBegun(t *testing.T) {
	s := startServer(t, oncrpc.Limits{})
	conn := s.connect()
	const calls = ofOneVolume + 30
	var sent []byte
	for i := range uint32(calls) {
		sent = append(sent, record(i, procWait, 1)...)
	}
	if _, err := conn.Write(sent); err != nil {
		t.Fatal(err)
	}
	eventually(t, "as many as may wait do", func() bool { return s.waiting.Load() == ofOneVolume })
	if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server knows", func() bool {
		all, _, gone := s.server.ConnsIn()
		return gone == all
	})
	for range ofOneVolume {
		s.blocked <- struct{}{}
	}
	eventually(t, "the connection ends", func() bool {
		all, _, _ := s.server.ConnsIn()
		return all == 0
	})
	if n := s.waiting.Load(); n != ofOneVolume {
		t.Errorf("%d calls were begun, want no more than the %d that were before the client went", n, ofOneVolume)
	}
}
