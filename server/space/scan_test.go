package space_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/space"
)

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	mustDo(t, err)
	return len(entries)
}

// uncounted is the account of a directory, whose scan has not begun.
func uncounted(t *testing.T, dir string) (*space.Account, *os.File) {
	t.Helper()
	root, err := os.Open(dir)
	mustDo(t, err)
	t.Cleanup(func() { _ = root.Close() })
	a := space.NewAccount(quota.Limit{Bytes: 1 << 40})
	a.Attach(root, func(int, string) string { return "" })
	return a, root
}

func quietPass(a *space.Account, ending <-chan struct{}) *space.Pass {
	return space.NewPass(a, ending, slog.New(slog.DiscardHandler))
}

// wantCounted compares an account with what du finds.
func wantCounted(t *testing.T, a *space.Account, dir string) {
	t.Helper()
	u := a.Usage()
	if bytes, inodes := du(t, dir); u.Bytes != bytes || u.Inodes != inodes {
		t.Errorf("counted are %d bytes in %d inodes, du finds %d in %d", u.Bytes, u.Inodes, bytes, inodes)
	}
}

// A tree is counted however deep it is, with two descriptors.
func TestScanDeep(t *testing.T) {
	const levels = 300
	dir := t.TempDir()
	name := strings.Repeat("d", 200) // the whole path is far longer than PATH_MAX
	at, err := os.OpenRoot(dir)
	mustDo(t, err)
	for range levels {
		for _, child := range []string{name, "beside", "after"} { // some are entered before the deep one, some after
			mustDo(t, at.Mkdir(child, 0o755))
			mustDo(t, at.WriteFile(filepath.Join(child, "file"), []byte("text"), 0o600))
		}
		next, err := at.OpenRoot(name)
		mustDo(t, err)
		mustDo(t, at.Close())
		at = next
	}
	mustDo(t, at.WriteFile("bottom", make([]byte, 100_000), 0o600))
	mustDo(t, at.Close())

	a, root := uncounted(t, dir)
	s := quietPass(a, nil)
	defer s.Close()
	mustDo(t, s.Begin(root))
	before, most, deepest := descriptors(t), 0, 0
	for s.Depth() > 0 {
		mustDo(t, s.Step())
		most, deepest = max(most, descriptors(t)), max(deepest, s.Depth())
	}
	if deepest != levels+1 {
		t.Errorf("it went %d directories deep, want %d", deepest, levels+1)
	}
	if most > before+1 {
		t.Errorf("%d descriptors were open, %d at the beginning", most, before)
	}
	bytes, inodes := du(t, dir)
	if u := a.Usage(); u.Bytes != bytes || u.Inodes != inodes || inodes != 1+levels*6+1 {
		t.Errorf("counted are %d bytes in %d inodes, there are %d in %d", u.Bytes, u.Inodes, bytes, inodes)
	}
}

