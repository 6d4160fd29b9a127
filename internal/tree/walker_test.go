package tree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// isDir is the Name of a Walker for tests.
func isDir(dir *os.File, name string) (bool, error) {
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR, err
}

// A directory may be removed at any moment of a walk: before it is entered, before it
// is read, while it is read, or while the walk is below.
func TestWalkVanishing(t *testing.T) {
	for _, at := range []string{"before it is entered", "before it is read", "while it is read", "while the walk is below"} {
		t.Run(at, func(t *testing.T) {
			root := tempDir(t)
			gone := filepath.Join(root, "1")
			for i := range 3 {
				must(t, os.MkdirAll(filepath.Join(root, fmt.Sprint(i), "below"), 0o755))
			}
			var entered []string
			var w Walker
			remove := func(when bool) {
				if when {
					must(t, os.RemoveAll(gone))
				}
			}
			w.Name = func(dir *os.File, name string) (bool, error) {
				enter, err := isDir(dir, name)
				remove(at == "before it is entered" && w.Path(name) == "1" || at == "while it is read" && w.Path(name) == "1/below")
				return enter, err
			}
			w.Enter = func(_ string, _ *os.File, _ *unix.Statx_t) error {
				entered = append(entered, w.Path("."))
				remove(at == "before it is read" && w.Path(".") == "1" || at == "while the walk is below" && w.Path(".") == "1/below")
				return nil
			}
			must(t, w.Run(open(t, root)))
			for _, name := range []string{".", "0", "0/below", "2", "2/below"} {
				if !slices.Contains(entered, name) {
					t.Errorf("%s was not entered: %q", name, entered)
				}
			}
		})
	}
}

// A walk goes on after a directory that can't be opened, if its user wants that, and
// otherwise ends with the error.
func TestWalkUnreadable(t *testing.T) {
	root := tempDir(t)
	for i := range 3 {
		must(t, os.MkdirAll(filepath.Join(root, fmt.Sprint(i), "below"), 0o755))
	}
	// More than this process may have open.
	var limit, before unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	var w Walker
	w.Name = isDir
	w.Enter = func(_ string, dir *os.File, _ *unix.Statx_t) error {
		limit = before
		if w.Path(".") == "1" {
			limit.Cur = 0
		}
		return unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	}
	defer func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before)) }()
	if err := w.Run(open(t, root)); !errors.Is(err, unix.EMFILE) {
		t.Errorf("%v, want EMFILE", err)
	}
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
	var unreadable []string
	w.Unreadable = func(name string, err error) error {
		unreadable = append(unreadable, w.Path(name))
		if !errors.Is(err, unix.EMFILE) {
			return err
		}
		return unix.Setrlimit(unix.RLIMIT_NOFILE, &before)
	}
	must(t, w.Run(open(t, root)))
	if !slices.Equal(unreadable, []string{"1/below"}) {
		t.Errorf("unreadable: %q, want 1/below", unreadable)
	}
}

// The names of a directory's subdirectories are held one behind the other.
func TestBelow(t *testing.T) {
	var b below
	var want []string
	for i := range 1000 {
		name := fmt.Sprintf("%d\n\xff", i)
		b.add(name)
		want = append(want, name)
	}
	slices.Reverse(want)
	var got []string
	for len(b) > 0 {
		got = append(got, b.next())
	}
	if !slices.Equal(got, want) || cap(b) > 0 {
		t.Errorf("%d names, want the same %d; %d bytes are kept", len(got), len(want), cap(b))
	}
}

// A walk of a tree that is too deep ends with an error, and one that says no bound has that of a copy.
func TestTooDeep(t *testing.T) {
	dir := tempDir(t)
	must(t, os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", 9)), 0o755))
	for most, want := range map[int]error{10: nil, 9: ErrTooDeep, 0: nil} {
		w := entries{Walker: Walker{Deepest: most}, visit: func(*Entry) error { return nil }}
		if err := w.run(t.Context(), open(t, dir)); !errors.Is(err, want) {
			t.Errorf("a bound of %d: %v, want %v", most, err, want)
		}
		if most == 0 && w.Deepest != deepest {
			t.Errorf("without one it is %d, want %d", w.Deepest, deepest)
		}
	}
}
