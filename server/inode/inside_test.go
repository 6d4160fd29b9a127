package inode_test

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/test/testdisk"
)

// twoVolumes are volumes 1 and 2 beside each other on a disk, with the handles of their
// roots.
func twoVolumes(t *testing.T, disk string) (o *inode.Opener, roots [2][]byte, dirs [2]string) {
	t.Helper()
	needNative(t)
	table := newTable(t)
	o = inode.NewOpener(table, locate.NewKey(make([]byte, 32)), slog.New(slog.DiscardHandler))
	for i, name := range []string{"one", "two"} {
		dirs[i] = filepath.Join(disk, name)
		mustDo(t, os.Mkdir(dirs[i], 0o755))
		mustDo(t, table.Export(exports.Exported{ID: uint64(i + 1), Path: "/" + name, Dir: dirs[i]}))
		v, _ := table.ByID(uint64(i + 1))
		root := o.Root(v)
		roots[i] = root
	}
	t.Cleanup(o.Close)
	return o, roots, dirs
}

// A directory that somebody has moved out of its volume, by itself or with one above it,
// can't be entered any more by a handle, and its files can. One that was moved within
// the volume, however deep, can.
func TestMovedDirectoriesLeadNowhere(t *testing.T) {
	testdisk.Each(t, func(t *testing.T, disk string) {
		o, roots, dirs := twoVolumes(t, disk)
		at := func(volume int, name string) string { return filepath.Join(dirs[volume], name) }
		mustDo(t, os.MkdirAll(at(0, "a/b/c/d/e/f/g/h"), 0o755))
		mustDo(t, os.WriteFile(at(0, "a/b/file"), nil, 0o644))
		mustDo(t, os.Mkdir(at(0, "x"), 0o755))
		mustDo(t, os.Mkdir(at(1, "y"), 0o755))
		mustDo(t, os.Mkdir(filepath.Join(disk, "outside"), 0o755))
		handles := map[string][]byte{}
		for _, name := range []string{"a", "a/b", "a/b/c/d/e/f/g/h", "a/b/file", "x"} {
			handles[name] = handleOf(t, o, roots[0], name)
		}
		open := func(name string) (errs []error) {
			for _, open := range []func() (*inode.File, error){
				func() (*inode.File, error) { return o.Open(netip.Addr{}, handles[name], inode.UseAttr) },
				func() (*inode.File, error) { return o.Open(netip.Addr{}, handles[name], inode.UseNames) },
				func() (*inode.File, error) { return o.Open(netip.Addr{}, handles[name], inode.UseAttr, inode.AtOnce) },
			} {
				f, err := patiently(open)
				errs = append(errs, err)
				if f != nil {
					f.Close()
				}
			}
			return errs
		}
		check := func(where string, inside bool) {
			t.Helper()
			o.ForgetInside() // what was known is too old
			for name := range handles {
				dir := name != "a/b/file"
				for i, err := range open(name) {
					if i == 1 && !dir {
						continue
					}
					stale := errors.Is(err, unix.ESTALE)
					// To open it at once is left to who may wait.
					if want := dir && name != "x" && !inside; i < 2 && stale != want || err != nil && !stale && !errors.Is(err, inode.ErrBlocks) {
						t.Errorf("%s is %s: %v", name, where, err)
					}
				}
				f, err := patiently(func() (*inode.File, error) { return o.Open(netip.Addr{}, handles[name], inode.UseAttr) })
				if err != nil || !dir {
					if err == nil {
						f.Close()
					}
					continue
				}
				parent, err := o.Parent(f)
				f.Close()
				if err != nil {
					t.Errorf("above %s, which is %s: %v", name, where, err)
					continue
				}
				parent.Close()
			}
		}
		here := at(0, "a")
		check("where it was made", true)
		for _, move := range []struct {
			to, where string
			inside    bool
		}{
			{at(0, "x/a"), "elsewhere in the volume", true},
			{at(1, "a"), "in another volume", false},
			{at(1, "y/a"), "deeper in the other volume", false},
			{filepath.Join(disk, "outside", "a"), "outside of all volumes", false},
			{filepath.Join(disk, "a"), "above the volumes", false},
			{at(0, "a"), "back", true},
		} {
			mustDo(t, os.Rename(here, move.to))
			here = move.to
			if move.where == "back" { // a client that was told that they are gone looks again
				for name := range handles {
					handleOf(t, o, roots[0], name)
				}
			}
			check(move.where, move.inside)
		}
	})
}

