package server_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/test/conformance/nfstest"
	"github.com/podnas/podnas/test/faultydisk"
	"github.com/podnas/podnas/test/testdisk"
)

// What a client was told is on the disk is there, though the disk fails meanwhile and
// many callers wait for the same syncs. It takes a minute, so only CI runs it.
func TestSyncFails(t *testing.T) {
	testdisk.OnlyCI(t)
	if faultydisk.OwnMounts(t) {
		return
	}
	for _, engine := range []string{server.EngineNative, server.EngineGoNFS} {
		for _, kind := range faultydisk.Kinds() {
			for _, load := range []struct {
				name string
				call func(*caller)
			}{
				{"stable", (*caller).writeStable},
				{"unstable", (*caller).writeUnstable},
				{"names", (*caller).changeNames},
			} {
				t.Run(fmt.Sprintf("%s/%s/%s", engine, kind.Name, load.name), func(t *testing.T) {
					if l := syncFails(t, engine, faultydisk.NewThin(t, kind), load.call); l.failed.Load() == 0 && load.name != "names" {
						t.Error("nothing failed") // there may be room for names
					}
				})
			}
		}
	}
}

const (
	loadFiles   = 4 // that are written, and as many directories
	connections = 4
	callers     = 8    // of each
	callsMost   = 2000 // of a caller
	blockSize   = 4096
)

// load is what callers do at a time, and what they were told.
type load struct {
	files, dirs [loadFiles]nfs3.FH
	next        atomic.Int64 // block of a file, and part of a name
	failed, ok  atomic.Int64 // calls, and things in told

	mu   sync.Mutex
	told []told
}

// told is what a caller was told is on the disk.
type told struct {
	what  string
	check func(dir string) error
}

// caller is one of them.
type caller struct {
	*load
	*nfstest.Client
	t *testing.T
	n int64 // its own of next
}

func syncFails(t *testing.T, engine string, faulty *faultydisk.Disk, call func(*caller)) *load {
	t.Helper()
	volume := filepath.Join(faulty.Dir, "volume")
	must(t, os.Mkdir(volume, 0o777))
	if engine == server.EngineNative {
		if err := disk.ProbeHandles(volume); err != nil {
			t.Skipf("the native engine can't run here: %v", err)
		}
	}
	cfg := config(t)
	cfg.Engine.Engine = engine
	_, _ = rand.Read(cfg.HandleKey)
	must(t, cfg.Exports.Export(exports.Exported{ID: 1, Path: "/volume", Dir: volume}))
	i := &instance{cfg: cfg, addr: nfstest.OwnAddress()}
	i.start(t)
	l := &load{}
	var ended sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for n := range connections {
		client, err := nfstest.Dial(ctx, i.addr, i.addr)
		must(t, err)
		t.Cleanup(client.Close)
		if n == 0 {
			l.prepare(t, client)
		}
		for range callers {
			ended.Go(func() {
				c := &caller{load: l, Client: client, t: t}
				for range callsMost {
					if ctx.Err() != nil || t.Failed() {
						return
					}
					c.n = l.next.Add(1)
					call(c)
				}
			})
		}
	}
	more := func(n *atomic.Int64, limit time.Duration) bool {
		was := n.Load()
		return until(limit, func() bool { return n.Load() >= was+50 })
	}
	if !more(&l.ok, time.Minute) {
		t.Error("nothing goes well")
	}
	for range 3 {
		faulty.Fail()
		more(&l.failed, time.Second) // or nothing new is written to the disk
		faulty.Mend()
		if !more(&l.ok, time.Second) {
			break // it has failed for good
		}
	}
	cancel()
	ended.Wait()
	must(t, i.stop())
	cfg.Exports.Remove(1)
	faulty.Cut()
	lost := 0
	for _, told := range l.told {
		if err := told.check(volume); err != nil {
			if faulty.Kind.Loses(err) {
				t.Logf("%s was told to be on the disk, and can't be read: %v", told.what, err)
				continue
			}
			if lost++; lost <= 10 {
				t.Errorf("%s was told to be on the disk: %v", told.what, err)
			}
		}
	}
	t.Logf("%d calls failed; of %d things that were told to be on the disk %d are not", l.failed.Load(), len(l.told), lost)
	return l
}

// until waits for something that may not come.
func until(limit time.Duration, done func() bool) bool {
	for deadline := time.Now().Add(limit); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// prepare makes the files and directories.
func (l *load) prepare(t *testing.T, client *nfstest.Client) {
	t.Helper()
	root, err := client.Mount(t.Context(), "/volume")
	if err != nil || root.Status != mount3.OK {
		t.Fatalf("MNT: %v, %v", root.Status, err)
	}
	for i := range loadFiles {
		made, err := client.Create(t.Context(), create(root.Handle, fileName(i), 0o644))
		if err != nil || made.Status != nfs3.OK {
			t.Fatalf("CREATE: %v, %v", made.Status, err)
		}
		l.files[i] = made.Object
		dir, err := client.Mkdir(t.Context(), root.Handle, dirName(i), nfs3.Sattr{})
		if err != nil || dir.Status != nfs3.OK {
			t.Fatalf("MKDIR: %v, %v", dir.Status, err)
		}
		l.dirs[i] = dir.Object
	}
}

func fileName(i int) string { return fmt.Sprint("file", i) }
func dirName(i int) string  { return fmt.Sprint("dir", i) }

func create(dir nfs3.FH, name string, mode uint32) nfs3.CreateArgs {
	return nfs3.CreateArgs{
		Where: nfs3.DirOpArgs{Dir: dir, Name: []byte(name)},
		Mode:  nfs3.Guarded,
		Attr:  nfs3.Sattr{Mode: nfs3.SetUint32{Set: true, Value: mode}},
	}
}

// done tells whether a call was answered OK. The server answers them all: some that fail,
// go-nfs answers with an error of RPC.
func (c *caller) done(status nfs3.Status, err error) bool {
	var rpcErr *rpc.RPCError
	switch {
	case err != nil && !errors.As(err, &rpcErr):
		c.t.Error(err)
		return false
	case err != nil, status != nfs3.OK:
		c.failed.Add(1)
		time.Sleep(time.Millisecond) // it is soon that a disk that is dead has failed them all
		return false
	}
	return true
}

// wasTold notes what has to be on the disk.
func (c *caller) wasTold(what string, check func(dir string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, told{what, check})
	c.ok.Add(1)
}

func (c *caller) wrote(file int, block int64) {
	c.wasTold(fmt.Sprintf("block %d of file %d", block, file), func(dir string) error {
		f, err := os.Open(filepath.Join(dir, fileName(file)))
		if err != nil {
			return err
		}
		defer f.Close()
		got := make([]byte, blockSize)
		if _, err := f.ReadAt(got, block*blockSize); err != nil {
			return err
		}
		if !bytes.Equal(got, block4K(file, block)) {
			return fmt.Errorf("it begins with %q", bytes.TrimRight(got[:16], "\x00"))
		}
		return nil
	})
}

// block4K is what a block of a file holds.
func block4K(file int, block int64) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%7d,%7d\n", file, block), blockSize/16)
}

