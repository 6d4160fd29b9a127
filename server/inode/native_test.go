package inode_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
)

// needNative skips where the native engine can't run.
func needNative(t *testing.T) {
	t.Helper()
	if err := disk.ProbeHandles(t.TempDir()); err != nil {
		t.Skipf("the native engine can't run here: %v", err)
	}
}

// openerAt is a volume with an Opener, and the handle of its root.
func openerAt(t *testing.T) (o *inode.Opener, root []byte, dir string) {
	t.Helper()
	needNative(t)
	table, v, dir := volumeAt(t)
	o = inode.NewOpener(table, locate.NewKey(make([]byte, 32)), slog.New(slog.DiscardHandler))
	t.Cleanup(o.Close)
	root = o.Root(v)
	return o, root, dir
}

// handleOf looks a path up from the root.
func handleOf(t *testing.T, o *inode.Opener, root []byte, path string) []byte {
	t.Helper()
	h := root
	for _, name := range strings.Split(path, "/") {
		dir, err := o.Open(netip.Addr{}, h, inode.UseAttr)
		mustDo(t, err)
		child, err := dir.Lookup([]byte(name))
		dir.Close()
		mustDo(t, err)
		h = child.Handle()
		child.Close()
	}
	return h
}

func TestHandlesLastAsLongAsFiles(t *testing.T) {
	o, root, dir := openerAt(t)
	mustDo(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755))
	mustDo(t, os.WriteFile(filepath.Join(dir, "a", "b", "file"), []byte("data"), 0o644))
	h := handleOf(t, o, root, "a/b/file")
	mustDo(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "c")))
	mustDo(t, os.Rename(filepath.Join(dir, "c", "b", "file"), filepath.Join(dir, "moved")))
	f, err := patiently(func() (*inode.File, error) { return o.Open(netip.Addr{}, h, inode.UseAttr) })
	mustDo(t, err)
	f.Close()
	mustDo(t, os.Remove(filepath.Join(dir, "moved")))
	for range 20 { // an inode number may be given again at once
		mustDo(t, os.WriteFile(filepath.Join(dir, "new"), nil, 0o644))
		if f, err := patiently(func() (*inode.File, error) { return o.Open(netip.Addr{}, h, inode.UseAttr) }); !errors.Is(err, unix.ESTALE) {
			t.Fatalf("a removed file: %+v, %v, want ESTALE", f, err)
		}
		if f, err := patiently(func() (*inode.File, error) { return o.Open(netip.Addr{}, h, inode.UseRead) }); !errors.Is(err, unix.ESTALE) {
			t.Fatalf("data of a removed file: %+v, %v, want ESTALE", f, err)
		}
		mustDo(t, os.Remove(filepath.Join(dir, "new")))
	}
	if _, err := o.Open(netip.Addr{}, root[:len(root)-1], inode.UseAttr); !errors.Is(err, locate.ErrBadHandle) {
		t.Errorf("a cut handle: %v", err)
	}
	o.Table().Remove(7)
	if _, err := o.Open(netip.Addr{}, root, inode.UseAttr); !errors.Is(err, unix.ESTALE) {
		t.Errorf("after the end of the export: %v", err)
	}
}

// A directory that was moved out of the volume on the disk has a valid handle.
// It must not lead to what is around its new place.
func TestParentStaysInside(t *testing.T) {
	o, root, dir := openerAt(t)
	outside := t.TempDir()
	mustDo(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755))
	a, b := handleOf(t, o, root, "a"), handleOf(t, o, root, "a/b")
	parent := func(h []byte) ([]byte, error) {
		t.Helper()
		f, err := o.Open(netip.Addr{}, h, inode.UseAttr) // it may be known yet from before
		mustDo(t, err)
		defer f.Close()
		o.ForgetInside()
		p, err := o.Parent(f)
		if err != nil {
			return nil, err
		}
		defer p.Close()
		return p.Handle(), nil
	}
	for _, tt := range []struct{ of, want []byte }{{b, a}, {a, root}, {root, root}} {
		if got, err := parent(tt.of); err != nil || !bytes.Equal(got, tt.want) {
			t.Errorf("parent: %x, %v, want %x", got, err, tt.want)
		}
	}
	mustDo(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(outside, "a")))
	for _, h := range [][]byte{a, b} {
		v, _ := o.Table().ByID(7)
		_, id, err := locate.NewKey(make([]byte, 32)).Parse(h)
		mustDo(t, err)
		o.BelieveInside(v, id)
		if got, err := parent(h); !errors.Is(err, unix.ESTALE) {
			t.Errorf("parent of what was moved out: %x, %v, want ESTALE", got, err)
		}
	}
}

