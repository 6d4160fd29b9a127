package server_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// What a volume's options promise, seen from the wire.

// volumeWith serves a volume that anyone may write to and that holds a file of
// root's, and returns a client and the handle of the volume's root.
func volumeWith(t *testing.T, engine string, options exports.Options) (*nfstest.Client, nfs3.FH) {
	t.Helper()
	dir := t.TempDir()
	if engine == server.EngineNative {
		if err := disk.ProbeHandles(dir); err != nil {
			t.Skipf("the native engine can't run here: %v", err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "roots"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	cfg := config(t)
	cfg.Engine.Engine = engine
	if err := cfg.Exports.Export(exports.Exported{ID: 1, Path: "/volume", Dir: dir, Options: options}); err != nil {
		t.Fatal(err)
	}
	return mounted(t, cfg)
}

// mounted serves until the test ends, and is a client of /volume and the volume's root.
func mounted(t *testing.T, cfg server.Config) (*nfstest.Client, nfs3.FH) {
	t.Helper()
	address, stop := serve(t, cfg)
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	c, err := nfstest.Dial(t.Context(), address, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	res, err := c.Mount(t.Context(), "/volume")
	if err != nil || res.Status != mount3.OK {
		t.Fatalf("MNT: %v, %v", res.Status, err)
	}
	return c, res.Handle
}

// TestSquash: whose a new file is, and whether root's own file can be read.
func TestSquash(t *testing.T) {
	const none = 1<<32 - 1
	for _, tt := range []struct {
		name              string
		options           exports.Options
		uid, gid          uint32
		wantUID, wantGID  uint32
		reads             bool // root's file
		setsAnyonesOwners bool
	}{
		{name: "root", wantUID: 0, wantGID: 0, reads: true, setsAnyonesOwners: true},
		{name: "a user", uid: 1000, gid: 1001, wantUID: 1000, wantGID: 1001},
		{name: "rootSquash of root", options: exports.Options{RootSquash: true}, wantUID: 65534, wantGID: 65534},
		{name: "rootSquash of a user", options: exports.Options{RootSquash: true}, uid: 1000, gid: 1001, wantUID: 1000, wantGID: 1001},
		{name: "rootSquash of root's group", options: exports.Options{RootSquash: true}, uid: 1000, wantUID: 1000, wantGID: 65534},
		{name: "rootSquash to ids", options: exports.Options{RootSquash: true, AnonUID: 7, AnonGID: 8}, wantUID: 7, wantGID: 8},
		{name: "allSquash of root", options: exports.Options{AllSquash: true}, wantUID: 65534, wantGID: 65534},
		{name: "allSquash of a user", options: exports.Options{AllSquash: true, AnonUID: 7, AnonGID: 8}, uid: 1000, gid: 1001, wantUID: 7, wantGID: 8},
		{name: "nobody's number", uid: none, gid: none, wantUID: 65534, wantGID: 65534},
		{name: "anonymous is nobody's number", options: exports.Options{AllSquash: true, AnonUID: none, AnonGID: none}, wantUID: 65534, wantGID: 65534},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, root := volumeWith(t, server.EngineNative, tt.options)
			caller := c.As(tt.uid, tt.gid)
			res, err := caller.Create(t.Context(), nfs3.CreateArgs{
				Where: nfs3.DirOpArgs{Dir: root, Name: []byte("new")},
				Mode:  nfs3.Guarded,
				Attr:  nfs3.Sattr{Mode: nfs3.SetUint32{Set: true, Value: 0o600}},
			})
			if err != nil || res.Status != nfs3.OK {
				t.Fatalf("CREATE: %v, %v", res.Status, err)
			}
			if a := res.Attr.Attr; a.UID != tt.wantUID || a.GID != tt.wantGID {
				t.Errorf("the file belongs to %d:%d, want %d:%d", a.UID, a.GID, tt.wantUID, tt.wantGID)
			}
			roots, err := caller.Lookup(t.Context(), root, "roots")
			if err != nil || roots.Status != nfs3.OK {
				t.Fatalf("LOOKUP: %v, %v", roots.Status, err)
			}
			read, err := caller.Read(t.Context(), roots.Object, 0, 10)
			if err != nil || (read.Status == nfs3.OK) != tt.reads {
				t.Errorf("READ of root's file: %v, %v", read.Status, err)
			}
			owner, err := caller.Setattr(t.Context(), nfs3.SetattrArgs{Object: res.Object, Attr: nfs3.Sattr{UID: nfs3.SetUint32{Set: true, Value: 4242}}})
			if err != nil || (owner.Status == nfs3.OK) != tt.setsAnyonesOwners {
				t.Errorf("SETATTR of the owner: %v, %v", owner.Status, err)
			}
		})
	}
}

// TestReadOnly: nothing changes, and ACCESS says so before anybody tries.
func TestReadOnly(t *testing.T) {
	for _, engine := range []string{server.EngineNative, server.EngineGoNFS} {
		t.Run(engine, func(t *testing.T) {
			c, root := volumeWith(t, engine, exports.Options{ReadOnly: true})
			ctx := t.Context()
			found, err := c.Lookup(ctx, root, "roots")
			if err != nil || found.Status != nfs3.OK {
				t.Fatalf("LOOKUP: %v, %v", found.Status, err)
			}
			file := found.Object
			if res, err := c.Read(ctx, file, 0, 10); err != nil || string(res.Data) != "secret" {
				t.Errorf("READ: %q, %v, %v", res.Data, res.Status, err)
			}
			const change = nfs3.AccessModify | nfs3.AccessExtend | nfs3.AccessDelete
			for name, fh := range map[string]nfs3.FH{"directory": root, "file": file} {
				res, err := c.Access(ctx, fh, change|nfs3.AccessRead)
				if err != nil || res.Access&change != 0 || res.Access&nfs3.AccessRead == 0 {
					t.Errorf("ACCESS of the %s: %#x, %v", name, res.Access, err)
				}
			}
			lacks := map[string]bool{"LINK": true, "MKNOD": true, "SETACL": true}
			for name, call := range c.Changes(ctx, root, file, "roots") {
				status, err := call()
				if engine == server.EngineGoNFS && err != nil && lacks[name] {
					continue
				}
				if err != nil || status != nfs3.ErrROFS {
					t.Errorf("%s: %v, %v, want %v", name, status, err, nfs3.ErrROFS)
				}
			}
			if res, err := c.Lookup(ctx, root, "roots"); err != nil || res.Attr.Attr.Size != uint64(len("secret")) {
				t.Errorf("after all: %v, %v, %+v", res.Status, err, res.Attr)
			}
		})
	}
}

// rootOf is the handle of a volume's root directory, as go-nfs makes it. To the native
// engine it is one that says of which volume it is.
func rootOf(t *testing.T, key []byte, id uint64, dir string) nfs3.FH {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	file, err := disk.Identify(f)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return locate.NewKey(key).Handle(id, file)
}

// TestClients: who is not among a volume's clients can't mount it, and has no
// use of a handle either.
func TestClients(t *testing.T) {
	for _, engine := range []string{server.EngineNative, server.EngineGoNFS} {
		t.Run(engine, func(t *testing.T) {
			if engine == server.EngineNative {
				if err := disk.ProbeHandles(t.TempDir()); err != nil {
					t.Skipf("the native engine can't run here: %v", err)
				}
			}
			cfg := config(t)
			cfg.Engine.Engine = engine
			roots := map[string]nfs3.FH{}
			for i, path := range []string{"/ours", "/others"} {
				dir := t.TempDir()
				network := []string{"127.0.0.0/8", "192.0.2.0/24"}[i]
				options := exports.Options{Clients: []netip.Prefix{netip.MustParsePrefix(network)}}
				if err := cfg.Exports.Export(exports.Exported{ID: uint64(i + 1), Path: path, Dir: dir, Options: options}); err != nil {
					t.Fatal(err)
				}
				roots[path] = rootOf(t, cfg.HandleKey, uint64(i+1), dir)
			}
			address, stop := serve(t, cfg)
			defer func() {
				if err := stop(); err != nil {
					t.Error(err)
				}
			}()
			c, err := nfstest.Dial(t.Context(), address, address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if res, err := c.Mount(t.Context(), "/ours"); err != nil || res.Status != mount3.OK {
				t.Errorf("MNT: %v, %v", res.Status, err)
			}
			if res, err := c.Mount(t.Context(), "/others"); err != nil || res.Status != mount3.ErrAcces {
				t.Errorf("MNT of what is for others: %v, %v", res.Status, err)
			}
			res, err := c.Getattr(t.Context(), roots["/others"])
			var denied *rpc.RPCError
			if !errors.As(err, &denied) && res.Status != nfs3.ErrAcces {
				t.Errorf("GETATTR of what is for others: %v, %v", res.Status, err)
			}
		})
	}
}

// TestSelectEngine: what an engine can't promise is refused, not passed over.
func TestSelectEngine(t *testing.T) {
	if choice, err := server.SelectEngine("ganesha", server.HandlesAuto, t.TempDir()); err == nil {
		t.Errorf("an unknown engine: %+v", choice)
	}
	choice, err := server.SelectEngine(server.EngineGoNFS, server.HandlesAuto, t.TempDir())
	if err != nil || choice.Engine != server.EngineGoNFS {
		t.Fatalf("%+v, %v", choice, err)
	}
	for name, options := range map[string]exports.Options{
		"rootSquash": {RootSquash: true}, "allSquash": {AllSquash: true}, "anonUid": {AnonUID: 1}, "anonGid": {AnonGID: 1},
	} {
		if choice.Check(&options) == nil {
			t.Errorf("go-nfs takes %s", name)
		}
		if err := (server.Choice{Engine: server.EngineNative}).Check(&options); err != nil {
			t.Errorf("native refuses %s: %v", name, err)
		}
	}
	if err := choice.Check(&exports.Options{ReadOnly: true, Async: true}); err != nil {
		t.Error(err)
	}
}
