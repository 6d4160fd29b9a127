package locate_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/test/leaks"
	"github.com/podnas/podnas/test/testdisk"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// watched is an export that does not end. A walk asks it before it reads a directory.
type watched struct{ asked func() }

func (*watched) Begin() bool { return true }
func (*watched) Done()       {}

func (w *watched) Ending() <-chan struct{} {
	w.asked()
	return nil
}

// indexed is a volume whose files are found by an index, which may take so many bytes; 0: enough.
func indexed(t *testing.T, dir string, bytes int, calls locate.Calls) *locate.Volume {
	t.Helper()
	if err := locate.ProbeIndex(dir); err != nil {
		t.Skip(err)
	}
	root, err := os.Open(dir)
	must(t, err)
	t.Cleanup(func() { _ = root.Close() })
	var indexes locate.Indexes
	indexes.SetUp(bytes, slog.New(slog.DiscardHandler))
	on, v := disk.Of(root), new(locate.Volume)
	must(t, v.SetUp(calls, locate.Config{ID: 7, Path: "/v", Root: root, FS: &on}, &indexes, locate.FormInode, true))
	t.Cleanup(v.Close)
	return v
}

// longName is a name of 250 bytes, which begins with a word and a number.
func longName(word string, i int) string {
	name := fmt.Sprintf("%s-%d-", word, i)
	return name + strings.Repeat("n", 250-len(name))
}

// wide is how many directories of such names are more than a walk holds.
const wide = 1500

// Of a directory with twice as many directories as another a walk holds as much.
func TestWalkOfWideDirectory(t *testing.T) {
	for _, dirs := range []int{wide, 2 * wide} {
		dir := t.TempDir()
		for i := range dirs {
			must(t, os.Mkdir(filepath.Join(dir, longName("sub", i)), 0o755))
		}
		before, most, asked := 0, 0, 0
		calls := &watched{asked: func() {
			if asked++; asked%100 == 2 {
				most = max(most, leaks.LiveHeap()-before)
			}
		}}
		v := indexed(t, dir, 1, calls)
		x := v.Index()
		x.WalkOnce() // the index has as many names as it may have
		asked, most, before = 0, 0, leaks.LiveHeap()
		x.WalkOnce()
		if asked < dirs {
			t.Errorf("%d directories were walked, there are %d", asked, dirs)
		}
		if most == 0 || most > 256<<10 {
			t.Errorf("%d bytes are held of %d directories", most, dirs)
		}
	}
}

// So it is with very wide directories each in the one before, of which only the next subdirectory is held at last.
func TestWalkOfWideDirectories(t *testing.T) {
	const levels, each = 30, 20
	dir, all := t.TempDir(), wide
	for i := range wide {
		must(t, os.Mkdir(filepath.Join(dir, longName("sub", i)), 0o755))
	}
	for at := dir; all < wide+levels*(1+each); all += 1 + each {
		at = filepath.Join(at, "z")
		must(t, os.Mkdir(at, 0o755), os.WriteFile(filepath.Join(at, "file"), nil, 0o600))
		for i := range each {
			must(t, os.Mkdir(filepath.Join(at, longName("deep", i)), 0o755))
		}
	}
	v := indexed(t, dir, 0, &watched{asked: func() {}})
	v.Index().WalkOnce()
	var counts locate.IndexCounts
	if counts.Add(v); counts.Names != all+levels || !v.Index().Complete() {
		t.Errorf("the index has %d names, complete: %v, want %d", counts.Names, v.Index().Complete(), all+levels)
	}
}

// While a walk comes back to a very wide directory again and again, clients rename, make and remove directories there. The index has
// all files after it.
func TestWalkOfWideDirectoryInUse(t *testing.T) {
	testdisk.Each(t, func(t *testing.T, on string) {
		dir := filepath.Join(on, "volume")
		for i := range wide / 3 {
			must(t, os.MkdirAll(filepath.Join(dir, longName("kept", i), "below"), 0o755),
				os.MkdirAll(filepath.Join(dir, longName("renamed", i), "below"), 0o755), os.Mkdir(filepath.Join(dir, longName("removed", i)), 0o755))
		}
		n := 0
		calls := &watched{asked: func() {}}
		v := indexed(t, dir, 0, calls)
		root := int(v.Root.Fd())
		var st unix.Stat_t
		must(t, unix.Fstat(root, &st))
		idOf := func(name string) disk.FileID {
			id, err := v.Identify(root, []byte(name))
			must(t, err)
			return id
		}
		calls.asked = func() {
			if n >= wide/3 {
				return
			}
			// As the server does for clients.
			old, other, removed, made := longName("renamed", n), longName("other", n), longName("removed", n), longName("made", n)
			n++
			id, gone := idOf(old), idOf(removed)
			c := v.ChangeNames()
			must(t, os.Rename(filepath.Join(dir, old), filepath.Join(dir, other)))
			c.Renamed(st.Ino, old, root, st.Ino, other, &id)
			c.End()
			c = v.ChangeNames()
			must(t, os.Remove(filepath.Join(dir, removed)))
			c.Unlinked(st.Ino, removed, &gone)
			c.End()
			see := v.Observe()
			must(t, os.Mkdir(filepath.Join(dir, made), 0o755))
			id = idOf(made)
			see.Saw(root, st.Ino, []byte(made), v.FS.NumberIn(&id), true)
		}
		x := v.Index()
		x.WalkOnce()
		if n != wide/3 {
			t.Fatalf("%d of each were changed, want %d", n, wide/3)
		}
		if !x.Complete() {
			t.Error("the index is not complete")
		}
		if x.WalkOnce(); !x.Complete() {
			t.Error("the second walk has found something else")
		}
		for i := range wide / 3 {
			for _, name := range []string{longName("kept", i), longName("kept", i) + "/below", longName("other", i), longName("other", i) + "/below", longName("made", i)} {
				d, err := x.Open(idOf(name), unix.O_PATH)
				if err != nil {
					t.Errorf("%d, %s...: %v", i, name[:5], err)
				}
				d.Close()
			}
		}
	})
}
