package oncrpc

import (
	"bufio"
	"bytes"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

// Calls that wait on the connection's own goroutine hold up none of its others,
// and all are answered, each as itself.
func TestWaitHoldsUpNobody(t *testing.T) {
	s := startServer(t, nil)
	c := s.dial()
	const waits = 20
	var answers sync.WaitGroup
	for i := range uint32(waits) {
		answers.Go(func() {
			got, err := c.Call(t.Context(), testProg, testVers, procWait, words{i})
			if err != nil || !bytes.Equal(got, words{i}.Append(nil)) {
				t.Errorf("WAIT %d: %v", i, err)
			}
		})
	}
	eventually(t, "all wait", func() bool { return s.waiting.Load() == waits })
	for i := range uint32(100) {
		got, err := c.Call(t.Context(), testProg, testVers, procEcho, words{i})
		if err != nil || !bytes.Equal(got, words{i}.Append(nil)) {
			t.Fatalf("ECHO %d: %v", i, err)
		}
	}
	for range waits {
		s.blocked <- struct{}{}
	}
	answers.Wait()
}

// A call that may wait after it was promised an answer does so on a goroutine that reads no
// connection: the one that does is not replaced.
func TestWaitAfterPromise(t *testing.T) {
	s := startServer(t, nil)
	c := s.dial()
	const waits = 20
	var answers sync.WaitGroup
	for i := range uint32(waits) {
		answers.Go(func() {
			got, err := c.Call(t.Context(), testProg, testVers, procThen, words{i})
			if err != nil || !bytes.Equal(got, words{i}.Append(nil)) {
				t.Errorf("THEN %d: %v", i, err)
			}
		})
	}
	eventually(t, "all wait", func() bool { return s.waiting.Load() == waits })
	time.Sleep(20 * checkEvery) // for the timer to find them, where it looks
	for i := range uint32(100) {
		got, err := c.Call(t.Context(), testProg, testVers, procEcho, words{i})
		if err != nil || !bytes.Equal(got, words{i}.Append(nil)) {
			t.Fatalf("ECHO %d: %v", i, err)
		}
	}
	for range waits {
		s.blocked <- struct{}{}
	}
	answers.Wait()
}

// Readers that are replaced just when their call is answered lose none.
func TestReadersChange(t *testing.T) {
	s := startServer(t, nil)
	stop := make(chan struct{})
	var open sync.WaitGroup
	open.Go(func() { // lets each wait for about as long as it takes to be found waiting
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case s.blocked <- struct{}{}:
				time.Sleep(time.Duration(n%30) * 100 * time.Microsecond)
			}
		}
	})
	var clients sync.WaitGroup
	for range 4 {
		c := s.dial()
		for range 3 {
			clients.Go(func() {
				for i := range uint32(200) {
					proc := uint32(procEcho)
					if i%3 == 0 {
						proc = procWait
					}
					got, err := c.Call(t.Context(), testProg, testVers, proc, words{i})
					if err != nil || !bytes.Equal(got, words{i}.Append(nil)) {
						t.Errorf("call %d: %v", i, err)
						return
					}
				}
			})
		}
	}
	clients.Wait()
	close(stop)
	open.Wait()
}

// A server that stops waits for them as for all others.
func TestStopWhileCallsWait(t *testing.T) {
	s := startServer(t, nil)
	c := s.dial()
	answered := make(chan error, 1)
	go func() {
		_, err := c.Call(t.Context(), testProg, testVers, procWait, words{1})
		answered <- err
	}()
	eventually(t, "it waits", func() bool { return s.waiting.Load() == 1 })
	stopped := make(chan struct{})
	go func() { s.stop(); close(stopped) }()
	time.Sleep(5 * checkEvery)
	s.blocked <- struct{}{}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	<-stopped
}

// A call is alone when no other of its connection has come that is not answered.
func TestAlone(t *testing.T) {
	s := startServer(t, nil)
	c, other := s.dial(), s.dial()
	alone := func(want bool) {
		t.Helper()
		got, err := c.Call(t.Context(), testProg, testVers, procAlone, nil)
		if err != nil || !bytes.Equal(got, xdr.AppendBool(nil, want)) {
			t.Errorf("alone: %x, %v, want %v", got, err, want)
		}
	}
	alone(true)
	for _, busy := range []struct {
		client *rpc.Client
		proc   uint32
		alone  bool
	}{
		{c, procBlock, false},
		{c, procWait, false},
		{other, procBlock, true},
	} {
		waiting := s.waiting.Load()
		answered := make(chan error, 1)
		go func() {
			_, err := busy.client.Call(t.Context(), testProg, testVers, busy.proc, nil)
			answered <- err
		}()
		eventually(t, "the other call waits", func() bool { return s.waiting.Load() > waiting })
		alone(busy.alone)
		s.blocked <- struct{}{}
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}

	conn := s.connect()
	if _, err := conn.Write(slices.Concat(record(1, procAlone), record(2, procAlone))); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	for i := range 2 {
		reply, err := rpc.ReadRecord(in, nil, recordMax)
		if err != nil {
			t.Fatal(err)
		}
		if reply[len(reply)-1] != 0 { // the first is not yet sent when the second is made
			t.Errorf("call %d of two that came together is alone", i)
		}
	}
}
