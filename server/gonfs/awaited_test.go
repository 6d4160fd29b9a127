package gonfs_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/test/conformance/nfstest"
	"github.com/podnas/podnas/test/testdisk"
)

func dial(t *testing.T, i *instance) (c *nfstest.Client, root nfs3.FH) {
	t.Helper()
	c, err := nfstest.Dial(t.Context(), i.addr, i.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	mounted, err := c.Mount(t.Context(), "/volume")
	if err != nil || mounted.Status != 0 {
		t.Fatal(mounted.Status, err)
	}
	return c, mounted.Handle
}

// changesOf are calls that change something, whose outcome is a status. Each is of a file of its own.
func changesOf(root, file nfs3.FH) map[string]func(context.Context, *nfstest.Client) (nfs3.Status, error) {
	set := func(attr nfs3.Sattr) func(context.Context, *nfstest.Client) (nfs3.Status, error) {
		return func(ctx context.Context, c *nfstest.Client) (nfs3.Status, error) {
			res, err := c.Setattr(ctx, nfs3.SetattrArgs{Object: file, Attr: attr})
			return res.Status, err
		}
	}
	changes := map[string]func(context.Context, *nfstest.Client) (nfs3.Status, error){
		"WRITE": func(ctx context.Context, c *nfstest.Client) (nfs3.Status, error) {
			res, err := c.Write(ctx, file, 0, nfs3.FileSync, []byte("written"))
			return res.Status, err
		},
		"CREATE": func(ctx context.Context, c *nfstest.Client) (nfs3.Status, error) {
			res, err := c.Create(ctx, nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: root, Name: []byte("created")}})
			return res.Status, err
		},
		"MKDIR": func(ctx context.Context, c *nfstest.Client) (nfs3.Status, error) {
			res, err := c.Mkdir(ctx, root, "made", nfs3.Sattr{})
			return res.Status, err
		},
		"REMOVE": func(ctx context.Context, c *nfstest.Client) (nfs3.Status, error) {
			res, err := c.Remove(ctx, root, "removed")
			return res.Status, err
		},
		"RENAME": func(ctx context.Context, c *nfstest.Client) (nfs3.Status, error) {
			res, err := c.Rename(ctx, root, "renamed", root, "other")
			return res.Status, err
		},
		"a mode": set(nfs3.Sattr{Mode: nfs3.SetUint32{Set: true, Value: 0o600}}),
		"a size": set(nfs3.Sattr{Size: nfs3.SetUint64{Set: true, Value: 3}}),
		"times":  set(nfs3.Sattr{Mtime: nfs3.SetTime{How: nfs3.SetToServerTime}}),
	}
	if os.Getuid() == 0 { // others can't give files away
		changes["an owner"] = set(nfs3.Sattr{UID: nfs3.SetUint32{Set: true, Value: 12}, GID: nfs3.SetUint32{Set: true, Value: 34}})
	}
	return changes
}

// heldVolume is a volume with files for changesOf, of which changes fail so that they are tried again.
func heldVolume(t *testing.T) (i *instance, root, file nfs3.FH, release func()) {
	t.Helper()
	i, dir := newInstance(t)
	for _, name := range []string{"file", "removed", "renamed"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("content"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c, root := dial(t, i)
	found, err := c.Lookup(t.Context(), root, "file")
	if err != nil || found.Status != nfs3.OK {
		t.Fatal(found.Status, err)
	}
	v, _ := i.table.ByID(1)
	for deadline := time.Now().Add(30 * time.Second); v.Account.Usage().Partial; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the volume is not counted")
		}
	}
	if release, err = v.Snapshots.Hold(t.Context()); err != nil {
		t.Fatal(err)
	}
	return i, root, found.Object, release
}

