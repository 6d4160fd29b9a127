package server_test

import (
	"slices"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/space"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// countedWith serves an empty volume that the server counts.
func countedWith(t *testing.T, engine string, limit quota.Limit) (*nfstest.Client, nfs3.FH, *space.Account) {
	t.Helper()
	dir := t.TempDir()
	if engine == server.EngineNative {
		if err := disk.ProbeHandles(dir); err != nil {
			t.Skipf("the native engine can't run here: %v", err)
		}
	}
	cfg := config(t)
	cfg.Engine.Engine = engine
	account := space.NewAccount(limit)
	if err := cfg.Exports.Export(exports.Exported{ID: 1, Path: "/volume", Dir: dir, Account: account}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); account.Usage().Partial; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the volume is not counted")
		}
	}
	c, root := mounted(t, cfg)
	return c, root, account
}

// wire are calls whose outcome is a status.
type wire struct {
	*testing.T
	c    *nfstest.Client
	root nfs3.FH
}

func (w wire) is(what string, got nfs3.Status, err error, want ...nfs3.Status) {
	w.Helper()
	if err != nil || !slices.Contains(want, got) {
		w.Errorf("%s: %v, %v, want %v", what, got, err, want)
	}
}

func (w wire) create(name string, size nfs3.SetUint64) (nfs3.FH, nfs3.Status, error) {
	res, err := w.c.Create(w.Context(), nfs3.CreateArgs{
		Where: nfs3.DirOpArgs{Dir: w.root, Name: []byte(name)},
		Attr:  nfs3.Sattr{Mode: nfs3.SetUint32{Set: true, Value: 0o644}, Size: size},
	})
	return res.Object, res.Status, err
}

func (w wire) resize(fh nfs3.FH, size uint64) (nfs3.Status, error) {
	res, err := w.c.Setattr(w.Context(), nfs3.SetattrArgs{Object: fh, Attr: nfs3.Sattr{Size: nfs3.SetUint64{Set: true, Value: size}}})
	return res.Status, err
}

// fill writes to a file until the volume is full.
func (w wire) fill(fh nfs3.FH) {
	w.Helper()
	for at := uint64(0); ; at += 64 << 10 {
		res, err := w.c.Write(w.Context(), fh, at, nfs3.Unstable, make([]byte, 64<<10))
		if err != nil || res.Status != nfs3.OK || res.Count < 64<<10 {
			w.is("WRITE past the limit", res.Status, err, nfs3.OK, nfs3.ErrDQuot)
			return
		}
	}
}

