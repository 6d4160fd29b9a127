package vfs_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/stats"
	"github.com/podnas/podnas/server/vfs"
	"github.com/podnas/podnas/test/testdisk"
)

// conn is a connection that records what the call does to it.
type conn struct {
	alone, gone       bool
	waits, woken, may int
}

func (c *conn) MayWait(uint64, bool) bool { c.may++; return !c.gone }
func (c *conn) Alone() bool               { return c.alone }
func (c *conn) Wait()                     { c.waits++ }
func (c *conn) Woken()                    { c.woken++ }

// world is a volume in a temporary directory.
type world struct {
	*testing.T

	dir     string
	root    []byte // the handle of dir
	table   *exports.Table
	service *vfs.Service
	conn    conn
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldIn(t, t.TempDir())
}

// newWorldIn is newWorld of a directory.
func newWorldIn(t *testing.T, dir string) *world {
	t.Helper()
	w := &world{T: t, dir: dir, table: &exports.Table{ByIndex: testdisk.ByIndex()}, conn: conn{alone: true}}
	if err := disk.ProbeHandles(w.dir); err != nil {
		t.Skipf("files can't be opened by handle here: %v", err)
	}
	log := slog.New(slog.DiscardHandler)
	mustDo(t, w.table.Export(exports.Exported{ID: 1, Path: "/volume", Dir: w.dir}))
	t.Cleanup(func() { w.table.Remove(1) })
	opener := inode.NewOpener(w.table, locate.NewKey(make([]byte, 32)), log)
	t.Cleanup(opener.Close)
	v, _ := w.table.ByID(1)
	w.root = opener.Root(v)
	w.service = vfs.New(vfs.Config{Opener: opener, Users: actas.NewUsers(nil), Log: log})
	return w
}

// call begins a call of a user, which ends with the test.
func (w *world) call(uid uint32) *vfs.Call {
	c := &vfs.Call{}
	c.Begin(w.service, &w.conn, vfs.Caller{UID: uid, GID: uid}, &stats.Call{})
	w.Cleanup(c.End)
	return c
}

// open opens a path below the volume's root.
func (w *world) open(c *vfs.Call, use inode.Use, names ...string) *inode.File {
	w.Helper()
	handle := w.root
	for _, name := range names {
		dir, err := c.Open(handle, inode.UseAttr)
		mustDo(w, err)
		_, handle, err = dir.Describe([]byte(name), nil)
		mustDo(w, err)
	}
	f, err := c.Open(handle, use)
	mustDo(w, err)
	return f
}

// syncs is how many there were.
func (w *world) syncs() uint64 { return w.table.Syncs.Durations.Snapshot().Count }

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What a call opens for a moment is closed after that, also if it fails, and what it had open before at its end.
func TestShortly(t *testing.T) {
	c := newWorld(t).call(0)
	var before, during, failed closings
	c.Closes(&before)
	mustDo(t, c.Shortly(func() error { c.Closes(&during); return nil }))
	if err := c.Shortly(func() error { c.Closes(&failed); return syscall.EIO }); !errors.Is(err, syscall.EIO) {
		t.Errorf("it returns %v", err)
	}
	if before != 0 || during != 1 || failed != 1 {
		t.Errorf("closed %d, %d and %d times, want only what was opened meanwhile", before, during, failed)
	}
	c.End()
	if before != 1 || during != 1 || failed != 1 {
		t.Errorf("closed %d, %d and %d times at the end, want each once", before, during, failed)
	}
}

// closings counts how often it is closed.
type closings int

func (c *closings) Close() { *c++ }

// A call that is alone syncs itself. Any other waits for another goroutine, and holds up
// no call behind it meanwhile.
func TestSync(t *testing.T) {
	w := newWorld(t)
	mustDo(t, os.WriteFile(filepath.Join(w.dir, "file"), nil, 0o644))
	for _, alone := range []bool{true, false} {
		w.conn = conn{alone: alone}
		c := w.call(0)
		f := w.open(c, inode.UseWrite, "file")
		before, may := w.syncs(), w.conn.may
		mustDo(t, c.Sync(f, false))
		if n := w.syncs() - before; n != 1 {
			t.Errorf("alone %v: %d syncs", alone, n)
		}
		if waits, woken := w.conn.waits, w.conn.woken; (waits == 0) != alone || woken != waits {
			t.Errorf("alone %v: it waits %d times, and is woken %d times", alone, waits, woken)
		}
		// What may block after a wait is announced again.
		mustDo(t, c.AsCaller(func(actas.Thread) error { return nil }))
		if more := w.conn.may - may; (more == 0) != alone {
			t.Errorf("alone %v: %d times it is announced that the call may block", alone, more)
		}
	}
}

