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
	"github.com/podnas/podnas/server/mount3"
	"github.com/podnas/podnas/server/nfs3"
	"github.com/podnas/podnas/server/nfstest"
	"github.com/podnas/podnas/server/oncrpc"
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

// FuzzNative sends anything as one record to a live server, which must go on. It
// starts from good calls on the volume's root.
func FuzzNative(f *testing.F) {
	dir := f.TempDir()
	if err := export.Probe(dir); err != nil {
		f.Skipf("the native engine can't run here: %v", err)
	}
	cfg := config()
	cfg.Engine, cfg.Root = server.EngineNative, dir
	if err := cfg.Exports.Add(1, "/volume", dir, export.Options{AllSquash: true}); err != nil {
		f.Fatal(err)
	}
	s, err := server.New(cfg)
	if err != nil {
		f.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	f.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			f.Error(err)
		}
	})
	for _, record := range goodCalls(f, l.Addr().String()) {
		f.Add(record)
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		sent, at := oncrpc.BeginRecord(nil)
		sent = append(sent, record...)
		oncrpc.EndRecord(sent, at)
		if _, err := conn.Write(sent); err != nil {
			t.Fatal(err)
		}
		if err := server.Ping(t.Context(), l.Addr().String()); err != nil {
			t.Errorf("after %x: %v", record, err)
		}
	})
}

// goodCalls are records of calls on the volume's root.
func goodCalls(f *testing.F, addr string) [][]byte {
	f.Helper()
	c, err := nfstest.Dial(f.Context(), addr, addr)
	if err != nil {
		f.Fatal(err)
	}
	defer c.Close()
	mounted, err := c.Mount(f.Context(), "/volume")
	if err != nil || mounted.Status != mount3.OK {
		f.Fatal(mounted.Status, err)
	}
	root := nfs3.FH(mounted.Handle)
	where := nfs3.DirOpArgs{Dir: root, Name: []byte("name")}
	var cred oncrpc.SysCred
	var records [][]byte
	for proc, args := range map[uint32]oncrpc.Args{
		nfs3.ProcGetattr:     &nfs3.HandleArgs{Object: root},
		nfs3.ProcSetattr:     &nfs3.SetattrArgs{Object: root},
		nfs3.ProcLookup:      &where,
		nfs3.ProcAccess:      &nfs3.AccessArgs{Object: root, Access: 0x3f},
		nfs3.ProcRead:        &nfs3.ReadArgs{File: root, Count: 10},
		nfs3.ProcWrite:       &nfs3.WriteArgs{File: root, Count: 4, Data: []byte("data")},
		nfs3.ProcCreate:      &nfs3.CreateArgs{Where: where},
		nfs3.ProcMkdir:       &nfs3.MkdirArgs{Where: where},
		nfs3.ProcSymlink:     &nfs3.SymlinkArgs{Where: where, Path: []byte("target")},
		nfs3.ProcMknod:       &nfs3.MknodArgs{Where: where, Type: nfs3.TypeFIFO},
		nfs3.ProcRemove:      &where,
		nfs3.ProcRename:      &nfs3.RenameArgs{From: where, To: where},
		nfs3.ProcLink:        &nfs3.LinkArgs{File: root, Link: where},
		nfs3.ProcReaddir:     &nfs3.ReaddirArgs{Dir: root, Count: 4096},
		nfs3.ProcReaddirplus: &nfs3.ReaddirplusArgs{Dir: root, DirCount: 4096, MaxCount: 4096},
		nfs3.ProcFsstat:      &nfs3.HandleArgs{Object: root},
		nfs3.ProcCommit:      &nfs3.CommitArgs{File: root},
	} {
		h := oncrpc.CallHeader{XID: proc, RPCVersion: oncrpc.Version, Prog: nfs3.Program, Vers: nfs3.Version, Proc: proc, Cred: cred.Auth()}
		records = append(records, args.Append(h.Append(nil)))
	}
	return records
}
