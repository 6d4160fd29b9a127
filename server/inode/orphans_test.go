package inode_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/space"
	"github.com/podnas/podnas/test/testdisk"
)

// keeping is a process that serves a volume of a disk, and keeps files.
type keeping struct {
	*testing.T
	*inode.Opener

	table *exports.Table
	v     *exports.Volume
	root  []byte
	dir   string // of the volume
	kept  string // the directory of what is kept
}

// keepingAt begins a process that counts what the volume uses.
func keepingAt(t *testing.T, dir string) *keeping {
	t.Helper()
	k := &keeping{T: t, table: newTable(t), dir: dir, kept: filepath.Join(filepath.Dir(dir), "removed")}
	mustDo(t, k.table.Export(exports.Exported{ID: 1, Path: "/v", Dir: dir, Account: space.NewAccount(quota.Limit{Bytes: 1 << 40})}))
	k.v, _ = k.table.ByID(1)
	counted(t, k.v)
	k.Opener = inode.NewOpener(k.table, locate.NewKey(make([]byte, 32)), discard)
	mustDo(t, k.OpenOrphans(k.kept))
	k.root = k.Root(k.v)
	return k
}

// end ends the process, and with it what it holds.
func (k *keeping) end(holds ...*inode.Held) {
	k.Helper()
	k.LeaveRemoved()
	for _, h := range holds {
		h.Close()
	}
	k.Opener.Close()
	k.table.Remove(1)
}

// next ends the process, and begins another.
func (k *keeping) next(holds ...*inode.Held) *keeping {
	k.Helper()
	k.end(holds...)
	return keepingAt(k.T, k.dir)
}

// hold makes a file with some content, and holds it.
func (k *keeping) hold(name, content string) (handle []byte, h *inode.Held) {
	k.Helper()
	dir := k.names()
	defer dir.Close()
	defer inode.LockNames(dir, dir).Unlock()
	f, err := dir.Create(actas.AsProcess(), name, 0o666, false)
	mustDo(k.T, err)
	h = f.Hold()
	_, _, err = f.WriteAt([]byte(content), 0)
	mustDo(k.T, err)
	handle = f.Handle()
	f.Close()
	return handle, h
}

// heldFiles counts the files that are held, and the orphans.
func (k *keeping) heldFiles() (n int) {
	_, n, _ = k.Known(1, disk.FileID{})
	return n
}

func (k *keeping) names() *inode.File {
	k.Helper()
	dir, err := k.Open(netip.Addr{}, k.root, inode.UseNames)
	mustDo(k.T, err)
	return dir
}

// change changes the names of the root.
func (k *keeping) change(do func(dir *inode.File) error) error {
	k.Helper()
	dir := k.names()
	defer dir.Close()
	defer inode.LockNames(dir, dir).Unlock()
	err := do(dir)
	_, _ = dir.Stat() // settles its charge
	return err
}

func (k *keeping) remove(name string) error {
	return k.change(func(dir *inode.File) error { return dir.Remove(actas.AsProcess(), name) })
}

// read reads what is held.
func (k *keeping) read(h *inode.Held) (string, disk.Attr) {
	k.Helper()
	f, err := h.File()
	mustDo(k.T, err)
	defer f.Close()
	p := make([]byte, 100)
	n, err := f.ReadAt(p, 0)
	mustDo(k.T, err)
	a, err := f.Stat()
	mustDo(k.T, err)
	return string(p[:n]), a
}

func (k *keeping) wantsKept(files int) {
	k.Helper()
	entries, err := os.ReadDir(k.kept)
	mustDo(k.T, err)
	if n := k.Orphans(); len(entries) != files || n != int64(files) {
		k.Errorf("%d files are kept, and %d are known, want %d", len(entries), n, files)
	}
}