// What is found a moment after another call has made it is synced by who finds it: the other may not have done so yet.
func TestSyncFound(t *testing.T) {
	for _, async := range []bool{false, true} {
		w := newWorld(t)
		v, _ := w.table.ByID(1)
		v.Options.Async = async
		mustDo(t, os.WriteFile(filepath.Join(w.dir, "file"), nil, 0o644))
		c := w.call(0)
		dir := w.open(c, inode.UseNames)
		made, err := c.CreateUnsynced(dir, []byte("file"), vfs.Finding, &vfs.SetAttr{}, [8]byte{})
		if !errors.Is(err, syscall.EEXIST) || made.Found == nil {
			t.Fatalf("found %v, %v", made.Found, err)
		}
		before := w.syncs()
		mustDo(t, c.SyncFound(dir, made.Found))
		if n := w.syncs() - before; (n > 0) == async {
			t.Errorf("async %v: %d syncs", async, n)
		}
	}
}

// A call that its client has left while it waited ends its syncs: it has begun, and is not done again.
func TestGoneBetweenSyncs(t *testing.T) {
	w := newWorld(t)
	w.conn.alone = false
	c := w.call(0)
	dir := w.open(c, inode.UseNames)
	mustDo(t, c.Sync(dir, false))
	w.conn = conn{alone: true, gone: true}
	before := w.syncs()
	mustDo(t, c.Sync(dir, false))
	if n := w.syncs() - before; n != 1 || w.conn.may != 0 {
		t.Errorf("%d syncs, and the call was asked %d times whether it goes on", n, w.conn.may)
	}
}

// A call that its client has left while it waited does nothing more.
func TestGoneAfterWait(t *testing.T) {
	w := newWorld(t)
	w.conn.alone = false
	c := w.call(0)
	dir := w.open(c, inode.UseNames)
	mustDo(t, c.Sync(dir, false))
	w.conn.gone = true
	if _, err := c.Mkdir(dir, []byte("late"), &vfs.SetAttr{}); !errors.Is(err, vfs.ErrGone) {
		t.Errorf("MKDIR: %v", err)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "late")); err == nil {
		t.Error("the directory was made")
	}
}

// A call can be made of many operations: on more files than two, each of which is synced when it
// returns, and all with the rights of its caller.
func TestManyOperations(t *testing.T) {
	const uid = 1234
	w := newWorld(t)
	names := []string{"a", "b", "c"}
	for _, name := range names {
		mustDo(t, os.Mkdir(filepath.Join(w.dir, name), 0o755))
		mustDo(t, os.Chown(filepath.Join(w.dir, name), uid, uid))
	}
	c := w.call(uid)
	for _, name := range names {
		dir := w.open(c, inode.UseNames, name)
		before := w.syncs()
		made, err := c.Mkdir(dir, []byte("made"), &vfs.SetAttr{})
		mustDo(t, err)
		if made.Attr.UID != uid {
			t.Errorf("owner %d", made.Attr.UID)
		}
		if w.syncs() == before {
			t.Error("it is not synced")
		}
		before = w.syncs()
		_, _, err = c.Rename(dir, []byte("made"), dir, []byte("renamed"))
		mustDo(t, err)
		if w.syncs() == before {
			t.Error("the new name is not synced")
		}
		if _, err := os.Stat(filepath.Join(w.dir, name, "renamed")); err != nil {
			t.Error(err)
		}
	}
}

