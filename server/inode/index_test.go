package inode_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/test/testdisk"
)

// indexed is a volume whose files are found by the index.
func indexed(t *testing.T, dir string) (o *inode.Opener, root []byte, x *locate.Index) {
	t.Helper()
	if err := locate.ProbeIndex(dir); err != nil {
		t.Skip(err)
	}
	table := newTable(t)
	table.ByIndex = true
	mustDo(t, table.Export(exports.Exported{ID: 7, Path: "/v", Dir: dir}))
	o = openerOf(t, table)
	v, _ := table.ByID(7)
	root = o.Root(v)
	return o, root, v.Files.Index()
}

// settled waits until the index has all files.
func settled(t *testing.T, x *locate.Index) {
	t.Helper()
	comesTrue(t, "the index is complete", func() bool {
		return x.Complete()
	})
}

// contentOf reads a file by its handle.
func contentOf(o *inode.Opener, h []byte) (string, error) {
	f, err := patiently(func() (*inode.File, error) { return o.Open(netip.Addr{}, h, inode.UseRead) })
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, 100)
	n, err := f.ReadAt(b, 0)
	return string(b[:n]), err
}

func put(t *testing.T, content string, path ...string) {
	t.Helper()
	mustDo(t, os.WriteFile(filepath.Join(path...), []byte(content), 0o644))
}

// forgetOpen closes all cached descriptors, so that the files must be found.
func forgetOpen(o *inode.Opener) {
	o.CloseCached()
}

func inDir(t *testing.T, o *inode.Opener, dir []byte, do func(*inode.File) error) {
	t.Helper()
	f, err := o.Open(netip.Addr{}, dir, inode.UseNames)
	mustDo(t, err)
	defer f.Close()
	defer inode.LockNames(f, f).Unlock()
	mustDo(t, do(f))
}

// A file is found as long as it has a name, whichever was removed, and however.
func TestIndexHardLinks(t *testing.T) {
	testdisk.Each(t, func(t *testing.T, dir string) {
		dir = filepath.Join(dir, "v")
		mustDo(t, os.MkdirAll(filepath.Join(dir, "d"), 0o755))
		put(t, "data", dir, "a")
		mustDo(t, os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "d", "b")))
		o, root, x := indexed(t, dir)
		settled(t, x)
		h := handleOf(t, o, root, "a")
		found := func(after string) {
			t.Helper()
			forgetOpen(o)
			if got, err := contentOf(o, h); got != "data" || err != nil {
				t.Errorf("after %s: %q, %v", after, got, err)
			}
		}
		found("the start")
		inDir(t, o, root, func(d *inode.File) error { return d.Remove(actas.AsProcess(), "a") })
		found("its first name was removed")
		f, err := o.Open(netip.Addr{}, h, inode.UseAttr)
		mustDo(t, err)
		inDir(t, o, root, func(d *inode.File) error { return f.Link(actas.AsProcess(), d, "c") })
		f.Close()
		inDir(t, o, handleOf(t, o, root, "d"), func(d *inode.File) error { return d.Remove(actas.AsProcess(), "b") })
		found("it got another name, and lost the second")
		mustDo(t, os.Link(filepath.Join(dir, "c"), filepath.Join(dir, "d", "e")))
		mustDo(t, os.Remove(filepath.Join(dir, "c")))
		found("that was done directly on the disk")
		inDir(t, o, root, func(d *inode.File) error { return nil })
		mustDo(t, os.Remove(filepath.Join(dir, "d", "e")))
		forgetOpen(o)
		if _, err := contentOf(o, h); !errors.Is(err, unix.ESTALE) {
			t.Errorf("a file without a name: %v", err)
		}
		// Of two names of one file, a rename of one to the other changes nothing, rename(2).
		put(t, "two", dir, "x")
		mustDo(t, os.Link(filepath.Join(dir, "x"), filepath.Join(dir, "y")))
		h, _ = handleOf(t, o, root, "x"), handleOf(t, o, root, "y")
		inDir(t, o, root, func(d *inode.File) error { return renameIn(d, "x", "y") })
		inDir(t, o, root, func(d *inode.File) error { return d.Remove(actas.AsProcess(), "x") })
		forgetOpen(o)
		if got, err := contentOf(o, h); got != "two" || err != nil {
			t.Errorf("after a rename to itself: %q, %v", got, err)
		}
	})
}

