package server_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// lines is a log that can be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A slow call is named in the log: what it was, where, whose, and how long it took.
func TestSlowCallsAreNamed(t *testing.T) {
	for _, engine := range []string{server.EngineNative, server.EngineGoNFS} {
		t.Run(engine, func(t *testing.T) {
			dir := t.TempDir()
			if err := disk.ProbeHandles(dir); err != nil && engine == server.EngineNative {
				t.Skipf("the native engine can't run here: %v", err)
			}
			var log lines
			cfg := config(t)
			cfg.Engine.Engine, cfg.SlowCall, cfg.Log = engine, time.Nanosecond, slog.New(slog.NewTextHandler(&log, nil))
			if err := cfg.Exports.Export(exports.Exported{ID: 1, Path: "/volume", Dir: dir}); err != nil {
				t.Fatal(err)
			}
			address, stop := serve(t, cfg)
			client, err := nfstest.Dial(t.Context(), address, address)
			if err != nil {
				t.Fatal(err)
			}
			mnt, err := client.Mount(t.Context(), "/volume")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.Getattr(t.Context(), mnt.Handle); err != nil {
				t.Fatal(err)
			}
			client.Close()
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(log.String()) {
				if !strings.Contains(line, "procedure=GETATTR") {
					continue
				}
				for _, want := range []string{"level=WARN", "volume=/volume", "client=127.0.0.1", "xid=", "duration=", "status=OK"} {
					if !strings.Contains(line, want) {
						t.Errorf("no %s in %s", want, line)
					}
				}
				return
			}
			t.Errorf("GETATTR is not named:\n%s", &log)
		})
	}
}