// The rights of an ordinary user, whether the call asks the kernel or knows: of who owns a directory it
// does.
func TestNamesTakeRights(t *testing.T) {
	const owner, other = 1000, 1001
	for _, tt := range []struct {
		name   string
		mode   os.FileMode // of the directory, which is the owner's
		uid    uint32
		of     int // whose the files are
		remove error
		rename error
	}{
		{"the owner", 0o300, owner, other, nil, nil},
		{"the owner, who may not search", 0o200, owner, owner, syscall.EACCES, syscall.EACCES},
		{"the owner, who may not write", 0o577, owner, owner, syscall.EACCES, syscall.EACCES},
		{"the owner of a sticky one", 0o700 | os.ModeSticky, owner, other, nil, nil},
		{"somebody", 0o707, other, owner, nil, nil},
		{"somebody, in a sticky one", 0o707 | os.ModeSticky, other, owner, syscall.EPERM, syscall.EPERM},
		{"somebody, in a sticky one, of an own file", 0o707 | os.ModeSticky, other, other, nil, nil},
		{"somebody, who may not write", 0o705, other, other, syscall.EACCES, syscall.EACCES},
		{"root", 0o000, 0, other, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			mustDo(t, os.Chmod(w.dir, 0o755))
			dir := filepath.Join(w.dir, "dir")
			mustDo(t, os.Mkdir(dir, 0o755))
			for _, name := range []string{"removed", "renamed"} {
				mustDo(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
				mustDo(t, os.Chown(filepath.Join(dir, name), tt.of, tt.of))
			}
			mustDo(t, os.Chown(dir, owner, owner))
			mustDo(t, os.Chmod(dir, tt.mode))
			c := w.call(tt.uid)
			f := w.open(c, inode.UseNames, "dir")
			if _, err := c.Remove(f, []byte("removed")); !errors.Is(err, tt.remove) {
				t.Errorf("REMOVE: %v, want %v", err, tt.remove)
			}
			if _, _, err := c.Rename(f, []byte("renamed"), f, []byte("new")); !errors.Is(err, tt.rename) {
				t.Errorf("RENAME: %v, want %v", err, tt.rename)
			}
		})
	}
}

// Of devices an ordinary user makes only the one that is none, 0:0.
func TestMknodOfAUser(t *testing.T) {
	const user = 1000
	for _, tt := range []struct {
		name                   string
		uid                    uint32
		fileType, major, minor uint32
		err                    error
	}{
		{"a fifo", user, inode.TypeFIFO, 0, 0, nil},
		{"a character device 0:0", user, inode.TypeChar, 0, 0, nil},
		{"a character device 0:1", user, inode.TypeChar, 0, 1, syscall.EPERM},
		{"a character device 1:0", user, inode.TypeChar, 1, 0, syscall.EPERM},
		{"a block device 0:0", user, inode.TypeBlock, 0, 0, syscall.EPERM},
		{"a character device 0:0, in others' directory", user + 1, inode.TypeChar, 0, 0, syscall.EACCES},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			mustDo(t, os.Chmod(w.dir, 0o755))
			dir := filepath.Join(w.dir, "dir")
			mustDo(t, os.Mkdir(dir, 0o755))
			mustDo(t, os.Chown(dir, user, user))
			c := w.call(tt.uid)
			mode := uint32(0o600)
			made, err := c.Mknod(w.open(c, inode.UseNames, "dir"), []byte("new"), tt.fileType, tt.major, tt.minor, &vfs.SetAttr{Mode: &mode})
			if !errors.Is(err, tt.err) {
				t.Fatalf("got %v, want %v", err, tt.err)
			}
			var st syscall.Stat_t
			if err != nil {
				if err := syscall.Lstat(filepath.Join(dir, "new"), &st); !errors.Is(err, syscall.ENOENT) {
					t.Errorf("there is a file after an error: %v", err)
				}
				return
			}
			mustDo(t, syscall.Lstat(filepath.Join(dir, "new"), &st))
			if st.Mode != tt.fileType|mode || st.Rdev != 0 || st.Uid != tt.uid || made.Attr.Mode != st.Mode {
				t.Errorf("mode %o, device %x, owner %d; the call says %o", st.Mode, st.Rdev, st.Uid, made.Attr.Mode)
			}
		})
	}
}

