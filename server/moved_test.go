package server_test

import (
	"context"
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/test/testdisk"
)

// raw is a client that sends any arguments.
type raw struct {
	testing.TB
	*rpc.Client
	cred rpc.Auth
}

func dialRaw(t testing.TB, address string, uid uint32) *raw {
	t.Helper()
	client, err := rpc.Dial(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	cred := rpc.SysCred{UID: uid, GID: uid}
	return &raw{t, client, cred.Auth()}
}

func (r *raw) do(ctx context.Context, prog, proc uint32, args rpc.Args) ([]byte, error) {
	return r.Do(ctx, rpc.CallHeader{RPCVersion: rpc.Version, Prog: prog, Vers: 3, Proc: proc, Cred: r.cred}, args)
}

// status makes a call of NFS and tells its status. It waits as long as it is asked to.
func (r *raw) status(proc uint32, args rpc.Args) nfs3.Status {
	r.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		results, err := r.do(r.Context(), nfs3.Program, proc, args)
		if err != nil {
			r.Fatalf("procedure %d: %v", proc, err)
		}
		status := nfs3.Status(binary.BigEndian.Uint32(results))
		if status != nfs3.ErrJukebox || time.Now().After(deadline) {
			return status
		}
	}
}

// decode makes a call that must be answered with results.
func (r *raw) decode(prog, proc uint32, args rpc.Args, res interface{ Decode(*xdr.Decoder) }) {
	r.Helper()
	results, err := r.do(r.Context(), prog, proc, args)
	if err != nil {
		r.Fatalf("procedure %d: %v", proc, err)
	}
	d := xdr.NewDecoder(results)
	if res.Decode(&d); d.Finish() != nil {
		r.Fatalf("procedure %d: %x", proc, results)
	}
}

func (r *raw) mount(path string) nfs3.FH {
	r.Helper()
	var res mount3.MntRes
	r.decode(mount3.Program, mount3.ProcMnt, &mount3.PathArgs{Path: []byte(path)}, &res)
	if res.Status != mount3.OK {
		r.Fatalf("mount %s: %v", path, res.Status)
	}
	return nfs3.FH(res.Handle)
}

func (r *raw) find(dir nfs3.FH, names ...string) nfs3.FH {
	r.Helper()
	for _, name := range names {
		var res nfs3.LookupRes
		r.decode(nfs3.Program, nfs3.ProcLookup, &nfs3.DirOpArgs{Dir: dir, Name: []byte(name)}, &res)
		if res.Status != nfs3.OK {
			r.Fatalf("LOOKUP %s: %v", name, res.Status)
		}
		dir = append(nfs3.FH(nil), res.Object...)
	}
	return dir
}

// up is what READDIR and READDIRPLUS tell of "..": the inode's number.
func (r *raw) up(dir nfs3.FH) (numbers []uint64) {
	r.Helper()
	var list nfs3.ReaddirRes
	r.decode(nfs3.Program, nfs3.ProcReaddir, &nfs3.ReaddirArgs{Dir: dir, Count: 8192}, &list)
	for _, e := range list.Entries {
		if string(e.Name) == ".." {
			numbers = append(numbers, e.FileID)
		}
	}
	var plus nfs3.ReaddirplusRes
	r.decode(nfs3.Program, nfs3.ProcReaddirplus, &nfs3.ReaddirplusArgs{Dir: dir, DirCount: 8192, MaxCount: 8192}, &plus)
	for _, e := range plus.Entries {
		if string(e.Name) == ".." {
			numbers = append(numbers, e.FileID)
			if e.Attr.Present && e.Attr.Attr.FileID != e.FileID {
				numbers = append(numbers, e.Attr.Attr.FileID)
			}
		}
	}
	return numbers
}