// What is known of where a directory lies ends by itself, and so does what was found
// through it: nobody keeps it alive by using it.
func TestMovedDirectoriesAreFoundInTime(t *testing.T) {
	t.Parallel() // it waits
	testdisk.Each(t, func(t *testing.T, disk string) {
		o, roots, dirs := twoVolumes(t, disk)
		mustDo(t, os.MkdirAll(filepath.Join(dirs[0], "a/b/c/d"), 0o755))
		var handles [][]byte
		for _, name := range []string{"a", "a/b", "a/b/c", "a/b/c/d"} {
			handles = append(handles, handleOf(t, o, roots[0], name))
		}
		use := func() (stale int) {
			for _, h := range handles {
				f, err := patiently(func() (*inode.File, error) { return o.Open(netip.Addr{}, h, inode.UseAttr) })
				switch {
				case errors.Is(err, unix.ESTALE):
					stale++
				case err != nil:
					t.Fatal(err)
				default:
					f.Close()
				}
			}
			return stale
		}
		use()
		moved := time.Now()
		mustDo(t, os.Rename(filepath.Join(dirs[0], "a"), filepath.Join(dirs[1], "a")))
		comesTrue(t, "none of what was moved is entered", func() bool { return use() == len(handles) })
		if took := time.Since(moved); took > 2*time.Second+5*time.Second { // on a busy machine
			t.Errorf("it took %v", took)
		}
	})
}

// nested makes directories in one another, each called d, until the test ends.
func nested(t *testing.T, v *exports.Volume, dir string, depth int) (deepest disk.FileID) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	mustDo(t, err)
	for range depth {
		mustDo(t, unix.Mkdirat(at, "d", 0o755))
		below, err := unix.Openat(at, "d", unix.O_PATH|unix.O_DIRECTORY, 0)
		mustDo(t, err)
		mustDo(t, unix.Close(at))
		at = below
	}
	t.Cleanup(func() { // deeper than os.RemoveAll can
		for range depth {
			up, err := unix.Openat(at, "..", unix.O_PATH|unix.O_DIRECTORY, 0)
			mustDo(t, err)
			mustDo(t, unix.Close(at))
			at = up
			mustDo(t, unix.Unlinkat(at, "d", unix.AT_REMOVEDIR))
		}
		mustDo(t, unix.Close(at))
	})
	deepest, err = v.Files.Identify(at, nil)
	mustDo(t, err)
	return deepest
}

// To see that a directory lies in its volume, and which is above it, takes few system
// calls, however deep it is.
func TestDeepDirectories(t *testing.T) {
	o, _, dir := openerAt(t)
	const depth = 4000
	v, _ := o.Table().ByID(7)
	id := nested(t, v, dir, depth)
	walked(v)
	deep := locate.NewKey(make([]byte, 32)).Handle(v.ID, id)
	// fastest of some, as the machine may be busy.
	fastest := func(look func()) time.Duration {
		best := time.Hour
		for range 5 {
			began := time.Now()
			look()
			best = min(best, time.Since(began))
		}
		return best
	}
	got := fastest(func() {
		o.ForgetInside()
		f, err := o.Open(netip.Addr{}, deep, inode.UseAttr)
		mustDo(t, err)
		defer f.Close()
		parent, err := o.Parent(f)
		mustDo(t, err)
		parent.Close()
	})
	oneByOne := fastest(func() {
		at, err := v.Files.Open(id, disk.PathOnly)
		mustDo(t, err)
		for at := at; ; {
			fd, err := unix.Openat(at.FD(), "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			mustDo(t, err)
			up := disk.Owned(fd)
			id, err := v.Files.Identify(fd, nil)
			mustDo(t, err)
			at.Close()
			if id == *v.Files.RootID() {
				up.Close()
				break
			}
			at = up
		}
	})
	t.Logf("%v at a depth of %d, %v one by one", got, depth, oneByOne)
	if got > oneByOne/4 {
		t.Errorf("it takes %v at a depth of %d, and %v to go up one by one", got, depth, oneByOne)
	}
}

// Whatever a directory's depth, the way up ends at the root, also where a leap would
// end above it.
func TestWayUp(t *testing.T) {
	o, _, dir := openerAt(t)
	const depth = 40
	v, _ := o.Table().ByID(7)
	nested(t, v, dir, depth)
	path := dir
	for n := range depth {
		path = filepath.Join(path, "d")
		fd, err := unix.Open(path, unix.O_PATH, 0)
		mustDo(t, err)
		id, err := v.Files.Identify(fd, nil)
		mustDo(t, err)
		if err := locate.NewInside().Find(&v.Files, &id, fd); err != nil {
			t.Errorf("%d below the root: %v", n+1, err)
		}
		mustDo(t, unix.Close(fd))
	}
}