// A directory that was moved directly on the disk is found with all that is below it: where it was
// with another name at once, elsewhere by a walk.
func TestIndexMovedByHand(t *testing.T) {
	testdisk.Each(t, func(t *testing.T, dir string) {
		dir = filepath.Join(dir, "v")
		mustDo(t, os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o755))
		mustDo(t, os.Mkdir(filepath.Join(dir, "other"), 0o755))
		put(t, "data", dir, "a/b/c/file")
		o, root, x := indexed(t, dir)
		settled(t, x)
		h := handleOf(t, o, root, "a/b/c/file")
		for _, move := range [][2]string{{"a/b", "a/renamed"}, {"a/renamed", "other/b"}, {"other/b/c/file", "other/file"}, {"other", "a/other"}, {"a", "z"}} {
			mustDo(t, os.Rename(filepath.Join(dir, move[0]), filepath.Join(dir, move[1])))
			forgetOpen(o)
			if got, err := contentOf(o, h); got != "data" || err != nil {
				t.Errorf("after %s became %s: %q, %v", move[0], move[1], got, err)
			}
		}
	})
}

// What the index does not know does not exist, once it is complete; before, the client waits.
func TestIndexUnknown(t *testing.T) {
	dir := t.TempDir()
	put(t, "data", dir, "file")
	o, _, x := indexed(t, dir)
	settled(t, x)
	gone := locate.NewKey(make([]byte, 32)).Handle(7, disk.InodeID(1<<40, &unix.Statx_t{}))
	if _, err := o.Open(netip.Addr{}, gone, inode.UseAttr); !errors.Is(err, unix.ESTALE) {
		t.Errorf("a file that never was: %v", err)
	}
	walks := o.Table().IndexCounts().Walks
	for range 100 {
		if _, err := o.Open(netip.Addr{}, gone, inode.UseAttr); !errors.Is(err, unix.ESTALE) {
			t.Errorf("a file that never was: %v", err)
		}
	}
	if o.Table().IndexCounts().Walks != walks {
		t.Error("handles of files that do not exist have the volume walked")
	}
	// As after a change directly on the disk.
	x.Doubt(0)
	if _, err := o.Open(netip.Addr{}, gone, inode.UseAttr); !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ESTALE) {
		t.Errorf("while nobody knows: %v", err)
	}
	if _, err := patiently(func() (*inode.File, error) { return o.Open(netip.Addr{}, gone, inode.UseAttr) }); !errors.Is(err, unix.ESTALE) {
		t.Errorf("after a walk: %v", err)
	}
}

// An inode that is used again is another file.
func TestIndexReusedInode(t *testing.T) {
	dir := t.TempDir()
	o, root, x := indexed(t, dir)
	settled(t, x)
	reused := 0
	for n := range 50 {
		name := fmt.Sprint("file", n)
		put(t, "old", dir, name)
		h := handleOf(t, o, root, name)
		var was, is unix.Stat_t
		mustDo(t, unix.Stat(filepath.Join(dir, name), &was))
		if n%2 == 0 {
			inDir(t, o, root, func(d *inode.File) error { return d.Remove(actas.AsProcess(), name) })
		} else {
			mustDo(t, os.Remove(filepath.Join(dir, name)))
			forgetOpen(o)
		}
		time.Sleep(10 * time.Millisecond) // a tick of the kernel's clock
		put(t, "new", dir, name)
		mustDo(t, unix.Stat(filepath.Join(dir, name), &is))
		if was.Ino == is.Ino {
			reused++
		}
		if got, err := contentOf(o, h); !errors.Is(err, unix.ESTALE) {
			t.Fatalf("the old file's handle: %q, %v", got, err)
		}
		if got, err := contentOf(o, handleOf(t, o, root, name)); got != "new" || err != nil {
			t.Fatalf("the new file: %q, %v", got, err)
		}
	}
	t.Logf("%d of 50 inodes were used again", reused)
}

// indexedTooSmall is a volume whose index may take as little memory as possible.
func indexedTooSmall(t *testing.T, dir string) (table *exports.Table, o *inode.Opener, v *exports.Volume, root []byte) {
	t.Helper()
	table = newTable(t)
	table.ByIndex, table.IndexMax = true, 1
	mustDo(t, table.Export(exports.Exported{ID: 7, Path: "/v", Dir: dir}))
	o = openerOf(t, table)
	v, _ = table.ByID(7)
	root = o.Root(v)
	return table, o, v, root
}

// A volume with more files than its index may remember is used as any other: what the index has forgotten
// is found by a walk.
func TestIndexTooSmall(t *testing.T) {
	dir := t.TempDir()
	const files = 20_000
	if err := locate.ProbeIndex(dir); err != nil {
		t.Skip(err)
	}
	for n := range files {
		if n%1000 == 0 {
			mustDo(t, os.Mkdir(filepath.Join(dir, fmt.Sprint("d", n/1000)), 0o755))
		}
		put(t, fmt.Sprint(n), dir, fmt.Sprint("d", n/1000), fmt.Sprint("file", n))
	}
	table, o, v, root := indexedTooSmall(t, dir)
	handles := map[int][]byte{}
	for n := 0; n < files; n += 4999 {
		handles[n] = handleOf(t, o, root, fmt.Sprint("d", n/1000, "/file", n))
	}
	for n := range files { // so that the index forgets them
		a, err := os.Stat(filepath.Join(dir, fmt.Sprint("d", n/1000), fmt.Sprint("file", n)))
		mustDo(t, err)
		v.Files.Observe().Saw(-1, 1, []byte("x"), a.Sys().(*syscall.Stat_t).Ino, false)
	}
	for n, h := range handles {
		forgetOpen(o)
		if got, err := contentOf(o, h); got != fmt.Sprint(n) || err != nil {
			t.Fatalf("file %d: %q, %v", n, got, err)
		}
	}
	if names := table.IndexCounts().Names; names >= files {
		t.Errorf("the index has %d names", names)
	}
}

