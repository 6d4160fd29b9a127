package snapshot_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/tree"
	"github.com/podnas/podnas/server/snapshot"
	"github.com/podnas/podnas/test/leaks"
	"github.com/podnas/podnas/test/testdisk"
)

// long is the end of a long name.
var long = strings.Repeat("x", 240)

// chain makes directories, each in the one before, in a new one. do is called in each, with a descriptor.
func chain(t *testing.T, root string, levels int, do func(level, fd int)) {
	t.Helper()
	mustDo(t, os.Mkdir(root, 0o755))
	fd, err := unix.Open(root, unix.O_RDONLY, 0)
	mustDo(t, err)
	for i := range levels {
		do(i, fd)
		mustDo(t, unix.Mkdirat(fd, "d"+long, 0o755))
		next, err := unix.Openat(fd, "d"+long, unix.O_RDONLY, 0)
		mustDo(t, err)
		mustDo(t, unix.Close(fd))
		fd = next
	}
	do(levels, fd)
	mustDo(t, unix.Close(fd))
}

// touch makes an empty file.
func touch(t *testing.T, dir int, name string) {
	t.Helper()
	fd, err := unix.Openat(dir, name, unix.O_CREAT|unix.O_WRONLY, 0o600)
	mustDo(t, err)
	mustDo(t, unix.Close(fd))
}

// A deep tree takes memory by its depth, and few descriptors. Paths that nobody could use are shortened.
func TestDiffDeep(t *testing.T) {
	const levels, most, mostOpen = 1500, 1 << 10, 6
	on := testdisk.OneXFS(t)
	empty, one, other := filepath.Join(on, "empty"), filepath.Join(on, "one"), filepath.Join(on, "other")
	mustDo(t, os.Mkdir(empty, 0o755))
	chain(t, one, levels, func(int, int) {})
	chain(t, other, levels, func(level, fd int) {
		if level == levels {
			touch(t, fd, "bottom")
		}
	})
	for _, c := range []struct {
		name, a, b string
		want       int
	}{
		{"both", one, other, 1},
		{"added", empty, other, levels + 1},
		{"removed", other, empty, levels + 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			heap, open := leaks.LiveHeap(), openFiles(t)
			n, last := 0, ""
			mustDo(t, snapshot.Diff(t.Context(), &snapshot.Earlier{Tree: c.a}, &snapshot.Earlier{Tree: c.b}, false, func(c *snapshot.Change) error {
				n++
				last = c.Path
				if !strings.HasSuffix(c.Path, "/bottom") {
					return nil
				}
				if held := leaks.LiveHeap() - heap; held > levels*most {
					t.Errorf("%d bytes at the bottom of %d directories, want at most %d", held, levels, levels*most)
				}
				if files := openFiles(t) - open; files > mostOpen {
					t.Errorf("%d files are open, want at most %d", files, mostOpen)
				}
				return nil
			}))
			if n != c.want || !strings.HasPrefix(last, ".../d") || len(last) > 17<<10 {
				t.Errorf("%d changes, want %d, the last one is %.20q of %d bytes", n, c.want, last, len(last))
			}
		})
	}
}

