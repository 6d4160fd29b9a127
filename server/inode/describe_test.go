package inode_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/test/testdisk"
)

// What Describe remembers is what Lookup finds, whatever becomes of the names.
func TestDescribe(t *testing.T) {
	o, root, dir := openerAt(t)
	top, err := o.Open(netip.Addr{}, root, inode.UseAttr)
	mustDo(t, err)
	defer top.Close()
	same := func(when, name string) []byte {
		t.Helper()
		child, lookupErr := top.Lookup([]byte(name))
		a, handle, err := top.Describe([]byte(name), []byte("before"))
		if lookupErr != nil || err != nil {
			if !errors.Is(err, errors.Unwrap(lookupErr)) && !errors.Is(err, lookupErr) {
				t.Errorf("%s: %v, Lookup says %v", when, err, lookupErr)
			}
			return nil
		}
		defer child.Close()
		handle, ok := bytes.CutPrefix(handle, []byte("before"))
		child.Attr.Birth = child.Birth()
		if !ok || !bytes.Equal(handle, child.Handle()) || a != child.Attr {
			t.Errorf("%s: handle %x and %+v, Lookup says %x and %+v", when, handle, a, child.Handle(), child.Attr)
		}
		return handle
	}
	write := func(name, data string) { mustDo(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644)) }
	write("a", "1")
	write("b", "22")
	mustDo(t, os.Symlink("a", filepath.Join(dir, "link")))
	mustDo(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	same("too young to be remembered", "a")
	if n := o.CacheCounts().Handles.Cached; n != 0 {
		t.Errorf("%d handles are remembered of files that were just made", n)
	}
	time.Sleep(inode.BornBefore + 20*time.Millisecond)
	for _, name := range []string{"a", "b", "link", "sub", ".", "gone"} {
		same(name, name)
		same(name+" again", name)
	}
	if c := o.CacheCounts().Handles; c.Cached != 5 || c.Hits != 4 { // "." is looked up, and remembered for its other name
		t.Errorf("%+v of five names", c)
	}
	write("a", "written")
	mustDo(t, os.Chmod(filepath.Join(dir, "a"), 0o600))
	old := same("changed", "a")
	mustDo(t, os.Rename(filepath.Join(dir, "b"), filepath.Join(dir, "a")))
	if now := same("replaced", "a"); bytes.Equal(now, old) {
		t.Error("what has replaced a file has its handle")
	}
	for i := range 50 { // the number is used again at once, on ext4
		mustDo(t, os.Remove(filepath.Join(dir, "a")))
		write("a", fmt.Sprint(i))
		same(fmt.Sprint("made anew, ", i), "a")
	}
	o.EvictHandles()
	o.EvictHandles()
	if n := o.CacheCounts().Handles.Cached; n != 0 {
		t.Errorf("%d handles are never forgotten", n)
	}
	same("after that", "sub")
	for _, name := range []string{"..", "", "a/b", "a\x00"} {
		if _, _, err := top.Describe([]byte(name), nil); err == nil {
			t.Errorf("%q is described", name)
		}
	}
	if _, _, err := top.Describe(bytes.Repeat([]byte("n"), 256), nil); !errors.Is(err, unix.ENAMETOOLONG) {
		t.Errorf("256 bytes: %v", err)
	}
}

