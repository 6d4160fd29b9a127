package oncrpc_test

import (
	"testing"
	"time"

	"github.com/podnas/podnas/server/oncrpc"
)

// A server that is to end waits for calls that hang only as long as they have, whichever goroutine is in them, or waits for one.
// Calls that have not begun by then are not executed any more.
func TestStopWhileCallsHang(t *testing.T) {
	for name, tt := range map[string]struct {
		proc    uint32
		before  bool // a call of the connection has waited before
		limit   int  // of calls in flight; 0: the usual one
		calls   int
		execute int32 // of the calls
	}{
		"the first call":                   {proc: procBlock, calls: 1, execute: 1},
		"the first two":                    {proc: procBlock, calls: 2, execute: 2},
		"a later call":                     {proc: procBlock, before: true, calls: 1, execute: 1},
		"as many as may be":                {proc: procBlock, limit: 4, calls: 6, execute: 4},
		"later, as many as may be":         {proc: procBlock, before: true, limit: 4, calls: 6, execute: 4},
		"the goroutine that reads":         {proc: procWait, calls: 1, execute: 1},
		"more calls than may block":        {proc: procWait, calls: oncrpc.PermitsMax + 100, execute: oncrpc.PermitsMax * 3 / 4}, // those of one volume
		"later, more than may block":       {proc: procWait, before: true, calls: oncrpc.PermitsMax + 100, execute: oncrpc.PermitsMax * 3 / 4},
		"nothing, but one has hung before": {before: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, oncrpc.Limits{ConnCalls: tt.limit, Drain: 500 * time.Millisecond})
			conn := s.connect()
			if tt.before {
				if _, err := conn.Write(record(1, procBlock)); err != nil {
					t.Fatal(err)
				}
				s.blocked <- struct{}{}
				replyTo(t, conn)
				s.waiting.Store(0)
			}
			for xid := range uint32(tt.calls) {
				if _, err := conn.Write(record(xid, tt.proc)); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "the calls hang", func() bool { return s.waiting.Load() == tt.execute })
			time.Sleep(50 * time.Millisecond) // until the others wait for these
			s.stop()
			close(s.blocked)
			ended := make(chan struct{})
			go func() {
				s.server.Wait()
				close(ended)
			}()
			select {
			case <-ended:
			case <-time.After(10 * time.Second):
				t.Error("the calls that hung have ended, and the server waits for them")
			}
			if n := s.waiting.Load(); n != tt.execute {
				t.Errorf("%d calls were executed, want %d", n, tt.execute)
			}
			if held := s.server.Held(); held != "0 0" {
				t.Errorf("held in the end: %s", held)
			}
		})
	}
}