// du walks a directory as du(1) does, of any depth. No file may have several names.
func du(t *testing.T, dir string) (bytes, inodes int64) {
	t.Helper()
	root, err := os.Open(dir)
	mustDo(t, err)
	price := space.PricesOf(root).Inode
	var walk func(d *os.File)
	walk = func(d *os.File) {
		defer d.Close()
		var st unix.Stat_t
		mustDo(t, unix.Fstat(int(d.Fd()), &st))
		bytes, inodes = bytes+st.Blocks*512+price, inodes+1
		names, err := d.Readdirnames(-1)
		mustDo(t, err)
		for _, name := range names {
			mustDo(t, unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW))
			if st.Mode&unix.S_IFMT != unix.S_IFDIR {
				bytes, inodes = bytes+st.Blocks*512+price, inodes+1
				continue
			}
			fd, err := unix.Openat(int(d.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
			mustDo(t, err)
			walk(os.NewFile(uintptr(fd), name))
		}
	}
	walk(root)
	return bytes, inodes
}

// What clients move while a volume is counted, from where the scan has not been to
// where it has been, is counted all the same.
func TestMovedWhileCounted(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"a", "b", "c"} {
		for _, sub := range []string{"x", "y"} {
			mustDo(t, os.MkdirAll(filepath.Join(dir, d, d+sub), 0o755))
			for i := range 3 {
				mustDo(t, os.WriteFile(filepath.Join(dir, d, d+sub, fmt.Sprint(i)), make([]byte, 5000), 0o600))
			}
		}
		mustDo(t, os.WriteFile(filepath.Join(dir, d, d+"-file"), make([]byte, 50_000), 0o600))
	}
	a, root := uncounted(t, dir)
	s := quietPass(a, nil)
	defer s.Close()
	mustDo(t, s.Begin(root))
	mustDo(t, s.Step())
	done := s.Path(".")
	var others []string
	for _, d := range []string{"a", "b", "c"} {
		if d != done {
			others = append(others, d)
		}
	}
	rename := func(name, to, newName string) {
		mustDo(t, os.Rename(filepath.Join(dir, name), filepath.Join(dir, to, newName)))
		d, err := os.Open(filepath.Join(dir, to))
		mustDo(t, err)
		defer d.Close()
		a.Renamed(int(d.Fd()), newName)
	}
	before := a.Usage().Inodes
	rename(filepath.Join(others[0], others[0]+"-file"), done, "moved-file")
	if n := a.Usage().Inodes; n != before+1 {
		t.Errorf("%d inodes are counted after a file was moved, %d before", n, before)
	}
	if a.IsCountedAgain() {
		t.Error("for a file all is counted once more")
	}
	rename(filepath.Join(others[0], others[0]+"x"), done, "moved-directory")
	// The one that the scan is in goes too, so that there is no way back.
	for s.Depth() != 3 {
		mustDo(t, s.Step())
	}
	in, below, _ := strings.Cut(s.Path("."), "/")
	elsewhere := others[0]
	if in == elsewhere {
		elsewhere = others[1]
	}
	rename(filepath.Join(in, below), elsewhere, "moved-while-in-it")
	for s.Depth() > 0 {
		mustDo(t, s.Step())
	}
	if !a.IsCountedAgain() {
		t.Error("directories were moved, and nothing would look for them")
	}
	mustDo(t, quietPass(a, nil).Run(root))
	wantCounted(t, a, dir)
	// Nothing is counted twice.
	mustDo(t, quietPass(a, nil).Run(root))
	wantCounted(t, a, dir)
}

// Very many directories in one are counted, each once, though the scan comes back to that one again and again while
// clients rename and make directories there.
func TestScanWide(t *testing.T) {
	const dirs = 1500
	dir, pad := t.TempDir(), strings.Repeat("n", 240)
	for i := range dirs {
		sub := filepath.Join(dir, fmt.Sprint(i, pad))
		mustDo(t, os.Mkdir(sub, 0o755))
		if i%10 == 0 {
			mustDo(t, os.WriteFile(filepath.Join(sub, "file"), make([]byte, 5000), 0o600))
		}
	}
	a, root := uncounted(t, dir)
	s := quietPass(a, nil)
	defer s.Close()
	var st unix.Stat_t
	mustDo(t, unix.Fstat(int(root.Fd()), &st))
	c := a.Enter(disk.InodeOf(&st))
	defer c.Leave("")
	mustDo(t, s.Begin(root))
	for n := 0; s.Depth() > 0; n++ {
		mustDo(t, s.Step())
		if n%20 == 0 && n < dirs {
			mustDo(t, os.Rename(filepath.Join(dir, fmt.Sprint(n, pad)), filepath.Join(dir, fmt.Sprint("other", n, pad))))
			a.Renamed(int(root.Fd()), fmt.Sprint("other", n, pad))
			mustDo(t, c.Stat(int(root.Fd()), &st, false)) // which may have grown
		}
	}
	if !a.IsCountedAgain() {
		t.Error("directories were moved, and nothing would look for them")
	}
	mustDo(t, quietPass(a, nil).Run(root))
	wantCounted(t, a, dir)
}

// A scan ends with its export.
func TestScanEndsWithExport(t *testing.T) {
	dir := t.TempDir()
	for i := range 30 {
		mustDo(t, os.MkdirAll(filepath.Join(dir, fmt.Sprint(i), "sub"), 0o755))
	}
	a, root := uncounted(t, dir)
	ending := make(chan struct{})
	s := quietPass(a, ending)
	defer s.Close()
	mustDo(t, s.Begin(root))
	close(ending)
	if err := s.Step(); !errors.Is(err, space.ErrEnding) {
		t.Errorf("%v, want the end", err)
	}
	// It is not taken for complete.
	if a.Scan(root, ending, slog.New(slog.DiscardHandler)); !a.Usage().Partial {
		t.Error("what was not counted to its end is complete")
	}
}