// wantsStale checks that a handle is of no use to who does not hold the file.
func (k *keeping) wantsStale(handle []byte) {
	k.Helper()
	for _, use := range []inode.Use{inode.UseAttr, inode.UseRead, inode.UseWrite, inode.UseAttr} {
		f, err := k.Open(netip.Addr{}, handle, use)
		if err == nil { // one whose descriptor is cached
			_, err = f.Stat()
			f.Close()
		}
		if !errors.Is(err, unix.ESTALE) {
			k.Errorf("opened for %d: %v, want ESTALE", use, err)
		}
	}
}

// wantsUsage checks that the account has what is in the volume and beside it.
func (k *keeping) wantsUsage() {
	k.Helper()
	bytes, inodes := du(k.T, k.dir)
	more, files := du(k.T, k.kept)
	var own unix.Stat_t // the directory itself is no volume's
	mustDo(k.T, unix.Stat(k.kept, &own))
	bytes, inodes = bytes+more-own.Blocks*512-priceIn(k.T, k.kept).Inode, inodes+files-1
	if u := k.v.Account.Usage(); u.Bytes != bytes || u.Inodes != inodes {
		k.Errorf("the account has %d bytes and %d files, and the disk %d and %d", u.Bytes, u.Inodes, bytes, inodes)
	}
}

func (k *keeping) id(handle []byte) disk.FileID {
	k.Helper()
	_, id, err := locate.NewKey(make([]byte, 32)).Parse(handle)
	mustDo(k.T, err)
	return id
}

func TestKeptOverProcesses(t *testing.T) {
	onEachDisk(t, func(t *testing.T, dir string) {
		k := keepingAt(t, dir)
		k.EndReclaim(t.Context())
		content := "content"
		handle, h := k.hold("file", content)
		id := k.id(handle)
		mustDo(t, k.remove("file"))
		k.wantsKept(1)
		for range 3 {
			if got, a := k.read(h); got != content || a.Nlink != 0 {
				t.Fatalf("it has %q and %d links, want %q and none", got, a.Nlink, content)
			}
			k.wantsStale(handle)
			k.wantsUsage()
			if _, _, removed := h.Where(); !removed {
				t.Error("it is not said to be removed")
			}
			k = k.next(h)
			f, err := k.OpenIn(k.v, id, inode.UseWrite, inode.Removed)
			mustDo(t, err)
			h = f.Hold()
			f.Close()
			k.EndReclaim(t.Context())
			k.wantsKept(1)
			content += "+"
			f, err = h.File()
			mustDo(t, err)
			_, a, err := f.WriteAt([]byte{'+'}, int64(len(content)-1))
			mustDo(t, err)
			if a != (disk.Attr{}) {
				t.Errorf("a write returned %+v, as of a file that is there", a)
			}
			f.Close()
		}
		h.Close()
		k.wantsKept(0)
		k.wantsStale(handle)
		k.wantsUsage()
		k.end()
	})
}