// So is one with more directories than that, of which a walk itself may forget some before it is there.
func TestIndexTooSmallForDirectories(t *testing.T) {
	testdisk.OnlyCI(t)
	dir := t.TempDir()
	if err := locate.ProbeIndex(dir); err != nil {
		t.Skip(err)
	}
	const directories, together = 20_000, 200
	at := func(n int) string { return fmt.Sprint("d", n/together, "/e", n) }
	for n := range directories {
		mustDo(t, os.MkdirAll(filepath.Join(dir, at(n)), 0o755))
	}
	_, o, v, root := indexedTooSmall(t, dir)
	handles := map[int][]byte{}
	for n := 0; n < directories; n += 997 {
		put(t, fmt.Sprint(n), dir, at(n), "file")
		handles[n] = handleOf(t, o, root, at(n)+"/file")
	}
	v.Files.Index().WalkOnce() // by now the index has forgotten most
	forgetOpen(o)
	var all sync.WaitGroup
	for n, h := range handles { // at once, so that few walks answer all
		all.Go(func() {
			if got, err := contentOf(o, h); got != fmt.Sprint(n) || err != nil {
				t.Errorf("the file of directory %d: %q, %v", n, got, err)
			}
		})
	}
	all.Wait()
}

// A file whose directories are renamed all the time is found at any time, and no client is asked to
// wait, nor told that it is gone.
func TestIndexRenamesWhileOpening(t *testing.T) {
	dir := t.TempDir()
	mustDo(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o755))
	mustDo(t, os.Mkdir(filepath.Join(dir, "x"), 0o755))
	put(t, "data", dir, "a/b/file")
	o, root, x := indexed(t, dir)
	settled(t, x)
	h, inX := handleOf(t, o, root, "a/b/file"), handleOf(t, o, root, "x")
	var stop atomic.Bool
	var wg sync.WaitGroup
	var renames atomic.Int64
	wg.Go(func() {
		from, err := o.Open(netip.Addr{}, root, inode.UseNames)
		mustDo(t, err)
		defer from.Close()
		to, err := o.Open(netip.Addr{}, inX, inode.UseNames)
		mustDo(t, err)
		defer to.Close()
		for !stop.Load() {
			locked := inode.LockNames(from, to)
			err := errors.Join(rename(from, "a", to, "a"), rename(to, "a", from, "a"))
			locked.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			renames.Add(2)
			time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
		}
	})
	asked, opens := 0, 0
	for deadline := time.Now().Add(time.Minute); renames.Load() < int64(testdisk.Rounds(1000, 10_000)) && time.Now().Before(deadline); opens++ {
		d, err := x.Open(locate.IDIn(h), disk.PathOnly)
		switch {
		case errors.Is(err, unix.EAGAIN): // none of 50 tries came between two renames
			asked++
		case err != nil:
			t.Fatalf("after %d renames: %v", renames.Load(), err)
		}
		d.Close()
	}
	stop.Store(true)
	wg.Wait()
	t.Logf("%d opens during %d renames, asked to wait %d times", opens, renames.Load(), asked)
	if got, err := contentOf(o, h); got != "data" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

var changedFiles = flag.Int("changed", 2000, "files of TestIndexChangedByHand; a million take some minutes")

