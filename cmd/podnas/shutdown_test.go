package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server"
)

// syncBuffer is a log that is read while it is written.
type syncBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// serving runs podnas serve --standalone until cancel, with what it prints in a log. How it
// ended comes by ended.
func serving(t *testing.T, flags ...string) (log *syncBuffer, cancel func(), ended <-chan error) {
	t.Helper()
	log = &syncBuffer{}
	cmd := newCommand()
	cmd.SetArgs(append([]string{"serve", "--standalone", "--claims=" + t.TempDir(), "--listen=127.0.0.1:0"}, flags...))
	cmd.SetOut(io.Discard)
	cmd.SetErr(log)
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan error, 1)
	go func() { end <- cmd.ExecuteContext(ctx) }()
	return log, cancel, end
}

// Asked to end, podnas is not ready at once, and goes on serving until the delay is
// over; then nobody gets a new connection, and every client that has one is told,
// by a FIN, that it is over, before the process ends. A client that is told nothing
// sends to a dead pod until TCP gives up.
func TestShutdown(t *testing.T) {
	for _, engine := range []string{server.EngineGoNFS, server.EngineNative} {
		t.Run(engine, func(t *testing.T) {
			if engine == server.EngineNative && os.Geteuid() != 0 {
				t.Skip("the native engine needs root")
			}
			const delay = time.Second
			pages := freeAddress(t)
			log, cancel, ended := serving(t, "--root="+t.TempDir(), "--engine="+engine, "--http="+pages, "--shutdown-delay="+delay.String())
			defer cancel()
			address := waitForAddress(t, log)

			dial := func() *net.TCPConn {
				t.Helper()
				c, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				return c.(*net.TCPConn)
			}
			idle, half := dial(), dial()
			if _, err := half.Write([]byte{0x80, 0, 0, 100, 1, 2, 3}); err != nil {
				t.Fatal(err)
			}
			mustDo(t, server.Ping(t.Context(), rpc.Dial, address))
			for started := time.Now(); !probe(pages); time.Sleep(10 * time.Millisecond) {
				if time.Since(started) > 20*time.Second {
					t.Fatalf("it is not ready; log: %s", log)
				}
			}

			begin := time.Now() // the delay begins within cancel
			cancel()
			for probe(pages) && time.Since(begin) < delay/2 {
				time.Sleep(10 * time.Millisecond)
			}
			if probe(pages) {
				t.Error("it says that it is ready while it ends")
			}
			if err := server.Ping(t.Context(), rpc.Dial, address); err != nil {
				t.Errorf("a new client within the delay: %v", err)
			}
			for name, c := range map[string]*net.TCPConn{"idle": idle, "in the middle of a call": half} {
				mustDo(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
				if n, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
					t.Errorf("a client that is %s: %d bytes, %v, want a FIN", name, n, err)
				}
			}
			if waited := time.Since(begin); waited < delay {
				t.Errorf("clients were told after %s, the delay is %s", waited, delay)
			}
			// The listener went before them. A connection to a port where nobody
			// listens can meet itself, or a newcomer.
			if c, err := net.DialTimeout("tcp", address, time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
				if err == nil {
					c.Close()
				}
				if _, again := net.DialTimeout("tcp", address, time.Second); !errors.Is(again, syscall.ECONNREFUSED) {
					t.Errorf("a new client after the end: %v, then %v", err, again)
				}
			}
			idle.Close()
			half.Close()
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("%v; log: %s", err, log)
				}
			case <-time.After(10 * time.Second):
				t.Errorf("podnas goes on; log: %s", log)
			}
		})
	}
}

// probe tells whether kubelet would find it ready.
func probe(address string) bool {
	client := http.Client{Timeout: 2 * time.Second}
	response, err := client.Get("http://" + address + "/readyz")
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// freeAddress is one where nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	defer l.Close()
	return l.Addr().String()
}

// waitForAddress waits until the log says where NFS is served.
func waitForAddress(t *testing.T, log *syncBuffer) string {
	t.Helper()
	address := regexp.MustCompile(`serving NFS" address=(\S+)`)
	deadline := time.Now().Add(20 * time.Second)
	for {
		if found := address.FindStringSubmatch(log.String()); found != nil {
			return found[1]
		}
		if time.Now().After(deadline) {
			t.Fatalf("podnas does not serve; log: %s", log)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
