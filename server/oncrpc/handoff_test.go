package oncrpc_test

import (
	"bufio"
	"bytes"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/oncrpc"
)

// Calls that wait hold up none of their connection's others, and all are answered, each as itself
// and once: those that may block on the goroutine that reads, those that hand on the reading
// before they wait, and those that may block after that.
func TestWaitHoldsUpNobody(t *testing.T) {
	for name, proc := range map[string]uint32{"may block": procWait, "waits": procBlock, "may block after it has waited": procThen} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, oncrpc.Limits{})
			c := s.dial()
			const waits, echoes = 20, 100
			var answers sync.WaitGroup
			for i := range uint32(waits) {
				answers.Go(func() {
					got, err := c.Call(t.Context(), testProg, testVers, proc, words{i})
					if err != nil || !bytes.Equal(got, words{i}.Append(nil)) {
						t.Errorf("call %d: %x, %v", i, got, err)
					}
				})
			}
			eventually(t, "all wait", func() bool { return s.waiting.Load() == waits })
			time.Sleep(20 * oncrpc.CheckEvery) // for the timer to find them, where it looks
			for i := range uint32(echoes) {
				got, err := c.Call(t.Context(), testProg, testVers, procEcho, words{i})
				if err != nil || !bytes.Equal(got, words{i}.Append(nil)) {
					t.Fatalf("ECHO %d: %v", i, err)
				}
			}
			for range waits {
				s.blocked <- struct{}{}
			}
			answers.Wait()
			if n := s.handled.Load(); n != waits+echoes {
				t.Errorf("handlers were called %d times for %d calls", n, waits+echoes)
			}
		})
	}
}