func (c *caller) write(block int64, stable nfs3.StableHow) (nfs3.WriteRes, bool) {
	file := int(block % loadFiles)
	res, err := c.Write(c.t.Context(), c.files[file], uint64(block*blockSize), stable, block4K(file, block))
	return res, c.done(res.Status, err)
}

// writeStable is WRITE that is on the disk when it is answered.
func (c *caller) writeStable() {
	if _, ok := c.write(c.n, nfs3.DataSync+nfs3.StableHow(c.n/loadFiles%2)); ok {
		c.wrote(int(c.n%loadFiles), c.n)
	}
}

// writeUnstable is some WRITEs and the COMMIT that says whether they are on the disk.
func (c *caller) writeUnstable() {
	file := int(c.n % loadFiles)
	var verf [nfs3.WriteVerfSize]byte
	var blocks []int64
	for i := range int64(3) {
		block := (c.n*3+i)*loadFiles + int64(file)
		res, ok := c.write(block, nfs3.Unstable)
		switch {
		case !ok || i > 0 && res.Verf != verf:
			return // a client would write them again
		case res.Committed == nfs3.Unstable:
			blocks = append(blocks, block)
		default: // go-nfs has synced it
			c.wrote(file, block)
		}
		verf = res.Verf
	}
	res, err := c.Commit(c.t.Context(), c.files[file], 0, 0)
	if c.done(res.Status, err) && res.Verf == verf {
		for _, block := range blocks {
			c.wrote(file, block)
		}
	}
}

// changeNames is the calls that change directories and attributes.
func (c *caller) changeNames() {
	i, n := int(c.n%loadFiles), c.n
	other := (i + 1) % loadFiles
	name := fmt.Sprint("made", n)
	path, moved := filepath.Join(dirName(i), name), filepath.Join(dirName(other), name)
	made, err := c.Create(c.t.Context(), create(c.dirs[i], name, 0o644))
	if !c.done(made.Status, err) {
		return
	}
	set := func(attr nfs3.Sattr) bool {
		res, err := c.Setattr(c.t.Context(), nfs3.SetattrArgs{Object: made.Object, Attr: attr})
		return c.done(res.Status, err)
	}
	switch n / loadFiles % 7 {
	case 0:
		c.isThere("CREATE", path)
	case 1:
		res, err := c.Mkdir(c.t.Context(), c.dirs[i], name+".dir", nfs3.Sattr{})
		if c.done(res.Status, err) {
			c.isThere("MKDIR", path+".dir")
		}
	case 2:
		res, err := c.Symlink(c.t.Context(), c.dirs[i], name+".link", "target")
		if c.done(res.Status, err) {
			c.isThere("SYMLINK", path+".link")
		}
	case 3:
		res, err := c.Rename(c.t.Context(), c.dirs[i], name, c.dirs[other], name)
		if c.done(res.Status, err) {
			c.isThere("RENAME", moved)
			c.isGone("RENAME", path)
		}
	case 4:
		res, err := c.Remove(c.t.Context(), c.dirs[i], name)
		if c.done(res.Status, err) {
			c.isGone("REMOVE", path)
		}
	case 5:
		if set(nfs3.Sattr{Size: nfs3.SetUint64{Set: true, Value: 12345}}) {
			c.has("SETATTR", path, 0o644, 12345)
		}
	case 6:
		if set(nfs3.Sattr{Mode: nfs3.SetUint32{Set: true, Value: 0o600}}) {
			c.has("SETATTR", path, 0o600, 0)
		}
	}
}

func (c *caller) isThere(call, path string) {
	c.wasTold(call+" "+path, func(dir string) error {
		_, err := os.Lstat(filepath.Join(dir, path))
		return err
	})
}

func (c *caller) isGone(call, path string) {
	c.wasTold(call+" "+path, func(dir string) error {
		if _, err := os.Lstat(filepath.Join(dir, path)); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("it is still there: %w", err)
		}
		return nil
	})
}

func (c *caller) has(call, path string, mode os.FileMode, size int64) {
	c.wasTold(call+" "+path, func(dir string) error {
		info, err := os.Lstat(filepath.Join(dir, path))
		if err == nil && (info.Mode() != mode || info.Size() != size) {
			err = fmt.Errorf("it has mode %v and %d bytes", info.Mode(), info.Size())
		}
		return err
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
