package server_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/podnas/podnas/nfs/nfstest"
	"github.com/podnas/podnas/nfs/nfstest/nfstest4"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/export"
)

const (
	squashUID = 1234
	limitedTo = "127.0.0.3"
)

// TestNativeConformance4 puts the native engine to the suite of version 4.1. It serves
// version 3 beside it.
func TestNativeConformance4(t *testing.T) {
	dir := t.TempDir()
	volume, hidden := filepath.Join(dir, "volume"), filepath.Join(dir, "hidden")
	for _, d := range []string{volume, hidden} {
		if err := os.Mkdir(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := export.Probe(volume); err != nil {
		t.Skipf("the native engine can't run here: %v", err)
	}
	cfg := config(t)
	cfg.Engine.Engine = server.EngineNative
	cfg.NFS4 = filepath.Join(dir, "nfs4")
	_, _ = rand.Read(cfg.HandleKey)
	if os.Getenv("NFS_LOG") != "" {
		cfg.Log = slog.Default()
	}
	if err := cfg.Exports.Add(1, "/a/volume", volume, export.Options{}); err != nil {
		t.Fatal(err)
	}
	others := export.Options{Clients: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
	if err := cfg.Exports.Add(2, "/a/hidden", hidden, others); err != nil {
		t.Fatal(err)
	}
	for id, same := range map[uint64]struct {
		path    string
		options export.Options
	}{
		3: {"/a/readonly", export.Options{ReadOnly: true}},
		4: {"/a/squashed", export.Options{AllSquash: true, AnonUID: squashUID, AnonGID: squashUID}},
		5: {"/a/limited", export.Options{Clients: []netip.Prefix{netip.MustParsePrefix(limitedTo + "/32")}}},
	} {
		if err := cfg.Exports.Add(id, same.path, volume, same.options); err != nil {
			t.Fatal(err)
		}
	}
	i := &instance{cfg: cfg, addr: nfstest.OwnAddress()}
	i.start(t)
	defer func() {
		if err := i.stop(); err != nil {
			t.Error(err)
		}
	}()
	nfstest4.Run(t, nfstest4.Target{
		Addr: i.addr, MountAddr: i.addr,
		Export: "/a/volume",
		Hidden: "/a/hidden", ReadOnly: "/a/readonly", Squashed: "/a/squashed", SquashUID: squashUID,
		Limited: "/a/limited", LimitedTo: limitedTo,
		Restart: func(t *testing.T) {
			if err := i.stop(); err != nil {
				t.Error(err)
			}
			if err := os.Remove(filepath.Join(cfg.NFS4, "handover")); err != nil { // as after a crash
				t.Error(err)
			}
			i.start(t)
		},
		Handover: func(t *testing.T) {
			if err := i.stop(); err != nil {
				t.Error(err)
			}
			i.start(t)
		},
	})
}

// What the server before has left is there until the first call can be served: a process that
// ends before has used up nothing.
func TestHandoverStaysUntilServed(t *testing.T) {
	cfg := config(t)
	cfg.Engine.Engine = server.EngineNative
	cfg.NFS4 = t.TempDir()
	left := filepath.Join(cfg.NFS4, "handover")
	if err := os.WriteFile(left, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); err != nil {
		t.Errorf("after New: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Serve(ctx, l); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Serve: %v", err)
	}
}