// Every change waits while the volume is restored, and is made then.
func TestChangesWait(t *testing.T) {
	i, root, file, release := heldVolume(t)
	type end struct {
		what   string
		status nfs3.Status
		err    error
	}
	ends := make(chan end)
	changes := changesOf(root, file)
	for what, do := range changes {
		c, _ := dial(t, i) // one call at a time on a connection
		go func() {
			status, err := do(context.WithoutCancel(t.Context()), c)
			ends <- end{what, status, err}
		}()
	}
	select {
	case e := <-ends:
		t.Errorf("%s ends meanwhile: %v, %v", e.what, e.status, e.err)
		delete(changes, e.what)
	case <-time.After(300 * time.Millisecond):
	}
	release()
	for range changes {
		if e := <-ends; e.err != nil || e.status != nfs3.OK {
			t.Errorf("%s afterwards: %v, %v", e.what, e.status, e.err)
		}
	}
}

// What waits ends with the server, with the volume, and when its client closes the connection.
func TestWaitsEnd(t *testing.T) {
	waiting := func(t *testing.T) (*instance, *nfstest.Client, <-chan error) {
		t.Helper()
		i, _, file, release := heldVolume(t)
		t.Cleanup(release)
		c, _ := dial(t, i)
		ended := make(chan error, 1)
		go func() {
			_, err := c.Write(context.WithoutCancel(t.Context()), file, 0, nfs3.FileSync, []byte("written"))
			ended <- err
		}()
		time.Sleep(100 * time.Millisecond)
		return i, c, ended
	}
	within := func(t *testing.T, what string, do func()) {
		t.Helper()
		done := make(chan struct{})
		go func() {
			do()
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatal(what + " does not end")
		}
	}
	t.Run("server", func(t *testing.T) {
		i, _, ended := waiting(t)
		within(t, "the server", i.stop)
		if err := <-ended; err == nil {
			t.Error("the client has an answer, and would not send the call again")
		}
	})
	t.Run("volume", func(t *testing.T) {
		i, _, ended := waiting(t)
		within(t, "the volume", func() { i.table.Remove(1) })
		if err := <-ended; err != nil {
			t.Errorf("the client has no answer: %v", err)
		}
	})
	t.Run("connection", func(t *testing.T) {
		i, c, ended := waiting(t)
		open := func() uint64 { return i.engine.Stats().Snapshot().Connections.Open }
		before := open()
		c.Close()
		if err := <-ended; err == nil {
			t.Error("the client that has closed the connection has an answer")
		}
		for deadline := time.Now().Add(10 * time.Second); open() >= before; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the connection does not end")
			}
		}
	})
}

// A write to a full disk that will give room waits for that, and looks for it now and then.
func TestWaitsForRoom(t *testing.T) {
	testdisk.Small(t, func(t *testing.T, disk string) {
		dir := filepath.Join(disk, "volume")
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		var tries atomic.Int64
		gives := func(uint64, int64) bool { return tries.Add(1) > 0 }
		i := &instance{table: emptied(t, &exports.Table{ByIndex: testdisk.ByIndex(), GivesRoom: gives}), key: make([]byte, 32), addr: nfstest.OwnAddress()}
		if err := i.table.Export(exports.Exported{ID: 1, Path: "/volume", Dir: dir}); err != nil {
			t.Fatal(err)
		}
		i.start(t)
		t.Cleanup(func() { i.stop() })
		c, root := dial(t, i)
		made, err := c.Create(t.Context(), nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: root, Name: []byte("file")}})
		if err != nil || made.Status != nfs3.OK {
			t.Fatal(made.Status, err)
		}
		filler := filepath.Join(disk, "filler")
		fill(t, filler)
		ended := make(chan nfs3.Status, 1)
		go func() {
			const much = 1 << 20 // more than is left of the last block
			res, err := c.Write(context.WithoutCancel(t.Context()), made.Object, 0, nfs3.FileSync, make([]byte, much))
			if err != nil {
				t.Error(err)
			}
			ended <- res.Status
		}()
		time.Sleep(time.Second)
		if n := tries.Load(); n < 2 || n > 25 {
			t.Errorf("tried %d times within a second", n)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		if status := <-ended; status != nfs3.OK {
			t.Errorf("with room: %v", status)
		}
	})
}

// fill takes all blocks of a disk by a file.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size >= 512; {
		_, err := f.Write(make([]byte, size))
		switch {
		case errors.Is(err, syscall.ENOSPC):
			size /= 2
		case err != nil:
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil && !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
}