// The attributes and the handle are one file's, though the name goes from one to
// another meanwhile. CI looks ten times as often.
func TestDescribeRenamed(t *testing.T) {
	o, root, dir := openerAt(t)
	top, err := o.Open(netip.Addr{}, root, inode.UseAttr)
	mustDo(t, err)
	defer top.Close()
	handles := map[uint64][]byte{} // by the inode's number
	for _, name := range []string{"a", "b"} {
		mustDo(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		child, err := top.Lookup([]byte(name))
		mustDo(t, err)
		handles[child.Attr.Ino] = child.Handle()
		if disk := top.Volume.FS; disk.Type != 0 && disk.NumberIn(&child.ID) != child.Attr.Ino {
			t.Errorf("%s: number %d in %x", name, child.Attr.Ino, child.ID.Bytes())
		}
		child.Close()
	}
	time.Sleep(inode.BornBefore + 20*time.Millisecond) // so that they are remembered
	ended, end := make(chan error), make(chan struct{})
	go func() {
		var err error
		for done := false; !done && err == nil; {
			err = unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "a"), unix.AT_FDCWD, filepath.Join(dir, "b"), unix.RENAME_EXCHANGE)
			select {
			case <-end:
				done = true
			default:
			}
		}
		ended <- err
	}()
	for range testdisk.Rounds(100, 1000) {
		a, handle, err := top.Describe([]byte("a"), nil)
		mustDo(t, err)
		if !bytes.Equal(handle, handles[a.Ino]) {
			t.Fatalf("inode %d is described with handle %x, not %x", a.Ino, handle, handles[a.Ino])
		}
		o.EvictHandles()
		o.EvictHandles()
	}
	close(end)
	mustDo(t, <-ended)
}

// A number is read where it is known to be.
func TestNumberIn(t *testing.T) {
	xfs, ext4, btrfs := disk.FS{Type: unix.XFS_SUPER_MAGIC}, disk.FS{Type: unix.EXT4_SUPER_MAGIC}, disk.FS{Type: unix.BTRFS_SUPER_MAGIC}
	handle := func(kind byte, numbers ...uint32) disk.FileID {
		b := []byte{kind}
		for _, n := range numbers {
			b = binary.NativeEndian.AppendUint32(b, n)
		}
		return disk.NewFileID(b)
	}
	for _, test := range []struct {
		name string
		FS   disk.FS
		id   disk.FileID
		want uint64
	}{
		{"ext4", ext4, handle(1, 12, 7), 12},
		{"XFS, 32 bits", xfs, handle(1, 131, 7), 131},
		{"XFS, 64 bits", xfs, handle(0x81, 131, 0, 7), 131},
		{"btrfs", btrfs, handle(0x4d, 257, 0, 5, 0, 7), 257},
		{"of another disk", ext4, handle(0x81, 131, 0, 7), 0},
		{"of a disk that is not known", disk.FS{}, handle(1, 12, 7), 0},
		{"with the parent's", ext4, handle(2, 12, 7, 2, 0), 0},
		{"too short", ext4, handle(1, 12), 0},
		{"none", xfs, disk.FileID{}, 0},
	} {
		if got := test.FS.NumberIn(&test.id); got != test.want {
			t.Errorf("%s: %d, not %d", test.name, got, test.want)
		}
	}
}

// A name may be another file's by the time that its change attribute is found: then handle
// and attributes are that one's, too.
func TestChangeOfReplaced(t *testing.T) {
	o, root, dir := openerAt(t)
	open := func(handle []byte) *inode.File {
		f, err := o.Open(netip.Addr{}, handle, inode.UseAttr)
		mustDo(t, err)
		t.Cleanup(f.Close)
		return f
	}
	top, path := open(root), filepath.Join(dir, "a")
	mustDo(t, os.WriteFile(path, nil, 0o600))
	was, handle, err := top.Describe([]byte("a"), make([]byte, 0, locate.HandleMax))
	mustDo(t, err)
	mustDo(t, os.WriteFile(path+".new", []byte("data"), 0o600))
	mustDo(t, os.Rename(path+".new", path))
	change, a, now, err := top.ChangeOf([]byte("a"), handle, was)
	mustDo(t, err)
	f := open(now)
	want, _, err := f.Change(f.Attr)
	mustDo(t, err)
	if a.Ino == was.Ino || a.Ino != f.Attr.Ino || a.Size != 4 || change != want {
		t.Errorf("file %d of %d bytes with change %d; want file %d of 4 with %d, it was file %d", a.Ino, a.Size, change, f.Attr.Ino, want, was.Ino)
	}
}