func TestOpenDataOnlyRegular(t *testing.T) {
	o, root, dir := openerAt(t)
	mustDo(t, os.Mkdir(filepath.Join(dir, "dir"), 0o755))
	mustDo(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
	mustDo(t, os.Symlink("file", filepath.Join(dir, "link")))
	for name, want := range map[string]error{"dir": unix.EISDIR, "fifo": unix.EINVAL, "link": unix.EINVAL} {
		h := handleOf(t, o, root, name)
		for _, use := range []inode.Use{inode.UseRead, inode.UseWrite} {
			if f, err := o.Open(netip.Addr{}, h, use); !errors.Is(err, want) {
				t.Errorf("Open(%s, %v): %v, %v, want %v", name, use, f, err, want)
			}
		}
		if f, err := o.Open(netip.Addr{}, h, inode.UseNames); err == nil && name == "dir" {
			f.Close()
		} else if !errors.Is(err, unix.ENOTDIR) {
			t.Errorf("Open(%s) for its names: %v", name, err)
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	mustDo(t, err)
	return len(entries)
}

// Many files are touched with few descriptors.
func TestFileCacheIsBounded(t *testing.T) {
	o, root, dir := openerAt(t)
	const most = 2 * inode.ShardsMax
	o.KeepAtMost(most)
	before := descriptors(t)
	for i := range 500 {
		mustDo(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte(fmt.Sprint(i)), 0o644))
		f, err := o.Open(netip.Addr{}, handleOf(t, o, root, fmt.Sprint(i)), []inode.Use{inode.UseRead, inode.UseWrite}[i%2])
		mustDo(t, err)
		got := make([]byte, 10)
		n, err := f.ReadAt(got, 0)
		if err != nil || string(got[:n]) != fmt.Sprint(i) {
			t.Fatalf("file %d: %q, %v", i, got[:n], err)
		}
		f.Close()
	}
	if grown := descriptors(t) - before; grown > most {
		t.Errorf("%d descriptors are kept, the limit is %d", grown, most)
	}
}

// However many files clients hold open, others stay open between calls, and no more than without them.
func TestHeldFilesTakeNoRoom(t *testing.T) {
	o, root, _ := openerAt(t)
	const most, holds = 4 * inode.ShardsMax, 300
	o.KeepAtMost(most)
	use := func(h []byte) {
		t.Helper()
		f, err := o.Open(netip.Addr{}, h, inode.UseRead)
		mustDo(t, err)
		f.Close()
	}
	file := create(t, o, root, "file")
	before := descriptors(t)
	var held []*inode.Held
	var handles [][]byte
	for i := range holds {
		handles = append(handles, create(t, o, root, fmt.Sprint(i)))
		f, err := o.Open(netip.Addr{}, handles[i], inode.UseWrite)
		mustDo(t, err)
		held = append(held, f.Hold())
		f.Close()
	}
	use(file)
	was := o.CacheCounts().Files
	for range 100 {
		use(file)
	}
	if is := o.CacheCounts().Files; is.Hits != was.Hits+100 || is.Misses != was.Misses {
		t.Errorf("of 100 opens %d find the file open", is.Hits-was.Hits)
	}
	if n := o.CacheCounts().Files.Open; n > most {
		t.Errorf("%d are open that nobody uses, of %d", n, most)
	}
	if grown := descriptors(t) - before; grown < holds || grown > holds+most {
		t.Errorf("%d more descriptors, for %d files that are held and %d others", grown, holds, most)
	}
	for _, h := range held {
		h.Close()
	}
	if n := o.CacheCounts().Files.Open; n > most {
		t.Errorf("%d are open that nobody uses any more, of %d", n, most)
	}
	if grown := descriptors(t) - before; grown > most {
		t.Errorf("%d more descriptors, when nothing is held", grown)
	}
	for _, h := range handles { // each once: the oldest give way
		use(h)
	}
	was = o.CacheCounts().Files
	use(handles[holds-1])
	if is := o.CacheCounts().Files; is.Hits != was.Hits+1 {
		t.Error("the latest is not open any more")
	}
}

// What nobody uses is closed after a while, and at once if it was removed.
func TestFileCacheGivesBack(t *testing.T) {
	t.Parallel() // it waits
	o, root, dir := openerAt(t)
	open := func(name string) *inode.File {
		t.Helper()
		mustDo(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644))
		f, err := o.Open(netip.Addr{}, handleOf(t, o, root, name), inode.UseWrite)
		mustDo(t, err)
		return f
	}
	kept := func() int {
		_, _, n := o.Known(7, disk.FileID{})
		return n
	}
	open("idle").Close()
	removed, inUse := open("removed"), open("in use")
	removed.Close()
	mustDo(t, inNames(t, o, root, func(top *inode.File) error {
		return errors.Join(top.Remove(actas.AsProcess(), "removed"), top.Remove(actas.AsProcess(), "in use"))
	}))
	if n := kept(); n != 1 {
		t.Errorf("%d files are kept, want the idle one", n)
	}
	if _, err := inUse.Stat(); !errors.Is(err, unix.ESTALE) {
		t.Errorf("a removed file in use: %v", err)
	}
	inUse.Close()
	for deadline := time.Now().Add(4 * inode.FilesIdle); kept() > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("an idle file is never closed")
		}
	}
}