// Replies to calls that were woken together leave with the last of them, unless there are many.
func TestWokenTogether(t *testing.T) {
	const calls = oncrpc.OutCalls + 8
	s := startServer(t, oncrpc.Limits{})
	conn := s.connect()
	for i := range uint32(calls) {
		if _, err := conn.Write(record(i, procBlock, i)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all wait", func() bool { return s.waiting.Load() == calls })
	var woken *oncrpc.Call
	for range calls {
		woken = <-s.waiters
		woken.Woken()
	}
	awake := woken.Awake()
	replies := func(n int) {
		t.Helper()
		for range n {
			if xid, results := replyTo(t, conn); !bytes.Equal(results, words{xid}.Append(nil)) {
				t.Errorf("reply to %d: %x", xid, results)
			}
		}
	}
	goOn := func(n int) {
		for range n {
			s.blocked <- struct{}{}
		}
		time.Sleep(20 * oncrpc.CheckEvery) // for what is written too early
	}
	early := func() bool {
		if err := conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, err := conn.Read(make([]byte, 1))
		return err == nil
	}
	goOn(oncrpc.OutCalls - 1)
	if early() {
		t.Fatal("a reply does not wait for those of the other calls")
	}
	goOn(1)
	replies(oncrpc.OutCalls)
	goOn(calls - oncrpc.OutCalls - 1)
	if early() {
		t.Fatal("a reply does not wait for those of the other calls")
	}
	goOn(1)
	replies(calls - oncrpc.OutCalls)
	if n := awake(); n != 0 {
		t.Errorf("%d calls are taken for awake when all are answered", n)
	}
	s.echo(conn, 1)
}

// A call that waits once more does not keep the replies of those that were woken with it.
func TestWokenAndAsleep(t *testing.T) {
	s := startServer(t, oncrpc.Limits{})
	conn := s.connect()
	for i, proc := range []uint32{procBlock, procAgain} {
		if _, err := conn.Write(record(uint32(i), proc, uint32(i))); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "both wait", func() bool { return s.waiting.Load() == 2 })
	for range 2 {
		(<-s.waiters).Woken()
	}
	for want := range uint32(2) {
		for range 2 - want { // both, and then the one that waits again
			s.blocked <- struct{}{}
		}
		if xid, _ := replyTo(t, conn); xid != want {
			t.Errorf("the reply is to %d, want %d", xid, want)
		}
	}
}

// A client that goes while its calls wait leaves nothing behind, and disturbs nobody.
func TestClientGoesWhileCallsWait(t *testing.T) {
	s := startServer(t, oncrpc.Limits{})
	conn := s.connect()
	const waits = 20
	for i := range uint32(waits) {
		if _, err := conn.Write(record(i, procBlock, i)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all wait", func() bool { return s.waiting.Load() == waits })
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	s.echo(s.connect(), 1)
	for range waits {
		s.blocked <- struct{}{}
	}
	eventually(t, "only the other connection is left", func() bool {
		all, _, _ := s.server.ConnsIn()
		return all == 1
	})
}

// A panic after the reading was handed on ends only the call.
func TestPanicAfterWait(t *testing.T) {
	s := startServer(t, oncrpc.Limits{})
	conn := s.connect()
	for i := range uint32(10) {
		if _, err := conn.Write(record(i, procLater)); err != nil {
			t.Fatal(err)
		}
		b, err := rpc.ReadRecord(conn, nil, oncrpc.RecordMax)
		if err != nil {
			t.Fatal(err)
		}
		var h rpc.ReplyHeader
		d := xdr.NewDecoder(b)
		if h.Decode(&d); h.XID != i || h.Accept != rpc.SystemErr {
			t.Errorf("call %d: the reply is to %d, %v", i, h.XID, h.Accept)
		}
		s.echo(conn, 100+i)
	}
}

// Goroutines that have read a connection are used again, up to a number, and end when
// the server has nothing to do.
func TestReadersAreKept(t *testing.T) {
	s := startServer(t, oncrpc.Limits{})
	c := s.dial()
	spare := s.server.SpareReaders
	for range 2 {
		waiting := s.waiting.Load()
		var answers sync.WaitGroup
		for i := range uint32(oncrpc.SparesMax + 10) {
			answers.Go(func() {
				if _, err := c.Call(t.Context(), testProg, testVers, procBlock, words{i}); err != nil {
					t.Error(err)
				}
			})
		}
		eventually(t, "all wait", func() bool { return s.waiting.Load() == waiting+oncrpc.SparesMax+10 })
		if n := spare(); n != 0 {
			t.Errorf("%d goroutines are kept while calls need them", n)
		}
		for range oncrpc.SparesMax + 10 {
			s.blocked <- struct{}{}
		}
		answers.Wait()
		eventually(t, "as many as may be are kept", func() bool { return spare() == oncrpc.SparesMax })
	}
	s.server.Release()
	if n := spare(); n != 0 {
		t.Errorf("%d goroutines are kept when nothing is to be done", n)
	}
}

// Readers that are replaced just when their call is answered lose none.
func TestReadersChange(t *testing.T) {
	s := startServer(t, oncrpc.Limits{})
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
						proc = [...]uint32{procWait, procBlock, procThen}[i/3%3]
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
	if n := s.handled.Load(); n != 4*3*200 {
		t.Errorf("handlers were called %d times for %d calls", n, 4*3*200)
	}
}

// A server that stops waits for them as for all others.
func TestStopWhileCallsWait(t *testing.T) {
	s := startServer(t, oncrpc.Limits{})
	c := s.dial()
	answered := make(chan error, 1)
	go func() {
		_, err := c.Call(t.Context(), testProg, testVers, procWait, words{1})
		answered <- err
	}()
	eventually(t, "it waits", func() bool { return s.waiting.Load() == 1 })
	stopped := make(chan struct{})
	go func() { s.stop(); close(stopped) }()
	time.Sleep(5 * oncrpc.CheckEvery)
	s.blocked <- struct{}{}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	<-stopped
}

// A call is alone when no other of its connection has come that is not answered.
func TestAlone(t *testing.T) {
	s := startServer(t, oncrpc.Limits{})
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
		reply, err := rpc.ReadRecord(in, nil, oncrpc.RecordMax)
		if err != nil {
			t.Fatal(err)
		}
		if reply[len(reply)-1] != 0 { // the first is not yet sent when the second is made
			t.Errorf("call %d of two that came together is alone", i)
		}
	}
}