// A file that was removed in one way or another is kept if it is open, and has lost its last name.
func TestRemovals(t *testing.T) {
	onEachDisk(t, func(t *testing.T, dir string) {
		k := keepingAt(t, dir)
		k.EndReclaim(t.Context())
		mustDo(t, os.Chmod(dir, 0o777))
		link := func(dir *inode.File, name string) error {
			f, err := dir.Lookup([]byte("file"))
			if err != nil {
				return err
			}
			defer f.Close()
			return f.Link(actas.AsProcess(), dir, name)
		}
		for _, tt := range []struct {
			name string
			kept int
			do   func(dir *inode.File) error
		}{
			{"removed", 1, func(dir *inode.File) error { return dir.Remove(actas.AsProcess(), "file") }},
			{"replaced", 1, func(dir *inode.File) error {
				return errors.Join(closed(dir.Symlink(actas.AsProcess(), "x", "new")), renameIn(dir, "new", "file"))
			}},
			{"renamed", 0, func(dir *inode.File) error { return renameIn(dir, "file", "other") }},
			{"renamed to itself", 0, func(dir *inode.File) error { return renameIn(dir, "file", "file") }},
			{"one name of two", 0, func(dir *inode.File) error {
				return errors.Join(link(dir, "other"), dir.Remove(actas.AsProcess(), "file"))
			}},
			{"one name replaced by the other", 0, func(dir *inode.File) error {
				return errors.Join(link(dir, "other"), renameIn(dir, "other", "file"), dir.Remove(actas.AsProcess(), "other"))
			}},
			{"both names", 1, func(dir *inode.File) error {
				return errors.Join(link(dir, "other"), dir.Remove(actas.AsProcess(), "file"), dir.Remove(actas.AsProcess(), "other"))
			}},
			{"refused", 0, func(dir *inode.File) error {
				if err := closed(dir.Mkdir(actas.AsProcess(), "dir", 0o755)); err != nil {
					return err
				}
				if err := renameIn(dir, "dir", "file"); !errors.Is(err, unix.ENOTDIR) {
					return fmt.Errorf("a directory took its place: %w", err)
				}
				return dir.Rmdir(actas.AsProcess(), "dir")
			}},
			{"by a user", 1, func(dir *inode.File) error {
				id := actas.Squash{}.Identity(1000, 1000, nil)
				return actas.NewUsers(nil).As(&id, func(u actas.Thread) error { return dir.Remove(u, "file") })
			}},
		} {
			t.Run(tt.name, func(t *testing.T) {
				handle, h := k.hold("file", "x")
				before := k.Orphans()
				mustDo(t, k.change(tt.do))
				k.wantsKept(tt.kept)
				links := uint32(1 - tt.kept)
				if _, a := k.read(h); a.Nlink != links {
					t.Errorf("it has %d links, want %d", a.Nlink, links)
				}
				if tt.kept > 0 {
					k.wantsStale(handle)
				}
				k.wantsUsage()
				h.Close()
				k.wantsKept(int(before))
				for _, name := range []string{"file", "other"} {
					if err := k.remove(name); err != nil && !errors.Is(err, unix.ENOENT) {
						t.Error(err)
					}
				}
				k.wantsUsage()
				k.wantsStale(handle)
			})
		}
		_, h := k.hold("file", "x")
		mustDo(t, k.remove("file"))
		if err := k.change(func(dir *inode.File) error {
			f, err := h.File()
			mustDo(t, err)
			defer f.Close()
			return f.Link(actas.AsProcess(), dir, "back")
		}); !errors.Is(err, unix.ENOENT) {
			t.Errorf("a removed file got a name again: %v", err)
		}
		h.Close()
		if n := k.heldFiles(); n != 0 {
			t.Errorf("%d files are remembered that nobody holds", n)
		}
		k.end()
	})
}

// What the process before has left, and nobody has reclaimed, is removed, but not before nobody can
// reclaim it any more.
func TestStartRemovesLeftovers(t *testing.T) {
	needNative(t)
	dir := filepath.Join(t.TempDir(), "volume")
	mustDo(t, os.Mkdir(dir, 0o755))
	k := keepingAt(t, dir)
	k.EndReclaim(t.Context())
	var handles [][]byte
	var holds []*inode.Held
	for i := range 250 {
		name := fmt.Sprint("file", i)
		handle, h := k.hold(name, "x")
		mustDo(t, k.remove(name))
		handles, holds = append(handles, handle), append(holds, h)
	}
	// The process before ended between the file's new name and the removal of the old one.
	alive, h := k.hold("alive", "x")
	mustDo(t, os.Link(filepath.Join(dir, "alive"), filepath.Join(k.kept, inode.OrphanName(1, k.id(alive)))))
	mustDo(t, os.WriteFile(filepath.Join(k.kept, "what"), nil, 0o600))
	k = k.next(append(holds, h)...)
	k.wantsStale(handles[0])
	if _, a := readOpened(t, k, alive); a.Nlink != 1 {
		t.Errorf("a file with a name has %d links", a.Nlink)
	}
	// One is reclaimed and closed, and may be another client's, too; one stays open.
	for i := range 2 {
		f, err := k.Open(netip.Addr{}, handles[i], inode.UseWrite, inode.Removed)
		mustDo(t, err)
		h = f.Hold()
		f.Close()
		if i == 0 {
			h.Close()
		}
	}
	f, err := k.Open(netip.Addr{}, handles[0], inode.UseWrite, inode.Removed)
	mustDo(t, err)
	f.Close()
	// One is removed by a client while another may reclaim it.
	create(t, k.Opener, k.root, "late")
	mustDo(t, k.remove("late"))
	k.EndReclaim(t.Context())
	mustDo(t, os.Remove(filepath.Join(k.kept, "what")))
	k.wantsKept(1)
	k.wantsUsage()
	if _, err := k.Open(netip.Addr{}, handles[0], inode.UseWrite, inode.Removed); !errors.Is(err, unix.ESTALE) {
		t.Errorf("what nobody holds: %v", err)
	}
	if _, a := readOpened(t, k, alive); a.Nlink != 1 {
		t.Errorf("a file with a name has %d links", a.Nlink)
	}
	if got, _ := k.read(h); got != "x" {
		t.Errorf("what was reclaimed has %q", got)
	}
	k.end(h)
}