// Whatever somebody does directly on the disk while clients work: a handle leads to its own file, or
// nowhere, and data that is written by a handle is in no other file. Each file begins with its number,
// which a client that has its handle writes once more, so what every path has at the end tells who wrote it.
// Of every other file no client has a handle.
func TestIndexChangedByHand(t *testing.T) {
	disk := t.TempDir()
	dir, backup := filepath.Join(disk, "v"), filepath.Join(disk, "backup.tar")
	const restored = 8
	files := *changedFiles
	dirs := max(restored, files/1000)
	inDir := func(d int) string { return filepath.Join(dir, fmt.Sprint("d", d)) }
	for d := range dirs {
		mustDo(t, os.MkdirAll(filepath.Join(inDir(d), "sub"), 0o755))
	}
	path := func(n int) string {
		return filepath.Join(inDir(n%dirs), []string{"", "sub"}[n/dirs%2], fmt.Sprint("file", n))
	}
	content := func(n int) string { return fmt.Sprintf("file %07d", n) }
	for n := range files {
		put(t, content(n), path(n))
	}
	archive := []string{"-C", dir, "-cf", backup}
	for d := range restored {
		archive = append(archive, fmt.Sprint("d", d))
	}
	mustDo(t, exec.Command("tar", archive...).Run())
	o, root, _ := indexed(t, dir)
	known := make([]int, 0, 1000)
	handles := map[int][]byte{}
	for n := 0; n < files; n += 2 * max(1, files/2000) {
		rel, err := filepath.Rel(dir, path(n))
		mustDo(t, err)
		known, handles[n] = append(known, n), handleOf(t, o, root, rel)
	}

	var stop atomic.Bool
	var hand, clients sync.WaitGroup
	changes := 0
	hand.Go(func() { // who changes the disk; errors don't matter, as what it moves may be elsewhere
		random := rand.New(rand.NewPCG(1, 2))
		file := func() string {
			if random.IntN(2) == 0 {
				return path(random.IntN(files))
			}
			return path(known[random.IntN(len(known))])
		}
		for ; !stop.Load(); changes++ {
			a, b := file(), file()
			da, db := inDir(random.IntN(dirs)), inDir(random.IntN(dirs))
			switch random.IntN(12) {
			case 0, 1, 2:
				_ = os.Rename(a, b) // replaces it
			case 3, 4:
				_ = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
			case 5:
				_ = unix.Renameat2(unix.AT_FDCWD, da, unix.AT_FDCWD, db, unix.RENAME_EXCHANGE)
			case 6:
				_ = os.Remove(a)
			case 7:
				_ = os.Link(a, b)
			case 8:
				_ = os.Rename(filepath.Join(da, "sub"), filepath.Join(db, fmt.Sprint("sub", changes)))
			case 9:
				_ = os.Remove(a)
				_ = os.Symlink(b, a)
			case 10:
				_ = os.Remove(a)
				_ = unix.Mkfifo(a, 0o644)
			case 11:
				if changes%50 == 0 {
					_ = exec.Command("tar", "-C", dir, "--unlink-first", "-xf", backup).Run() // directories stay
				}
			}
			time.Sleep(time.Millisecond)
		}
	})
	var right, written, stale, wait atomic.Int64
	last := time.Now().Add(time.Duration(testdisk.Rounds(3, 20)*max(1, files/100_000)) * time.Second)
	latest := last.Add(time.Minute) // on a busy machine, until something was tried
	for c := range 3 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(uint64(c), 3))
			for now := time.Now(); now.Before(last) || (stale.Load() == 0 || written.Load() < 100) && now.Before(latest); now = time.Now() {
				n := known[random.IntN(len(known))]
				use := []inode.Use{inode.UseRead, inode.UseWrite, inode.UseAttr}[random.IntN(3)]
				f, err := o.Open(netip.Addr{}, handles[n], use)
				switch {
				case errors.Is(err, unix.ESTALE):
					stale.Add(1)
					continue
				case errors.Is(err, unix.EAGAIN):
					wait.Add(1)
					continue
				case err != nil:
					t.Errorf("file %d: %v", n, err)
					return
				}
				want := content(n)
				if use != inode.UseAttr {
					b := make([]byte, len(want))
					if _, err := f.ReadAt(b, 0); err != nil || string(b) != want {
						t.Errorf("the handle of file %d leads to %q, %v", n, b, err)
					}
					right.Add(1)
				}
				if use == inode.UseWrite {
					if _, _, err := f.WriteAt([]byte(want), int64(len(want))); err != nil {
						t.Error(err)
					}
					written.Add(1)
				}
				f.Close()
				if random.IntN(20) == 0 {
					forgetOpen(o)
				}
			}
		})
	}
	clients.Wait()
	stop.Store(true)
	hand.Wait()
	checked, twice := 0, 0
	mustDo(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		checked++
		var n int
		_, bad := fmt.Sscanf(string(b), "file %07d", &n)
		switch {
		case bad == nil && string(b) == content(n):
		case bad == nil && handles[n] != nil && string(b) == content(n)+content(n):
			twice++
		default:
			t.Errorf("%s has %q", path, b)
		}
		return err
	}))
	t.Logf("%d files, %d changes on the disk; %d reads of the right files and %d writes to them, %d were told that it is gone, %d to wait; %d walks; %d files checked, of which clients had written %d",
		files, changes, right.Load(), written.Load(), stale.Load(), wait.Load(), o.Table().IndexCounts().Walks, checked, twice)
	if written.Load() == 0 || stale.Load() == 0 || twice == 0 {
		t.Error("nothing was tried")
	}
}
