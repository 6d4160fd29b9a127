package tree

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/test/leaks"
	"github.com/podnas/podnas/test/testdisk"
)

// longName is a name of 250 bytes, which begins with a word and a number.
func longName(word string, i int) string {
	name := fmt.Sprintf("%s-%d-", word, i)
	return name + strings.Repeat("n", 250-len(name))
}

// wide is how many long names take more than a Walker holds.
const wide = 2 * belowMax / 250

// makeWide makes a directory with so many directories.
func makeWide(t *testing.T, dir string, dirs int) {
	t.Helper()
	for i := range dirs {
		must(t, os.MkdirAll(filepath.Join(dir, longName("sub", i)), 0o755))
	}
}

// heldBy is what a Walker holds of the names of subdirectories.
func heldBy(t *testing.T, w *Walker) (bytes int) {
	t.Helper()
	for _, s := range w.at.way {
		bytes += cap(s.below)
	}
	if bytes != w.held {
		t.Fatalf("%d bytes of names are held, and %d are counted", bytes, w.held)
	}
	return bytes
}

// A Walker enters each of very many directories in one once, and holds few of their names. That is so for many such
// directories, each in the one before, too: then it holds the name of the next one.
func TestWalkWide(t *testing.T) {
	const levels = 20
	root := tempDir(t)
	makeWide(t, root, wide)
	at := root
	for range levels {
		at = filepath.Join(at, "z")
		must(t, os.Mkdir(at, 0o755))
		for i := range 5 {
			must(t, os.Mkdir(filepath.Join(at, longName("deep", i)), 0o755))
		}
	}
	entered, most := map[inode]int{}, 0
	w := Walker{Name: isDir, Enter: func(_ string, _ *os.File, st *unix.Statx_t) error { entered[inodeOf(st)]++; return nil }}
	must(t, w.Begin(open(t, root)))
	defer w.Close()
	for w.Depth() > 0 {
		must(t, w.Step())
		most = max(most, heldBy(t, &w))
	}
	if want := 1 + wide + 6*levels; len(entered) != want {
		t.Errorf("%d directories were entered, want %d", len(entered), want)
	}
	for i, n := range entered {
		if n != 1 {
			t.Errorf("inode %d was entered %d times", i.number, n)
		}
	}
	if most < belowMax/4 || most > belowMax+levels*512 {
		t.Errorf("%d bytes of names were held, want at most %d", most, belowMax)
	}
}

// Of a directory with twice as many directories as another a Walker holds as much.
func TestWalkWideMemory(t *testing.T) {
	for _, dirs := range []int{wide, 2 * wide} {
		root := tempDir(t)
		makeWide(t, root, dirs)
		at := open(t, root)
		before, held := leaks.LiveHeap(), 0
		w := Walker{Name: isDir}
		w.Enter = func(string, *os.File, *unix.Statx_t) error {
			if w.Depth() == 2 && held == 0 {
				held = leaks.LiveHeap() - before
			}
			return nil
		}
		must(t, w.Run(at))
		if held < belowMax/4 || held > belowMax+64<<10 {
			t.Errorf("%d bytes are held of %d directories, want at most %d", held, dirs, belowMax)
		}
	}
}

// Where two names have one offset, as those with one hash on ext4, the walk does not stop between them: it would come back to
// the first one.
func TestWalkSameOffset(t *testing.T) {
	var dirents []byte
	for _, d := range []struct {
		name string
		next uint64
	}{{"a", 7}, {"b", 7}, {"c", 7}, {"d", 9}, {"e", 11}} {
		b := make([]byte, 24)
		binary.NativeEndian.PutUint64(b[8:], d.next)
		binary.NativeEndian.PutUint16(b[16:], uint16(len(b)))
		copy(b[19:], d.name)
		dirents = append(dirents, b...)
	}
	w := Walker{Name: func(*os.File, string) (bool, error) { return true, nil }}
	for _, tt := range []struct {
		from  int64
		names int
	}{{5, 1}, {7, 4}} {
		s := step{offset: tt.from}
		names, full, err := w.readBatch(&s, dirents, 0)
		if names != tt.names || !full || err != nil {
			t.Errorf("from %d: %d names, full: %v, %v, want %d", tt.from, names, full, err, tt.names)
		}
	}
}

