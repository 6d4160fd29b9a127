package server_test

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	all strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

// TestPrivilegedPorts: who calls from a port that any user may have can't mount the
// volume and has no use of a handle of it, and that is told once. Other volumes, and NULL,
// which readiness probes call, are for all.
func TestPrivilegedPorts(t *testing.T) {
	for _, engine := range []string{server.EngineGoNFS, server.EngineNative} {
		t.Run(engine, func(t *testing.T) {
			if engine == server.EngineNative && os.Geteuid() != 0 {
				t.Skip("the native engine needs root")
			}
			var out lockedBuffer
			cfg := config(t)
			cfg.Engine.Engine = engine
			cfg.Exports.Log = slog.New(slog.NewTextHandler(&out, nil))
			dir := t.TempDir()
			err := cfg.Exports.Export(exports.Exported{ID: 1, Path: "/all", Dir: t.TempDir()})
			if err == nil {
				err = cfg.Exports.Export(exports.Exported{ID: 2, Path: "/privileged", Dir: dir, Options: exports.Options{PrivilegedPorts: true}})
			}
			if err != nil {
				t.Fatal(err)
			}
			address, stop := serve(t, cfg)
			defer func() {
				if err := stop(); err != nil {
					t.Error(err)
				}
			}()
			nc, err := rpc.DialReserved(t.Context(), net.Dialer{}, address)
			if err != nil {
				t.Fatal(err)
			}
			conn := rpc.NewClient(nc)
			privileged := nfstest.NewClient(conn, conn)
			defer privileged.Close()
			root := rootOf(t, cfg.HandleKey, 2, dir)
			file := root
			if port := nc.LocalAddr().(*net.TCPAddr).Port; port < 1024 {
				root, file = makeFile(t, privileged, "/privileged")
			} else if os.Geteuid() == 0 {
				t.Errorf("root has port %d", port)
			}

			c, err := nfstest.Dial(t.Context(), address, address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.Null(t.Context()); err != nil {
				t.Errorf("NULL: %v", err)
			}
			if res, err := c.Mount(t.Context(), "/all"); err != nil || res.Status != mount3.OK {
				t.Errorf("MNT of what is for all: %v, %v", res.Status, err)
			}
			for range 3 {
				if res, err := c.Mount(t.Context(), "/privileged"); err != nil || res.Status != mount3.ErrAcces {
					t.Errorf("MNT: %v, %v", res.Status, err)
				}
				refused := func(what string, status nfs3.Status, err error) {
					t.Helper()
					var denied *rpc.RPCError // go-nfs's way
					if !errors.As(err, &denied) && (err != nil || status != nfs3.ErrAcces) {
						t.Errorf("%s: %v, %v", what, status, err)
					}
				}
				attr, err := c.Getattr(t.Context(), root)
				refused("GETATTR", attr.Status, err)
				read, err := c.Read(t.Context(), file, 0, 1)
				refused("READ", read.Status, err)
				write, err := c.Write(t.Context(), file, 0, nfs3.FileSync, []byte("x"))
				refused("WRITE", write.Status, err)
				made, err := c.Create(t.Context(), nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: root, Name: []byte("x")}})
				refused("CREATE", made.Status, err)
			}
			if _, err := os.Stat(filepath.Join(dir, "x")); err == nil {
				t.Error("a file was made")
			}
			if n := strings.Count(out.String(), "refused a client for its port"); n != 1 || !strings.Contains(out.String(), "volume=/privileged") {
				t.Errorf("told %d times: %s", n, &out)
			}
		})
	}
}

// makeFile mounts a path and makes a file there.
func makeFile(t *testing.T, c *nfstest.Client, path string) (root, file nfs3.FH) {
	t.Helper()
	mounted, err := c.Mount(t.Context(), path)
	if err != nil || mounted.Status != mount3.OK {
		t.Fatalf("MNT from a privileged port: %v, %v", mounted.Status, err)
	}
	made, err := c.Create(t.Context(), nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: mounted.Handle, Name: []byte("file")}})
	if err != nil || made.Status != nfs3.OK || made.Object == nil {
		t.Fatalf("CREATE from a privileged port: %v, %v", made.Status, err)
	}
	return mounted.Handle, made.Object
}