func TestFileCacheConcurrent(t *testing.T) {
	o, root, dir := openerAt(t)
	o.KeepAtMost(inode.ShardsMax) // one each
	var handles [][]byte
	for i := range 4 * inode.ShardsMax {
		mustDo(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte(fmt.Sprint(i)), 0o644))
		handles = append(handles, handleOf(t, o, root, fmt.Sprint(i)))
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 300 {
				n := (g + i) % len(handles)
				f, err := o.Open(netip.Addr{}, handles[n], []inode.Use{inode.UseWrite, inode.UseRead, inode.UseRead}[i%3])
				if err != nil {
					t.Error(err)
					return
				}
				var b [10]byte
				if got, err := f.ReadAt(b[:], 0); err != nil || string(b[:got]) != fmt.Sprint(n) {
					t.Errorf("file %d: %q, %v", n, b[:got], err)
				}
				f.Close()
			}
		})
	}
	wg.Wait()
}

func TestListing(t *testing.T) {
	o, root, dir := openerAt(t)
	want := map[string]bool{".": true, "..": true}
	for i := range 300 {
		name := fmt.Sprintf("entry-%d-%s", i, strings.Repeat("x", i%200))
		mustDo(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
		want[name] = true
	}
	top, err := o.Open(netip.Addr{}, root, inode.UseAttr)
	mustDo(t, err)
	defer top.Close()
	seen := map[string]bool{}
	var cookie uint64
	for done := false; !done; {
		l, err := top.List(actas.AsProcess(), cookie, 4096)
		mustDo(t, err)
		for range 7 { // go on from a cookie often
			e, ok, err := l.Next()
			mustDo(t, err)
			if done = !ok; done {
				break
			}
			if seen[string(e.Name)] || !want[string(e.Name)] {
				t.Fatalf("entry %q is seen twice, or is not there", e.Name)
			}
			seen[string(e.Name)] = true
			cookie = e.Cookie
		}
		l.Close()
	}
	if len(seen) != len(want) {
		t.Errorf("%d entries, want %d", len(seen), len(want))
	}
}

// A name that the kernel would take for a path is refused here too, whatever a
// caller has forgotten to check. The paths lead to a directory of the test.
func TestFileTakesNamesOnly(t *testing.T) {
	o, root, dir := openerAt(t)
	outside := t.TempDir()
	bait := filepath.Join(outside, "bait")
	mustDo(t, os.WriteFile(bait, []byte("bait"), 0o644))
	mustDo(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	mustDo(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o644))
	top, err := o.Open(netip.Addr{}, root, inode.UseNames)
	mustDo(t, err)
	defer top.Close()
	file, err := top.Lookup([]byte("file"))
	mustDo(t, err)
	defer file.Close()
	for _, name := range []string{bait, outside + "/new", "sub/new", "../new", "", "..", "new\x00"} {
		_, lookup := top.Lookup([]byte(name))
		_, create := top.Create(actas.AsProcess(), name, 0o644, false)
		_, mkdir := top.Mkdir(actas.AsProcess(), name, 0o755)
		_, symlink := top.Symlink(actas.AsProcess(), "target", name)
		_, mknod := top.Mknod(actas.AsProcess(), name, inode.TypeFIFO, 0o644, 0, 0)
		for call, err := range map[string]error{
			"lookup": lookup, "create": create, "mkdir": mkdir, "symlink": symlink, "mknod": mknod,
			"link": file.Link(actas.AsProcess(), top, name), "remove": top.Remove(actas.AsProcess(), name), "rmdir": top.Rmdir(actas.AsProcess(), name),
			"rename from": renameIn(top, name, "new"), "rename to": renameIn(top, "file", name),
		} {
			if !errors.Is(err, unix.EINVAL) {
				t.Errorf("%s of %q: %v, want EINVAL", call, name, err)
			}
		}
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("outside: %v, %v", entries, err)
	}
}

// A client that the volume is not for gets nothing by a handle it has come by.
func TestClients(t *testing.T) {
	needNative(t)
	dir := t.TempDir()
	table := newTable(t)
	mustDo(t, table.Export(exports.Exported{ID: 1, Path: "/v", Dir: dir, Options: exports.Options{Clients: []netip.Prefix{
		netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64"),
	}}}))
	o := inode.NewOpener(table, locate.NewKey(make([]byte, 32)), slog.New(slog.DiscardHandler))
	defer o.Close()
	v, _ := table.ByID(1)
	root := o.Root(v)
	for client, want := range map[string]error{
		"192.0.2.1": nil, "192.0.3.1": unix.EACCES, "2001:db8::1": nil, "2001:db8:1::1": unix.EACCES, "::ffff:192.0.2.1": unix.EACCES,
	} {
		f, err := o.Open(netip.MustParseAddr(client), root, inode.UseAttr)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", client, err, want)
		}
		if err == nil {
			f.Close()
		}
	}
	if _, err := o.Open(netip.Addr{}, root, inode.UseAttr); !errors.Is(err, unix.EACCES) {
		t.Errorf("an unknown address: %v", err)
	}
}