// engines runs a test with each engine.
func engines(t *testing.T, dir string, test func(t *testing.T, engine, dir string)) {
	t.Helper()
	for _, engine := range []string{server.EngineNative, server.EngineGoNFS} {
		t.Run(engine, func(t *testing.T) {
			at := filepath.Join(dir, engine)
			if err := os.Mkdir(at, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := disk.ProbeHandles(at); err != nil && engine == server.EngineNative {
				t.Skipf("the native engine can't run here: %v", err)
			}
			test(t, engine, at)
		})
	}
}

// A client that holds the handle of a directory that somebody moved into another volume
// can do nothing with it: no procedure enters it, and none tells what is around it.
func TestHeldHandleOfMovedDirectory(t *testing.T) {
	testdisk.Each(t, func(t *testing.T, disk string) {
		engines(t, disk, func(t *testing.T, engine, disk string) {
			cfg := config(t)
			cfg.Engine.Engine = engine
			for id, name := range []string{"one", "two"} {
				dir := filepath.Join(disk, name)
				if err := os.MkdirAll(filepath.Join(dir, "d", "sub"), 0o777); err != nil {
					t.Fatal(err)
				}
				if err := cfg.Exports.Export(exports.Exported{ID: uint64(id + 1), Path: "/" + name, Dir: dir}); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(disk, "one", "d", "file"), []byte("data"), 0o666); err != nil {
				t.Fatal(err)
			}
			address, stop := serve(t, cfg)
			defer func() {
				if err := stop(); err != nil {
					t.Error(err)
				}
			}()
			c := dialRaw(t, address, 0)
			root := c.mount("/one")
			d, sub, file := c.find(root, "d"), c.find(root, "d", "sub"), c.find(root, "d", "file")
			if err := os.Rename(filepath.Join(disk, "one", "d"), filepath.Join(disk, "two", "moved")); err != nil {
				t.Fatal(err)
			}
			moved := filepath.Join(disk, "two", "moved")
			for what, held := range map[string]nfs3.FH{"the directory": d, "one below it": sub} {
				in := func(name string) nfs3.DirOpArgs { return nfs3.DirOpArgs{Dir: held, Name: []byte(name)} }
				inRoot := nfs3.DirOpArgs{Dir: root, Name: []byte("new")}
				calls := map[uint32]rpc.Args{
					nfs3.ProcGetattr:     &nfs3.HandleArgs{Object: held},
					nfs3.ProcSetattr:     &nfs3.SetattrArgs{Object: held, Attr: nfs3.Sattr{Mode: nfs3.SetUint32{Set: true, Value: 0o700}}},
					nfs3.ProcLookup:      &nfs3.DirOpArgs{Dir: held, Name: []byte("..")},
					nfs3.ProcAccess:      &nfs3.AccessArgs{Object: held, Access: 0x3f},
					nfs3.ProcCreate:      &nfs3.CreateArgs{Where: in("new")},
					nfs3.ProcMkdir:       &nfs3.MkdirArgs{Where: in("new")},
					nfs3.ProcSymlink:     &nfs3.SymlinkArgs{Where: in("new"), Path: []byte("target")},
					nfs3.ProcRemove:      &nfs3.DirOpArgs{Dir: held, Name: []byte("file")},
					nfs3.ProcRmdir:       &nfs3.DirOpArgs{Dir: held, Name: []byte("sub")},
					nfs3.ProcRename:      &nfs3.RenameArgs{From: in("file"), To: inRoot},
					nfs3.ProcReaddir:     &nfs3.ReaddirArgs{Dir: held, Count: 4096},
					nfs3.ProcReaddirplus: &nfs3.ReaddirplusArgs{Dir: held, DirCount: 4096, MaxCount: 4096},
					nfs3.ProcFsstat:      &nfs3.HandleArgs{Object: held},
					nfs3.ProcFsinfo:      &nfs3.HandleArgs{Object: held},
					nfs3.ProcPathconf:    &nfs3.HandleArgs{Object: held},
				}
				if engine == server.EngineNative {
					maps.Copy(calls, map[uint32]rpc.Args{
						nfs3.ProcReadlink: &nfs3.HandleArgs{Object: held},
						nfs3.ProcMknod:    &nfs3.MknodArgs{Where: in("new"), Type: nfs3.TypeFIFO},
						nfs3.ProcLink:     &nfs3.LinkArgs{File: file, Link: in("new")},
					})
				}
				lookup := &nfs3.DirOpArgs{Dir: held, Name: []byte("file")}
				soon(t, "it is refused to enter "+what, func() bool {
					return c.status(nfs3.ProcLookup, lookup) == nfs3.ErrStale
				})
				for proc, args := range calls {
					if status := c.status(proc, args); status != nfs3.ErrStale {
						t.Errorf("%s, procedure %d: %v, want %v", what, proc, status, nfs3.ErrStale)
					}
				}
				for proc, args := range map[uint32]rpc.Args{ // they are for data
					nfs3.ProcRead:   &nfs3.ReadArgs{File: held, Count: 10},
					nfs3.ProcWrite:  &nfs3.WriteArgs{File: held, Count: 4, Data: []byte("data")},
					nfs3.ProcCommit: &nfs3.CommitArgs{File: held},
				} {
					if status := c.status(proc, args); status == nfs3.OK {
						t.Errorf("%s, procedure %d: %v", what, proc, status)
					}
				}
				// Nor is anything brought there from within.
				if status := c.status(nfs3.ProcRename, &nfs3.RenameArgs{From: nfs3.DirOpArgs{Dir: root, Name: []byte("other")}, To: in("new")}); status == nfs3.OK {
					t.Errorf("RENAME into %s: %v", what, status)
				}
			}
			var names []string
			entries, err := os.ReadDir(moved)
			for _, e := range entries {
				names = append(names, e.Name())
			}
			if err != nil || len(names) != 2 || names[0] != "file" || names[1] != "sub" {
				t.Errorf("the moved directory has %q, %v", names, err)
			}
			// A file is not found to have moved by the kernel's handle, which goes on.
			want := nfs3.OK
			if testdisk.ByIndex() {
				want = nfs3.ErrStale
			}
			if status := c.status(nfs3.ProcRead, &nfs3.ReadArgs{File: file, Count: 10}); status != want {
				t.Errorf("READ of a file in the moved directory: %v, want %v", status, want)
			}
		})
	})
}

// Clients learn nothing of what is above a volume's root.
func TestNothingAboveTheRoot(t *testing.T) {
	engines(t, t.TempDir(), func(t *testing.T, engine, disk string) {
		cfg := config(t)
		cfg.Engine.Engine = engine
		if err := os.Mkdir(filepath.Join(disk, "sub"), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := cfg.Exports.Export(exports.Exported{ID: 1, Path: "/volume", Dir: disk}); err != nil {
			t.Fatal(err)
		}
		address, stop := serve(t, cfg)
		defer func() {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}()
		info, err := os.Stat(disk)
		if err != nil {
			t.Fatal(err)
		}
		own := info.Sys().(*syscall.Stat_t).Ino
		c := dialRaw(t, address, 0)
		root := c.mount("/volume")
		for where, dir := range map[string]nfs3.FH{"the root": root, "a directory in it": c.find(root, "sub")} {
			numbers := c.up(dir)
			if len(numbers) != 2 || numbers[0] != own || numbers[1] != own {
				t.Errorf("above %s is %v, want the root's %d", where, numbers, own)
			}
		}
	})
}

// soon waits for what comes true within some seconds.
func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 20 seconds: %s", what)
		}
	}
}
