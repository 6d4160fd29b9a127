//go:build vm

package large_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"testing"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// serve serves a directory. Names are not synced one by one, which is all that
// these tests would then measure.
func serve(t *testing.T, dir string) (addr string, stop func()) {
	t.Helper()
	table := &exports.Table{}
	if err := table.Export(exports.Exported{ID: 1, Path: "/volume", Dir: dir, Options: exports.Options{Async: true}}); err != nil {
		t.Fatal(err)
	}
	return serveTable(t, table)
}

// serveTable serves the volume 1 of a table.
func serveTable(t *testing.T, table *exports.Table) (addr string, stop func()) {
	t.Helper()
	cfg := server.Config{
		Engine: server.Choice{Engine: server.EngineNative}, Exports: table, HandleKey: make([]byte, 32),
		Log: slog.New(slog.DiscardHandler),
	}
	_, _ = rand.Read(cfg.HandleKey)
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
	return l.Addr().String(), func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		cfg.Exports.Remove(1)
	}
}

// caller is a client and the root of the volume.
type caller struct {
	*nfstest.Client

	root nfs3.FH
}

// dial makes clients, each with a connection of its own.
func dial(t *testing.T, addr string, n int) (callers []caller, closeAll func()) {
	t.Helper()
	for range n {
		c, err := nfstest.Dial(t.Context(), addr, addr)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Mount(t.Context(), "/volume")
		if err != nil || res.Status != mount3.OK {
			t.Fatal(res.Status, err)
		}
		callers = append(callers, caller{c, res.Handle})
	}
	return callers, func() {
		for _, c := range callers {
			c.Close()
		}
	}
}