// A descriptor that is kept for attributes and names does not outlive the file, and
// holds no space.
func TestKeptAttributesEnd(t *testing.T) {
	o, root, dir := openerAt(t)
	mustDo(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o644))
	mustDo(t, os.Mkdir(filepath.Join(dir, "below"), 0o755))
	mustDo(t, os.Mkdir(filepath.Join(dir, "here"), 0o755))
	for name, remove := range map[string]func() error{
		"file": func() error {
			return inNames(t, o, root, func(top *inode.File) error { return top.Remove(actas.AsProcess(), "file") })
		},
		"below": func() error {
			return inNames(t, o, root, func(top *inode.File) error { return top.Rmdir(actas.AsProcess(), "below") })
		},
		"here": func() error { return os.Remove(filepath.Join(dir, "here")) }, // by the side
	} {
		handle := handleOf(t, o, root, name)
		for range 2 {
			f, err := o.Open(netip.Addr{}, handle, inode.UseAttr)
			mustDo(t, err)
			f.Close()
		}
		mustDo(t, remove())
		if f, err := patiently(func() (*inode.File, error) { return o.Open(netip.Addr{}, handle, inode.UseAttr) }); !errors.Is(err, unix.ESTALE) {
			t.Errorf("%s, which is removed: %v, %v", name, f, err)
		}
		volume, id, err := locate.NewKey(make([]byte, 32)).Parse(handle)
		mustDo(t, err)
		if n, _, _ := o.Known(volume, id); n > 0 {
			t.Errorf("%s is removed and known", name)
		}
	}
}