func readOpened(t *testing.T, k *keeping, handle []byte) (string, disk.Attr) {
	t.Helper()
	f, err := k.Open(netip.Addr{}, handle, inode.UseRead)
	mustDo(t, err)
	defer f.Close()
	p := make([]byte, 100)
	n, err := f.ReadAt(p, 0)
	mustDo(t, err)
	a, err := f.Stat()
	mustDo(t, err)
	return string(p[:n]), a
}

// What is kept goes with its volume, and nobody else's does.
func TestForget(t *testing.T) {
	needNative(t)
	dir := filepath.Join(t.TempDir(), "volume")
	mustDo(t, os.Mkdir(dir, 0o755))
	k := keepingAt(t, dir)
	k.EndReclaim(t.Context())
	_, h := k.hold("file", "x")
	mustDo(t, k.remove("file"))
	k.table.Forget(2)
	k.wantsKept(1)
	k.table.Remove(1)
	k.table.Forget(1)
	k.wantsKept(0)
	h.Close()
	k.end()
}

// Where a file can't get another name it is removed nevertheless, and stays for this process.
func TestRemovedNotKept(t *testing.T) {
	testdisk.Ext4(t, func(t *testing.T, disk string) { // another one than that of the volume
		needNative(t)
		for name, kept := range map[string]string{"another disk": filepath.Join(disk, "removed"), "nothing is kept": ""} {
			t.Run(name, func(t *testing.T) {
				o, root, _ := openerAt(t)
				if kept != "" {
					mustDo(t, o.OpenOrphans(kept))
				}
				k := &keeping{T: t, Opener: o, root: root, kept: disk}
				handle, h := k.hold("file", "content")
				mustDo(t, k.remove("file"))
				if got, a := k.read(h); got != "content" || a.Nlink != 0 {
					t.Errorf("it has %q, %d links", got, a.Nlink)
				}
				k.wantsStale(handle)
				h.Close()
				if n := o.Orphans(); n != 0 {
					t.Errorf("%d files are kept", n)
				}
			})
		}
	})
}