// What is deeper than a copy may be can't be compared: the way takes memory.
func TestDiffTooDeep(t *testing.T) {
	testdisk.OnlyCI(t)
	on := testdisk.OneXFS(t)
	empty, deep := filepath.Join(on, "empty"), filepath.Join(on, "deep")
	mustDo(t, os.Mkdir(empty, 0o755))
	chain(t, deep, 64<<10, func(int, int) {})
	err := snapshot.Diff(t.Context(), &snapshot.Earlier{Tree: deep}, &snapshot.Earlier{Tree: empty}, false, func(*snapshot.Change) error { return nil })
	if !errors.Is(err, tree.ErrTooDeep) {
		t.Errorf("%v", err)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	mustDo(t, err)
	return len(all)
}

// grow makes directories, each in the one before, with an empty file of many names: half of them before and half after the
// directory, in order. It returns the names, without the one that is lacking.
func grow(t *testing.T, root string, levels, names, lacking int) (made []string) {
	t.Helper()
	for i := range names {
		if i != lacking {
			made = append(made, fmt.Sprintf("%c%05d%s", "ce"[i*2/names], i, long))
		}
	}
	chain(t, root, levels-1, func(_, fd int) {
		touch(t, fd, made[0])
		for _, name := range made[1:] {
			mustDo(t, unix.Linkat(fd, made[0], fd, name, 0))
		}
	})
	return made
}

// A directory with more names than are read at a time is compared name by name all the same.
func TestDiffWide(t *testing.T) {
	on := testdisk.Memory(t)
	one, other := filepath.Join(on, "one"), filepath.Join(on, "other")
	const names = 9000
	grow(t, one, 1, names, 3)
	grow(t, other, 1, names, names-3)
	var missing []string
	mustDo(t, snapshot.Diff(t.Context(), &snapshot.Earlier{Tree: one}, &snapshot.Earlier{Tree: other}, false, func(c *snapshot.Change) error {
		if c.Kind != snapshot.Changed { // as the times of the two files
			missing = append(missing, fmt.Sprint(c.Kind, " ", strings.TrimRight(c.Path, "x")))
		}
		return nil
	}))
	if want := []string{"added c00003", "removed e08997"}; !slices.Equal(missing, want) {
		t.Errorf("%q, want %q", missing, want)
	}
}

// Many such directories in each other take no more memory: names are read again on the way back, and none is lost.
func TestDiffWideAndDeep(t *testing.T) {
	testdisk.OnlyCI(t)
	on := testdisk.Memory(t)
	const levels, names = 18, 8000
	empty, deep := filepath.Join(on, "empty"), filepath.Join(on, "deep")
	mustDo(t, os.Mkdir(empty, 0o755))
	made := grow(t, deep, levels, names, -1)
	var want []string
	at := ""
	for i := range levels {
		if i > 0 {
			at += "d" + long + "/"
			want = append(want, at)
		}
		for _, name := range made[:names/2] {
			want = append(want, at+name)
		}
	}
	for range levels {
		for _, name := range made[names/2:] {
			want = append(want, at+name)
		}
		at = strings.TrimSuffix(at, "d"+long+"/")
	}
	const most = 40 << 20
	heap, n := leaks.LiveHeap(), 0
	mustDo(t, snapshot.Diff(t.Context(), &snapshot.Earlier{Tree: empty}, &snapshot.Earlier{Tree: deep}, false, func(c *snapshot.Change) error {
		if c.Kind != snapshot.Added || n >= len(want) || c.Path != want[n] {
			return fmt.Errorf("change %d: %s %q", n, c.Kind, c.Path)
		}
		if n++; n%(len(want)/8) == 0 {
			if held := leaks.LiveHeap() - heap; held > most {
				t.Errorf("%d bytes after %d changes, want at most %d", held, n, most)
			}
		}
		return nil
	}))
	if n != len(want) {
		t.Errorf("%d changes, want %d", n, len(want))
	}
}

// Holes of large files are not read: that would take hours here.
func TestDiffSparse(t *testing.T) {
	on := testdisk.OneXFS(t)
	const size, middle = 4 << 40, 1<<40 + 12345
	var files []*os.File
	for _, dir := range []string{"one", "other"} {
		mustDo(t, os.Mkdir(filepath.Join(on, dir), 0o755))
		f, err := os.Create(filepath.Join(on, dir, "f"))
		mustDo(t, err)
		t.Cleanup(func() { _ = f.Close() })
		mustDo(t, f.Truncate(size))
		files = append(files, f)
	}
	same := func() bool {
		t.Helper()
		for _, f := range files {
			mustDo(t, os.Chtimes(f.Name(), time.Unix(1, 0), time.Unix(1, 0)))
		}
		lines := diff(t, &snapshot.Earlier{Tree: filepath.Join(on, "one")}, &snapshot.Earlier{Tree: filepath.Join(on, "other")}, false)
		if len(lines) > 0 && !slices.Equal(lines, []string{"changed f content"}) {
			t.Errorf("%q", lines)
		}
		return len(lines) == 0
	}
	write := func(f *os.File, data string, at int64) {
		t.Helper()
		_, err := f.WriteAt([]byte(data), at)
		mustDo(t, err)
	}
	if !same() {
		t.Error("without data they differ")
	}
	write(files[0], "\x00", middle)
	if !same() {
		t.Error("with zeros in one, and a hole in the other, they differ")
	}
	write(files[1], "x", middle)
	if same() {
		t.Error("with other data they are the same")
	}
	write(files[0], "x", middle)
	write(files[0], "x", size-1)
	if same() {
		t.Error("with other data at the end they are the same")
	}
	write(files[1], "x", size-1)
	if !same() {
		t.Error("with the same data they differ")
	}
}
