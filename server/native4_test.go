package server_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/nfsv41/state"
	"github.com/podnas/podnas/server/space"
	"github.com/podnas/podnas/test/conformance/nfstest"
	"github.com/podnas/podnas/test/conformance/nfstest4"
	"github.com/podnas/podnas/test/testdisk"
)

const limitedTo = "127.0.0.3"

// TestNativeConformance4 puts the native engine to the suite of version 4.1. It serves
// version 3 beside it.
func TestNativeConformance4(t *testing.T) {
	nfstest4.Run(t, target4(t, testdisk.Memory(t), way4{handles: server.HandlesIndex}))
}

// TestRanges4 puts the native engine to what is new in version 4.2, on each file system, and for each way to
// count what volumes use.
func TestRanges4(t *testing.T) { onEachDisk(t, nfstest4.RunRanges) }

// TestXattrs4 does the same for extended attributes.
func TestXattrs4(t *testing.T) { onEachDisk(t, nfstest4.RunXattrs) }

// TestACLs4 does the same for ACLs.
func TestACLs4(t *testing.T) { onEachDisk(t, nfstest4.RunACLs) }

func onEachDisk(t *testing.T, run func(*testing.T, nfstest4.Target)) {
	testdisk.Each(t, func(t *testing.T, disk string) {
		t.Run("the kernel counts", func(t *testing.T) {
			run(t, target4(t, filepath.Join(disk, "kernel"), way4{handles: handlesHere()}))
		})
		t.Run("the server counts", func(t *testing.T) {
			run(t, target4(t, filepath.Join(disk, "server"), way4{handles: handlesHere(), counts: true}))
		})
	})
}

// way4 is a way to serve version 4.
type way4 struct {
	handles string
	form    locate.Form // if it is given, each process finds files in another way
	counts  bool        // the server
}

// target4 serves volumes in a directory until the test ends.
func target4(t *testing.T, dir string, way way4) nfstest4.Target {
	t.Helper()
	volume, hidden, other := filepath.Join(dir, "volume"), filepath.Join(dir, "hidden"), filepath.Join(dir, "other")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	otherDisk := filepath.Join(t.TempDir(), "disk")
	for _, d := range []string{volume, hidden, other, otherDisk} {
		if err := os.Mkdir(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	cfg := nativeConfig(t, volume, way.handles)
	squashUID := uint32(1234)
	if only := cfg.Engine.Only(); only != nil {
		squashUID = only.UID
	}
	cfg.NFS4, cfg.Removed = filepath.Join(dir, "nfs4"), filepath.Join(dir, "removed")
	if os.Getenv("NFS_LOG") != "" {
		cfg.Log = slog.Default()
	}
	others := exports.Options{Clients: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
	add := func(table *exports.Table) (err error) {
		for i, e := range []exports.Exported{
			{Path: "volume", Dir: volume},
			{Path: "hidden", Dir: hidden, Options: others},
			{Path: "readonly", Dir: volume, Options: exports.Options{ReadOnly: true}},
			{Path: "squashed", Dir: volume, Options: exports.Options{AllSquash: true, AnonUID: squashUID, AnonGID: squashUID}},
			{Path: "other", Dir: other},
			{Path: "disk", Dir: otherDisk},
			{Path: "limited", Dir: volume, Options: exports.Options{Clients: []netip.Prefix{netip.MustParsePrefix(limitedTo + "/32")}}},
		} {
			e.ID, e.Path, e.Form = uint64(i+1), "/a/"+e.Path, way.form
			if way.counts && !e.Options.ReadOnly { // two that count one directory each count all of it
				e.Account = space.NewAccount(quota.Limit{Bytes: 1 << 50})
			}
			err = errors.Join(err, table.Export(e))
		}
		return err
	}
	cfg.StateLog = filepath.Join(dir, "log")
	const descriptors = 4096 // which gives a client this many opens by eight
	i := &instance{cfg: cfg, addr: nfstest.OwnAddress(), add: add, switches: way.form != "", descriptors: descriptors}
	t.Cleanup(i.end)
	i.start(t)
	t.Cleanup(func() {
		if err := i.stop(); err != nil {
			t.Error(err)
		}
	})
	end := func(t *testing.T) { // and hands nothing over
		t.Helper()
		if err := i.stop(); err != nil {
			t.Error(err)
		}
		if err := os.Remove(filepath.Join(cfg.NFS4, "handover.log")); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
	return nfstest4.Target{
		Lacks: lacks(&cfg.Engine.Rights),
		Addr:  i.addr, MountAddr: i.addr,
		Export: "/a/volume", Other: "/a/other", OtherDisk: "/a/disk",
		Hidden: "/a/hidden", ReadOnly: "/a/readonly", Squashed: "/a/squashed", SquashUID: squashUID,
		Limited: "/a/limited", LimitedTo: limitedTo, Opens: descriptors / 8,
		Restart: func(t *testing.T) {
			end(t)
			i.start(t)
		},
		Handover: func(t *testing.T) { // to another node, where nothing is but the disk
			if err := errors.Join(i.stop(), os.RemoveAll(cfg.StateLog)); err != nil {
				t.Error(err)
			}
			i.start(t)
		},
		Die: func(t *testing.T) {
			logs, err := filepath.Glob(filepath.Join(cfg.StateLog, "clients-????????"))
			if err != nil || len(logs) != 1 {
				t.Fatalf("logs are %v, %v", logs, err)
			}
			left, err := os.ReadFile(logs[0])
			if err != nil {
				t.Fatal(err)
			}
			end(t)
			if err := os.WriteFile(logs[0], left, 0o600); err != nil {
				t.Fatal(err)
			}
			i.start(t)
		},
	}
}

// What the server before has left is there until the first call can be served: a process that
// ends before has used up nothing.
func TestHandoverStaysUntilServed(t *testing.T) {
	cfg := config(t)
	cfg.Engine.Engine = server.EngineNative
	cfg.NFS4 = t.TempDir()
	left := filepath.Join(cfg.NFS4, "handover.log")
	if err := os.WriteFile(left, state.AppendFrame(nil, []byte("{}")), 0o600); err != nil {
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
