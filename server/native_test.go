package server_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/nfstest"
)

// instance is a server that can be stopped and started again on its port.
type instance struct {
	cfg  server.Config
	addr string
	stop func() error
}

func (i *instance) start(t *testing.T) {
	t.Helper()
	s, err := server.New(i.cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", i.addr)
	if err != nil {
		t.Fatal(err)
	}
	i.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	i.stop = func() error {
		cancel()
		return <-served
	}
}

// TestNativeConformance puts the native engine to the suite that every NFSv3
// server answers. It lacks nothing.
func TestNativeConformance(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volume")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := export.Probe(dir); err != nil {
		t.Skipf("the native engine can't run here: %v", err)
	}
	cfg := config()
	cfg.Engine = server.EngineNative
	cfg.Root = dir
	_, _ = rand.Read(cfg.HandleKey)
	if os.Getenv("NFS_LOG") != "" {
		cfg.Log = slog.Default()
	}
	if err := cfg.Exports.Add(1, "/volume", dir, export.Options{}); err != nil {
		t.Fatal(err)
	}
	i := &instance{cfg: cfg, addr: "127.0.0.1:0"}
	i.start(t)
	defer func() {
		if err := i.stop(); err != nil {
			t.Error(err)
		}
	}()
	nfstest.Run(t, nfstest.Target{
		Addr:   i.addr,
		Export: "/volume",
		Dir:    dir,
		Restart: func(t *testing.T) {
			if err := i.stop(); err != nil {
				t.Error(err)
			}
			i.start(t)
		},
	})
}
