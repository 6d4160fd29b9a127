package server_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/test/conformance/nfstest"
	"github.com/podnas/podnas/test/leaks"
	"github.com/podnas/podnas/test/testdisk"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// config is for a server whose volumes are removed at the end of the test.
func config(t testing.TB) server.Config {
	t.Helper()
	table := &exports.Table{ByIndex: testdisk.ByIndex()}
	t.Cleanup(func() {
		for _, v := range table.Volumes() {
			table.Remove(v.ID)
		}
	})
	return server.Config{
		Engine:    server.Choice{Engine: server.EngineGoNFS},
		Exports:   table,
		HandleKey: make([]byte, 32),
		Log:       slog.New(slog.DiscardHandler),
	}
}

func TestNewRefuses(t *testing.T) {
	for name, change := range map[string]func(*server.Config){
		"no engine":  func(c *server.Config) { c.Engine = server.Choice{} },
		"no exports": func(c *server.Config) { c.Exports = nil },
		"no key":     func(c *server.Config) { c.HandleKey = nil },
		"no log":     func(c *server.Config) { c.Log = nil },
		"no folder for the log of the clients' state": func(c *server.Config) { // TestMain sees what is open still
			c.Engine.Engine, c.NFS4, c.StateLog = server.EngineNative, filepath.Join(t.TempDir(), "clients"), os.DevNull
		},
	} {
		cfg := config(t)
		change(&cfg)
		if s, err := server.New(cfg); err == nil {
			t.Errorf("%s: %v", name, s)
		}
	}
}

// serve runs a server until the returned function is called.
func serve(t *testing.T, cfg server.Config) (address string, stop func() error) {
	t.Helper()
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	return l.Addr().String(), func() error {
		cancel()
		select {
		case err := <-served:
			return err
		case <-time.After(10 * time.Second):
			return errors.New("Serve did not return")
		}
	}
}

func TestPing(t *testing.T) {
	address, stop := serve(t, config(t))
	if err := server.Ping(t.Context(), rpc.Dial, address); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := server.Ping(t.Context(), rpc.Dial, address); err == nil {
		t.Error("a stopped server answers")
	}

	// A process that accepts but does not answer is not alive.
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := server.Ping(ctx, rpc.Dial, dead.Addr().String()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a server that does not answer: %v", err)
	}
}

// slowToClose is a listener whose Accept fails, and who closes it once more is told
// so, a while before it is closed.
type slowToClose struct {
	net.Listener
	closed atomic.Bool
}

func (l *slowToClose) Close() error {
	err := l.Listener.Close()
	if err == nil {
		time.Sleep(50 * time.Millisecond)
		l.closed.Store(true)
	}
	return err
}

// The address is free for the next server when Serve returns.
func TestServeEndsWithAClosedListener(t *testing.T) {
	for _, engine := range []string{server.EngineNative, server.EngineGoNFS} {
		t.Run(engine, func(t *testing.T) {
			cfg := config(t)
			cfg.Engine.Engine = engine
			s, err := server.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			l := &slowToClose{Listener: nfstest.Listen(t)}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(10*time.Millisecond, cancel)
			if err := s.Serve(ctx, l); err != nil {
				t.Error(err)
			}
			if !l.closed.Load() {
				t.Error("Serve has returned before the listener was closed")
			}
		})
	}
}

// Serve ends with clients connected, idle or in the middle of a call, and with
// their connections closed: a client must not stay bound to a dead pod.
func TestStopClosesConnections(t *testing.T) {
	cfg := config(t)
	if err := cfg.Exports.Export(exports.Exported{ID: 1, Path: "/v", Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	address, stop := serve(t, cfg)
	idle, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	half, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	if _, err := half.Write([]byte{0x80, 0, 0, 100, 1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	client, err := nfstest.Dial(t.Context(), address, address)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if res, err := client.Mount(t.Context(), "/v"); err != nil || res.Status != 0 {
		t.Fatal(res, err)
	}

	begin := time.Now()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("took %v to stop", took)
	}
	for _, conn := range []net.Conn{idle, half} {
		if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, context.DeadlineExceeded) || err == nil {
			t.Errorf("connection still open: %v", err)
		}
	}
	if _, err := client.Getattr(t.Context(), nfs3.FH("x")); err == nil {
		t.Error("a call is answered after the end")
	}
}

func TestProbes(t *testing.T) {
	var broken error
	probes := httptest.NewServer(server.NewProbes([]server.Check{
		{Name: "first", Run: func(context.Context) error { return nil }},
		{Name: "disk", Run: func(context.Context) error { return broken }},
	}))
	defer probes.Close()
	get := func(path string) (int, string) {
		t.Helper()
		res, err := http.Get(probes.URL + path) //nolint:noctx // the test's own server
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, body := get(path); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	broken = errors.New("it is read-only")
	if code, body := get("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "disk: it is read-only") {
		t.Errorf("/readyz: %d %s", code, body)
	}
	if code, _ := get("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d, want alive while not ready", code)
	}
}