// On a full disk files can be removed, and their space is free after the last close.
func TestRemovedOnFullDisk(t *testing.T) {
	full := func(t *testing.T, disk string) {
		needNative(t)
		dir := filepath.Join(disk, "volume")
		mustDo(t, os.Mkdir(dir, 0o755))
		k := keepingAt(t, dir)
		k.EndReclaim(t.Context())
		var holds []*inode.Held
		for i := range 40 { // more than an empty directory has room for without growing
			_, h := k.hold(fmt.Sprint("file", i, string(bytes.Repeat([]byte{'x'}, 100))), "x")
			holds = append(holds, h)
		}
		f, err := holds[0].File()
		mustDo(t, err)
		at := int64(1)
		for _, size := range []int{1 << 20, 4096, 1} {
			for p := make([]byte, size); ; {
				n, _, err := f.WriteAt(p, at)
				if at += int64(n); err != nil {
					if !errors.Is(err, unix.ENOSPC) {
						t.Fatal(err)
					}
					break
				}
			}
		}
		for i := 0; ; i++ { // and no inode
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("more", i)), nil, 0o600); err != nil {
				break
			}
			if i > 200_000 {
				t.Fatal("the disk does not get full")
			}
		}
		f.Close()
		for i := range holds {
			mustDo(t, k.remove(fmt.Sprint("file", i, string(bytes.Repeat([]byte{'x'}, 100)))))
			if got, a := k.read(holds[i]); got[:1] != "x" && got[:1] != "\x00" || a.Nlink != 0 {
				t.Errorf("file %d has %q, %d links", i, got, a.Nlink)
			}
		}
		t.Logf("%d of %d files are kept", k.Orphans(), len(holds))
		for _, h := range holds {
			h.Close()
		}
		k.wantsKept(0)
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) { // XFS frees late
			st, err := k.v.Statfs()
			mustDo(t, err)
			if int64(st.Free) > at/2 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d bytes are free of the %d of a removed file", st.Free, at)
			}
		}
		k.end()
	}
	testdisk.Ext4(t, full)
	testdisk.XFS(t, full)
	t.Run("tmpfs", func(t *testing.T) {
		target := t.TempDir()
		if err := unix.Mount("tmpfs", target, "tmpfs", 0, "size=16m,nr_inodes=100"); err != nil {
			t.Skipf("nothing can be mounted here: %v", err)
		}
		t.Cleanup(func() { mustDo(t, unix.Unmount(target, unix.MNT_DETACH)) })
		full(t, target)
	})
}

// Files that are made, opened, linked, renamed, removed and closed at the same time: those that are
// held can be used all the time, and in the end nothing is left.
func TestHeldFilesRace(t *testing.T) {
	needNative(t)
	dir := filepath.Join(t.TempDir(), "volume")
	mustDo(t, os.Mkdir(dir, 0o755))
	k := keepingAt(t, dir)
	k.EndReclaim(t.Context())
	rounds := testdisk.Rounds(100, 1000)
	handles := make(chan []byte, 1000)
	var doing sync.WaitGroup
	for w := range 4 {
		doing.Go(func() {
			for i := range rounds {
				name := fmt.Sprint("file", i%3)
				_ = k.change(func(d *inode.File) error {
					f, err := d.Create(actas.AsProcess(), name, 0o600, false)
					if err != nil {
						return err
					}
					h := f.Hold()
					handle := f.Handle()
					f.Close()
					select {
					case handles <- handle:
					default:
					}
					if (i+w)%2 == 0 {
						go func() {
							time.Sleep(time.Millisecond)
							if _, a := k.read(h); a.Nlink > 4 {
								t.Errorf("%d links", a.Nlink)
							}
							h.Close()
						}()
					} else {
						h.Close()
					}
					return nil
				})
				_ = k.change(func(d *inode.File) error {
					f, err := d.Lookup([]byte(name))
					if err != nil {
						return err
					}
					defer f.Close()
					return f.Link(actas.AsProcess(), d, "link")
				})
				_ = k.change(func(d *inode.File) error { return renameIn(d, "link", fmt.Sprint("file", (i+1)%3)) })
				_ = k.remove(name)
				select {
				case handle := <-handles:
					if f, err := k.Open(netip.Addr{}, handle, inode.UseWrite); err == nil {
						h := f.Hold()
						f.Close()
						_ = k.remove(name)
						h.Close()
					}
				default:
				}
			}
		})
	}
	doing.Wait()
	for i := range 3 {
		_ = k.remove(fmt.Sprint("file", i))
	}
	_ = k.remove("link")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		left := k.heldFiles()
		if left == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d files are remembered", left)
		}
	}
	k.wantsKept(0)
	k.wantsUsage()
	k.end()
}

// closed closes a file that was made for its name.
func closed(f *inode.File, err error) error {
	if err == nil {
		f.Close()
	}
	return err
}