// The attributes of what was just made are known, until it is changed.
func TestLatest(t *testing.T) {
	o, root, _ := openerAt(t)
	dir, err := o.Open(netip.Addr{}, root, inode.UseNames)
	mustDo(t, err)
	defer dir.Close()
	for name, change := range map[string]func(*inode.File) error{
		"nothing": func(*inode.File) error { return nil },
		"Chmod":   func(f *inode.File) error { return f.Chmod(actas.AsProcess(), 0o600) },
		"Chown":   func(f *inode.File) error { return f.Chown(actas.AsProcess(), 1, 1) },
		"Chtimes": func(f *inode.File) error {
			return f.Chtimes(actas.AsProcess(), inode.SetTime{}, inode.SetTime{Set: true, Time: time.Unix(1, 0)})
		},
		"Truncate": func(f *inode.File) error { return f.Truncate(actas.AsProcess(), 100) },
	} {
		for _, withChange := range []bool{false, true} {
			f, err := dir.Create(actas.AsProcess(), fmt.Sprint(name, withChange), 0o644, withChange)
			mustDo(t, err)
			mustDo(t, change(f))
			got, err := f.Latest(withChange)
			mustDo(t, err)
			moved, want, err := f.StatChange()
			mustDo(t, err)
			if withChange {
				want.Change = moved
			}
			if got != want {
				t.Errorf("%s: %+v, want %+v", name, got, want)
			}
			if got.Change != 0 {
				mustDo(t, f.Chmod(actas.AsProcess(), 0o640)) // in the same tick of the kernel's clock, mostly
				if after, _, err := f.StatChange(); after == got.Change || err != nil {
					t.Errorf("%s: the change attribute is %d before and after another change, %v", name, after, err)
				}
			}
			f.Close()
		}
	}
}

// A file that is open for writing is not opened again to be read.
func TestReadThroughWriter(t *testing.T) {
	o, root, _ := openerAt(t)
	dir, err := o.Open(netip.Addr{}, root, inode.UseNames)
	mustDo(t, err)
	defer dir.Close()
	made, err := dir.Create(actas.AsProcess(), "file", 0o644, false)
	mustDo(t, err)
	handle := made.Handle()
	made.Close()
	w, err := o.Open(netip.Addr{}, handle, inode.UseWrite)
	mustDo(t, err)
	defer w.Close()
	_, _, err = w.WriteAt([]byte("data"), 0)
	mustDo(t, err)
	before := o.CacheCounts().Files.Open
	r, err := o.Open(netip.Addr{}, handle, inode.UseRead)
	mustDo(t, err)
	defer r.Close()
	got := make([]byte, 4)
	if n, err := r.ReadAt(got, 0); n != 4 || err != nil || string(got) != "data" {
		t.Errorf("read %q, %v", got[:n], err)
	}
	if after := o.CacheCounts().Files.Open; after != before {
		t.Errorf("%d files are open, were %d", after, before)
	}
}

// Mode and times are set through any descriptor, with O_PATH or without.
func TestSetAttributesThroughAnyDescriptor(t *testing.T) {
	o, root, dir := openerAt(t)
	mustDo(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o644))
	mustDo(t, os.Mkdir(filepath.Join(dir, "dir"), 0o755))
	open := func(name string, use inode.Use) *inode.File {
		f, err := o.Open(netip.Addr{}, handleOf(t, o, root, name), use)
		mustDo(t, err)
		return f
	}
	set := func(what string, f *inode.File) {
		t.Helper()
		defer f.Close()
		then := time.Unix(int64(len(what)), 0)
		mustDo(t, f.Chmod(actas.AsProcess(), 0o700|uint32(len(what))))
		mustDo(t, f.Chtimes(actas.AsProcess(), inode.SetTime{}, inode.SetTime{Set: true, Time: then}))
		a, err := f.Stat()
		mustDo(t, err)
		if a.Mode&0o7777 != 0o700|uint32(len(what)) || !a.Mtime.Equal(then) {
			t.Errorf("%s: mode %o and mtime %v", what, a.Mode, a.Mtime)
		}
	}
	set("a path", open("file", inode.UseAttr))
	set("a directory", open("dir", inode.UseAttr))
	set("names", open("dir", inode.UseNames))
	set("to write", open("file", inode.UseWrite))
	set("what another has open to write", open("file", inode.UseAttr))
	names := open("dir", inode.UseNames)
	defer names.Close()
	lock := inode.LockNames(names, names)
	made, err := names.Create(actas.AsProcess(), "made", 0, false)
	mustDo(t, err)
	mkdir, err := names.Mkdir(actas.AsProcess(), "mkdir", 0)
	mustDo(t, err)
	lock.Unlock()
	set("created", made)
	set("a new directory", mkdir)
}
