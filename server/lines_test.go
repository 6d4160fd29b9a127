package server_test

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/stats"
)

// TestGarbageIsLoggedAFewTimes: a line for each connection that sends nonsense would hide all others.
func TestGarbageIsLoggedAFewTimes(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{server.EngineGoNFS, server.EngineNative} {
		t.Run(engine, func(t *testing.T) {
			if engine == server.EngineNative && os.Geteuid() != 0 {
				t.Skip("the native engine needs root")
			}
			var out lockedBuffer
			cfg := config(t)
			cfg.Engine.Engine = engine
			cfg.Log = slog.New(slog.NewTextHandler(&out, nil))
			address, stop := serve(t, cfg)
			began := time.Now()
			for range 5 * stats.LinesBurst {
				c, err := net.Dial("tcp", address)
				must(t, err)
				_, _ = c.Write([]byte("GET "))
				_, _ = c.Read(make([]byte, 1)) // it is closed
				_ = c.Close()
			}
			most := stats.LinesBurst + 1 + int(time.Since(began)/stats.LinesPeriod)
			must(t, stop())
			if n := strings.Count(out.String(), "connection ended"); n == 0 || n > most {
				t.Errorf("%d lines, want 1 to %d", n, most)
			}
		})
	}
}

// TestListingLogsNothing: a list of volumes that a client may not use for its port is none of these uses. To look for one is.
func TestListingLogsNothing(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	var err error
	if cfg.Engine, err = server.SelectEngine(server.EngineNative, server.HandlesIndex, t.TempDir()); err != nil {
		t.Skip(err)
	}
	var out lockedBuffer
	cfg.Exports.Log = slog.New(slog.NewTextHandler(&out, nil))
	cfg.NFS4 = filepath.Join(t.TempDir(), "nfs4")
	dir := t.TempDir()
	must(t, cfg.Exports.Export(exports.Exported{ID: 1, Path: "/all", Dir: dir}))
	for i := range 20 {
		must(t, cfg.Exports.Export(exports.Exported{ID: uint64(i + 2), Path: fmt.Sprint("/pvc-", i), Dir: dir, Options: exports.Options{PrivilegedPorts: true}}))
	}
	address, stop := serve(t, cfg)
	defer func() { must(t, stop()) }()
	c, err := rpc.Dial(t.Context(), address)
	must(t, err)
	defer c.Close()
	_, _, session := begin4(t, c, "a", 1)
	var seq uint32
	call := func(last nfs4.Operation) nfs4.Status {
		seq++
		return compound4(t, c,
			nfs4.Operation{Num: nfs4.OpSequence, Args: &nfs4.SequenceArgs{SessionID: session, SequenceID: seq}, Res: &nfs4.SequenceRes{}},
			nfs4.Operation{Num: nfs4.OpPutrootfh, Res: &nfs4.StatusRes{}}, last)
	}
	for range 3 {
		if status := call(nfs4.Operation{Num: nfs4.OpReaddir, Args: &nfs4.ReaddirArgs{DirCount: 4096, MaxCount: 4096}, Res: &nfs4.ReaddirRes{}}); status != nfs4.OK {
			t.Fatal(status)
		}
	}
	refused := func() int { return strings.Count(out.String(), "refused a client for its port") }
	if n := refused(); n > 0 {
		t.Errorf("READDIR logged %d lines", n)
	}
	for range 3 {
		if status := call(nfs4.Operation{Num: nfs4.OpLookup, Args: &nfs4.NameArgs{Name: []byte("pvc-7")}, Res: &nfs4.StatusRes{}}); status != nfs4.ErrNoEnt {
			t.Errorf("LOOKUP says %v", status)
		}
	}
	if n := refused(); n != 1 || !strings.Contains(out.String(), "volume=/pvc-7") {
		t.Errorf("LOOKUP logged %d lines: %s", n, out.String())
	}
}