// While a walk is in a directory with very many others, and comes back to it again and again, clients add, rename and remove
// directories there. It sees those that are left alone once.
func TestWalkWideInUse(t *testing.T) {
	testdisk.Each(t, func(t *testing.T, disk string) {
		root := filepath.Join(disk, "root")
		for _, word := range []string{"kept", "renamed", "removed"} {
			for i := range wide / 2 {
				must(t, os.MkdirAll(filepath.Join(root, longName(word, i)), 0o755))
			}
		}
		named, entered, n := map[string]int{}, map[string]int{}, 0
		w := Walker{Name: func(dir *os.File, name string) (bool, error) {
			named[name]++
			return isDir(dir, name)
		}}
		w.Enter = func(name string, _ *os.File, _ *unix.Statx_t) error {
			if entered[name]++; name == "." {
				return nil
			}
			for ; n < 2*len(entered) && n < wide/2; n++ {
				must(t, os.Remove(filepath.Join(root, longName("removed", n))), os.Mkdir(filepath.Join(root, longName("new", n)), 0o755),
					os.Rename(filepath.Join(root, longName("renamed", n)), filepath.Join(root, longName("other", n))))
			}
			return nil
		}
		must(t, w.Run(open(t, root)))
		if n != wide/2 {
			t.Fatalf("%d of each were changed, want %d", n, wide/2)
		}
		for i := range wide / 2 {
			name := longName("kept", i)
			if named[name] != 1 || entered[name] != 1 {
				t.Errorf("%s... was named %d times and entered %d times", name[:10], named[name], entered[name])
			}
		}
	})
}

// A directory with very many others is moved while the walk is below: it reads on in it, or, if there is no way back, with
// what is beside it.
func TestWalkWideMoved(t *testing.T) {
	for _, tt := range []struct {
		name string
		move []string // each from here to there
		all  bool     // are entered
	}{
		{"it", []string{"wide", "moved"}, true},
		{"what the walk is in", []string{"wide/*", "moved"}, true},
		{"both", []string{"wide/*", "elsewhere", "wide", "moved"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := tempDir(t)
			makeWide(t, filepath.Join(root, "wide"), wide)
			must(t, os.MkdirAll(filepath.Join(root, "beside/below"), 0o755))
			var entered []string
			lost := 0
			w := Walker{Name: isDir, Lost: func() { lost++ }}
			w.Enter = func(name string, _ *os.File, _ *unix.Statx_t) error {
				entered = append(entered, name)
				if w.Depth() != 3 || !strings.HasPrefix(name, "sub-") || len(tt.move) == 0 {
					return nil
				}
				for i := 0; i < len(tt.move); i += 2 {
					must(t, os.Rename(filepath.Join(root, strings.Replace(tt.move[i], "*", name, 1)), filepath.Join(root, tt.move[i+1])))
				}
				tt.move = nil
				return nil
			}
			must(t, w.Run(open(t, root)))
			if heldBy(t, &w) != 0 {
				t.Error("names are held after the walk")
			}
			subs := 0
			for _, name := range entered {
				if strings.HasPrefix(name, "sub-") {
					subs++
				}
			}
			if (subs >= wide) != tt.all || (lost == 0) != tt.all {
				t.Errorf("%d of %d were entered, lost %d times, want all: %v", subs, wide, lost, tt.all)
			}
			if !slices.Contains(entered, "beside") {
				t.Error("what is beside it was not entered")
			}
		})
	}
}

// Very many directories in one are emptied and copied.
func TestEmptyWide(t *testing.T) {
	dir := tempDir(t)
	makeWide(t, dir, wide)
	for i := range wide {
		must(t, os.WriteFile(filepath.Join(dir, longName("sub", i), "file"), nil, 0o644))
	}
	makeWide(t, filepath.Join(dir, "second"), wide)
	if n, err := Empty(t.Context(), open(t, dir)); err != nil || n != 1+3*wide {
		t.Errorf("removed %d of %d, %v", n, 1+3*wide, err)
	}
	if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A copy of very many directories in one is complete, whatever is renamed beside them meanwhile.
func TestCopyWide(t *testing.T) {
	from, to := tempDir(t), tempDir(t)
	makeWide(t, from, wide)
	for i := range 10 {
		must(t, os.MkdirAll(filepath.Join(from, fmt.Sprint("renamed", i), "below"), 0o755))
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			old, other := filepath.Join(from, fmt.Sprint("renamed", i%10)), filepath.Join(from, fmt.Sprint("other", i%10))
			if i/10%2 == 1 {
				old, other = other, old
			}
			if err := os.Rename(old, other); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	copyTree(t, from, to)
	close(stop)
	<-stopped
	for i := range wide {
		if _, err := os.Stat(filepath.Join(to, longName("sub", i))); err != nil {
			t.Error(err)
		}
	}
	copyTree(t, from, to) // which removes those of names of before
	same(t, from, to)
}