// TestFull: what a full volume says to each call that takes room, and what goes on
// working.
func TestFull(t *testing.T) {
	for _, engine := range []string{server.EngineNative, server.EngineGoNFS} {
		for full, limit := range map[string]quota.Limit{
			"of bytes":  {Bytes: 1 << 20},
			"of inodes": {Bytes: 1 << 30, Inodes: 4},
		} {
			t.Run(engine+" full "+full, func(t *testing.T) {
				c, root, _ := countedWith(t, engine, limit)
				w, ctx := wire{t, c, root}, t.Context()
				refused := nfs3.ErrDQuot
				if engine == server.EngineGoNFS { // the library knows of no such reason
					refused = nfs3.ErrAcces
				}
				file, status, err := w.create("file", nfs3.SetUint64{})
				w.is("CREATE", status, err, nfs3.OK)
				_, status, err = w.create("temporary", nfs3.SetUint64{})
				w.is("CREATE", status, err, nfs3.OK)
				dir, err := c.Mkdir(ctx, root, "dir", nfs3.Sattr{})
				w.is("MKDIR", dir.Status, err, nfs3.OK)
				if limit.Inodes == 0 {
					w.fill(file)
				}

				_, status, err = w.create("new", nfs3.SetUint64{})
				w.is("CREATE", status, err, refused)
				made, err := c.Mkdir(ctx, root, "new", nfs3.Sattr{})
				w.is("MKDIR", made.Status, err, refused)
				link, err := c.Symlink(ctx, root, "new", "to")
				w.is("SYMLINK", link.Status, err, refused)
				if engine == server.EngineNative { // which alone has these
					fifo, err := c.Mknod(ctx, nfs3.MknodArgs{Where: nfs3.DirOpArgs{Dir: root, Name: []byte("new")}, Type: nfs3.TypeFIFO})
					w.is("MKNOD", fifo.Status, err, nfs3.ErrDQuot)
					want := nfs3.OK // a name takes no inode
					if limit.Inodes == 0 {
						want = nfs3.ErrDQuot
					}
					named, err := c.Link(ctx, file, root, "new")
					w.is("LINK", named.Status, err, want)
				}

				stat, err := c.Fsstat(ctx, root)
				if engine == server.EngineGoNFS { // whose result is longer than the RFC's
					err = nil
				}
				w.is("FSSTAT", stat.Status, err, nfs3.OK)
				if limit.Inodes != 0 && (stat.TFiles != uint64(limit.Inodes) || stat.FFiles != 0 || stat.AFiles != 0) {
					t.Errorf("FSSTAT: %+v", stat)
				}
				if stat.TBytes != uint64(limit.Bytes) || limit.Inodes == 0 && stat.FBytes > 64<<10 {
					t.Errorf("FSSTAT: %+v", stat)
				}

				renamed, err := c.Rename(ctx, root, "temporary", root, "temporary 2")
				w.is("RENAME to a new name", renamed.Status, err, nfs3.OK)
				written, err := c.Write(ctx, file, 0, nfs3.FileSync, []byte("text"))
				if limit.Inodes == 0 {
					w.is("WRITE over what is there", written.Status, err, nfs3.OK)
				}
				renamed, err = c.Rename(ctx, root, "temporary 2", root, "file")
				w.is("RENAME over what is there", renamed.Status, err, nfs3.OK)
				removed, err := c.Remove(ctx, root, "file")
				w.is("REMOVE", removed.Status, err, nfs3.OK)
				gone, err := c.Rmdir(ctx, root, "dir")
				w.is("RMDIR", gone.Status, err, nfs3.OK)
				if engine == server.EngineNative {
					_, _ = c.Remove(ctx, root, "new")
				}
				_, status, err = w.create("at last", nfs3.SetUint64{})
				w.is("CREATE when there is room again", status, err, nfs3.OK)
			})
		}
	}
}

// TestFarSizes: sizes and offsets of 64 bits are refused, or leave the count as it is.
func TestFarSizes(t *testing.T) {
	const limit = 4 << 20
	for _, engine := range []string{server.EngineNative, server.EngineGoNFS} {
		t.Run(engine, func(t *testing.T) {
			c, root, account := countedWith(t, engine, quota.Limit{Bytes: limit})
			w := wire{t, c, root}
			file, status, err := w.create("file", nfs3.SetUint64{})
			w.is("CREATE", status, err, nfs3.OK)
			for _, around := range []uint64{1 << 62, 1<<63 - 128<<10, 1<<63 - 1, 1 << 63, 1<<63 + 128<<10, 1<<64 - 1} {
				for _, count := range []int{1, 4096, 64 << 10} {
					res, err := c.Write(t.Context(), file, around, nfs3.Unstable, make([]byte, count))
					want := []nfs3.Status{nfs3.ErrFBig, nfs3.ErrInval}
					if around+uint64(count) < 1<<63 { // some disks have files as large
						want = append(want, nfs3.OK)
					}
					w.is("WRITE", res.Status, err, want...)
				}
				status, err := w.resize(file, around)
				want := []nfs3.Status{nfs3.ErrFBig, nfs3.ErrInval}
				if around < 1<<63 {
					want = append(want, nfs3.OK)
				}
				if engine == server.EngineNative { // the library says many things, if it refuses it
					w.is("SETATTR of the size", status, err, want...)
				}
				_, status, err = w.create("sized", nfs3.SetUint64{Set: true, Value: around})
				if around >= 1<<63 && engine == server.EngineNative {
					w.is("CREATE with a size", status, err, nfs3.ErrFBig)
					if res, err := c.Lookup(t.Context(), root, "sized"); err != nil || res.Status != nfs3.ErrNoEnt {
						t.Errorf("what was refused is there: %v, %v", res.Status, err)
					}
				}
				_, _ = c.Remove(t.Context(), root, "sized")
				if u := account.Usage(); u.Bytes < 0 || u.Bytes > 1<<20 {
					t.Fatalf("at %d: %+v", around, u)
				}
			}
			w.fill(file)
			if u := account.Usage(); u.Bytes > limit {
				t.Errorf("%+v", u)
			}
		})
	}
}