// To move a directory takes the right to write to it, which its place does not give.
func TestMoveTakesTheDirectory(t *testing.T) {
	const uid = 1000
	w := newWorld(t)
	mustDo(t, os.Chmod(w.dir, 0o755))
	for _, name := range []string{"a", "b"} {
		mustDo(t, os.MkdirAll(filepath.Join(w.dir, name, "of root"), 0o755))
		mustDo(t, os.Chown(filepath.Join(w.dir, name), uid, uid))
	}
	c := w.call(uid)
	a, b := w.open(c, inode.UseNames, "a"), w.open(c, inode.UseNames, "b")
	if _, _, err := c.Rename(a, []byte("of root"), b, []byte("new")); !errors.Is(err, syscall.EACCES) {
		t.Errorf("told %v, want %v", err, syscall.EACCES)
	}
}

// Who may write a file but does not own it sets its mtime to now, which is what ftruncate(2) to the same size asks for, and
// nothing else of its times.
func TestTimesOfOthersFiles(t *testing.T) {
	now, set := inode.SetTime{Set: true, Now: true}, inode.SetTime{Set: true, Time: time.Unix(2000, 0)}
	for _, tt := range []struct {
		name string
		mode os.FileMode
		attr vfs.SetAttr
		err  error
	}{
		{"a file that others write, mtime now", 0o666, vfs.SetAttr{Mtime: now}, nil},
		{"a file that others only write, mtime now", 0o602, vfs.SetAttr{Mtime: now}, nil},
		{"a file that others read, mtime now", 0o644, vfs.SetAttr{Mtime: now}, syscall.EPERM},
		{"a file that others read, both now", 0o644, vfs.SetAttr{Atime: now, Mtime: now}, syscall.EACCES},
		{"a file that others write, atime now", 0o666, vfs.SetAttr{Atime: now}, syscall.EPERM},
		{"a file that others write, a given mtime", 0o666, vfs.SetAttr{Mtime: set}, syscall.EPERM},
		{"a file that others write, a given atime and mtime now", 0o666, vfs.SetAttr{Atime: set, Mtime: now}, syscall.EPERM},
		{"a file that others write, a mode and mtime now", 0o666, vfs.SetAttr{Mode: new(uint32), Mtime: now}, syscall.EPERM},
		{"a directory that others write, mtime now", os.ModeDir | 0o777, vfs.SetAttr{Mtime: now}, syscall.EPERM},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			path, old := filepath.Join(w.dir, "theirs"), time.Unix(1000, 0)
			if tt.mode.IsDir() {
				mustDo(t, os.Mkdir(path, 0o700))
			} else {
				mustDo(t, os.WriteFile(path, []byte("theirs"), 0o600))
			}
			mustDo(t, os.Chmod(path, tt.mode.Perm()))
			mustDo(t, os.Chtimes(path, old, old))
			c := w.call(1000)
			f := w.open(c, inode.UseAttr, "theirs")
			_, after, err := c.SetAttr(f, nil, &tt.attr, nil)
			if !errors.Is(err, tt.err) {
				t.Errorf("got %v, want %v", err, tt.err)
			}
			if got := after.Mtime.Equal(old); got != (err != nil) {
				t.Errorf("the file's mtime is %v after %v", after.Mtime, err)
			}
			if !after.Atime.Equal(old) {
				t.Errorf("the file's atime has become %v", after.Atime)
			}
		})
	}
}

// What acts as the caller must not open files of handles, wait, or act as the caller again; and after a panic
// the goroutine is root again.
func TestAsCaller(t *testing.T) {
	w := newWorld(t)
	c := w.call(1000)
	dir := w.open(c, inode.UseAttr)
	for name, do := range map[string]func() error{
		"open":  func() error { _, err := c.Open(w.root, inode.UseAttr); return err },
		"sync":  func() error { return c.Sync(dir, false) },
		"again": func() error { return c.AsCaller(func(actas.Thread) error { return nil }) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				c.Recovered()
				if recover() == nil {
					t.Error("no panic")
				}
				path := filepath.Join(w.dir, fmt.Sprint("after ", name))
				mustDo(t, os.WriteFile(path, nil, 0o600))
				if a, err := os.Stat(path); err != nil || a.Sys().(*syscall.Stat_t).Uid != 0 {
					t.Errorf("after it the goroutine is not root: %v", err)
				}
			}()
			_ = c.AsCaller(func(actas.Thread) error { return do() })
		})
	}
}
