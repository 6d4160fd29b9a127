package tree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/test/testdisk"
)

func TestInodes(t *testing.T) {
	s := Inodes{}
	for _, n := range []uint64{0, 1, 63, 64, 511, 512, 1 << 40, ^uint64(0)} {
		if s.Has(n) {
			t.Errorf("it has %d before", n)
		}
		s.Add(n)
		if !s.Has(n) {
			t.Errorf("it lacks %d", n)
		}
	}
	for _, n := range []uint64{2, 62, 65, 513, 1<<40 + 1} {
		if s.Has(n) {
			t.Errorf("it has %d", n)
		}
	}
}

// A copy of files that have names in other trees has as many names as in its source, and keeps none of them in the hub.
func TestCopyOfShared(t *testing.T) {
	top := t.TempDir()
	from, other, to := filepath.Join(top, "from"), filepath.Join(top, "other"), filepath.Join(top, "to")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{from, other, to, filepath.Join(from, "dir")} {
		must(os.Mkdir(dir, 0o755))
	}
	for i := range 10 {
		name := filepath.Join(from, fmt.Sprint(i))
		must(os.WriteFile(name, []byte("content"), 0o644))
		must(os.Link(name, filepath.Join(other, fmt.Sprint(i))))
	}
	must(os.WriteFile(filepath.Join(from, "alone"), nil, 0o644))
	must(os.Link(filepath.Join(from, "5"), filepath.Join(from, "dir", "second name")))
	source, err := os.Open(from)
	must(err)
	defer source.Close()
	target, err := os.Open(to)
	must(err)
	defer target.Close()
	several, err := WithSeveralNames(t.Context(), source)
	must(err)
	links := func(dir, name string) (ino, n uint64) {
		info, err := os.Stat(filepath.Join(dir, name))
		must(err)
		st := info.Sys().(*syscall.Stat_t)
		return st.Ino, uint64(st.Nlink) //nolint:unconvert // 32 bits on arm64
	}
	c := Copy{Shared: true}
	must(c.Run(t.Context(), source, target))
	for i := range 10 {
		ino, _ := links(from, fmt.Sprint(i))
		_, n := links(to, fmt.Sprint(i))
		want := uint64(1)
		if i == 5 {
			want = 2
		}
		if n != want || several.Has(ino) != (want == 2) {
			t.Errorf("file %d has %d names, want %d; several: %v", i, n, want, several.Has(ino))
		}
	}
	one, _ := links(to, "5")
	if two, _ := links(to, "dir/second name"); one != two || c.Files.Load() != 13 {
		t.Errorf("the file with two names is two; %d files", c.Files.Load())
	}
}

// What a copy refuses is not looked through either: the way takes memory.
func TestWithSeveralNamesTooDeep(t *testing.T) {
	testdisk.OnlyCI(t)
	root := open(t, testdisk.OneXFS(t))
	at := root
	for range deepest {
		must(t, unix.Mkdirat(int(at.Fd()), "d", 0o755))
		below, err := openDir(at, "d")
		must(t, err)
		if at != root {
			must(t, at.Close())
		}
		at = below
	}
	must(t, at.Close())
	if _, err := WithSeveralNames(t.Context(), root); !errors.Is(err, ErrTooDeep) {
		t.Errorf("the error is %v, want ErrTooDeep", err)
	}
}
