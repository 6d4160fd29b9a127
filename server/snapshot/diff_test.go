package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/snapshot"
	"github.com/podnas/podnas/test/testdisk"
)

// diff returns the differences, a line each.
func diff(t *testing.T, a, b *snapshot.Earlier, isVolume bool) []string {
	t.Helper()
	lines := []string{}
	mustDo(t, snapshot.Diff(t.Context(), a, b, isVolume, func(c *snapshot.Change) error {
		lines = append(lines, strings.TrimSpace(fmt.Sprint(c.Kind, " ", c.Path, " ", strings.Join(c.What.Words(), ","))))
		return nil
	}))
	return lines
}

// plant makes files, and waits until the next snapshot may link them.
func plant(t *testing.T, v *volume) {
	t.Helper()
	in := func(name string) string { return filepath.Join(v.dir, name) }
	for _, d := range []string{"dir", "dir/deep", "gone", "gone/deep", "turns"} {
		mustDo(t, os.Mkdir(in(d), 0o755))
	}
	for _, f := range []string{"same", "content", "mode", "owner", "attr", "time", "rewritten", "sly", "renamed", "dir/a", "dir/deep/b", "gone/deep/c", "turns/d", "twice"} {
		mustDo(t, os.WriteFile(in(f), []byte("content"), 0o644))
	}
	mustDo(t, os.Link(in("twice"), in("dir/twice")))
	mustDo(t, os.Symlink("target", in("link")))
	mustDo(t, os.Symlink("target", in("same link")))
	mustDo(t, os.WriteFile(in("empty"), nil, 0o644))
	mustDo(t, unix.Mkfifo(in("fifo"), 0o644))
	if x := v.Files.Index(); x != nil {
		x.WalkOnce()
	}
	time.Sleep(age)
}

func TestDiff(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, on string) {
		v := newVolume(t, on)
		plant(t, v)
		in := func(name string) string { return filepath.Join(v.dir, name) }
		_, err := v.take(new(snapshot.Progress))
		mustDo(t, err)
		a := v.last
		now := &snapshot.Earlier{Tree: v.dir}
		if lines := diff(t, a, now, true); len(lines) > 0 {
			t.Errorf("nothing has changed: %q", lines)
		}
		info, err := os.Stat(in("sly"))
		mustDo(t, err)
		mustDo(t, os.WriteFile(in("content"), []byte("much longer content"), 0o644))
		mustDo(t, os.WriteFile(in("rewritten"), []byte("content"), 0o644))
		mustDo(t, os.WriteFile(in("sly"), []byte("CONTENT"), 0o644))
		mustDo(t, os.Chtimes(in("sly"), info.ModTime(), info.ModTime()))
		mustDo(t, os.Chmod(in("mode"), 0o600))
		mustDo(t, os.Chown(in("owner"), 12, 34))
		mustDo(t, unix.Setxattr(in("attr"), "user.a", []byte("b"), 0))
		mustDo(t, os.Chtimes(in("time"), time.Unix(1, 0), time.Unix(1, 0)))
		mustDo(t, os.Rename(in("renamed"), in("dir/new name")))
		mustDo(t, os.RemoveAll(in("gone")))
		mustDo(t, os.RemoveAll(in("turns")))
		mustDo(t, os.WriteFile(in("turns"), nil, 0o644))
		mustDo(t, os.MkdirAll(in("new/deep"), 0o755))
		mustDo(t, os.WriteFile(in("new/deep/file\x01"), nil, 0o644))
		mustDo(t, os.Remove(in("link")))
		mustDo(t, os.Symlink("TARGET", in("link")))
		mustDo(t, os.Chmod(in("dir/deep"), 0o700))
		if x := v.Files.Index(); x != nil {
			x.WalkOnce()
		}
		want := []string{
			"changed attr attributes",
			"changed content content,modified",
			"changed dir/deep/ mode",
			"added dir/new name",
			"removed gone/", "removed gone/deep/", "removed gone/deep/c",
			"changed link content,modified",
			"changed mode mode",
			"added new/", "added new/deep/", "added new/deep/file\x01",
			"changed owner owner",
			"removed renamed",
			"changed rewritten modified",
			"changed sly content",
			"changed time modified",
			"removed turns/", "removed turns/d", "added turns",
		}
		if lines := diff(t, a, now, true); !slices.Equal(lines, want) {
			t.Errorf("with the volume:\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
		_, err = v.take(new(snapshot.Progress))
		mustDo(t, err)
		if lines := diff(t, a, v.last, false); !slices.Equal(lines, want) {
			t.Errorf("of snapshots:\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
		mustDo(t, os.Remove(a.Catalogue))
		if lines := diff(t, a, now, true); !slices.Equal(lines, want) {
			t.Errorf("without a catalogue:\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
		back := diff(t, v.last, a, false)
		if len(back) != len(want) || back[3] != "removed dir/new name" {
			t.Errorf("the other way round: %q", back)
		}
	})
}

// A directory that has taken the place of another one has its own files, though none of them has changed.
func TestDiffOfMovedDirectories(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, on string) {
		v := newVolume(t, on)
		for _, name := range []string{"x", "y"} {
			mustDo(t, os.Mkdir(filepath.Join(v.dir, name), 0o755))
			mustDo(t, os.WriteFile(filepath.Join(v.dir, name, "f"), []byte("in "+name), 0o644))
		}
		mustDo(t, os.Chtimes(filepath.Join(v.dir, "x/f"), time.Unix(1, 0), time.Unix(1, 0)))
		if x := v.Files.Index(); x != nil {
			x.WalkOnce()
		}
		time.Sleep(age)
		_, err := v.take(new(snapshot.Progress))
		mustDo(t, err)
		mustDo(t, os.RemoveAll(filepath.Join(v.dir, "x")))
		mustDo(t, os.Rename(filepath.Join(v.dir, "y"), filepath.Join(v.dir, "x")))
		if x := v.Files.Index(); x != nil {
			x.WalkOnce()
		}
		want := []string{"changed x/f content,modified", "removed y/", "removed y/f"}
		a := v.last
		if lines := diff(t, a, &snapshot.Earlier{Tree: v.dir}, true); !slices.Equal(lines, want) {
			t.Errorf("with the volume: %q, want %q", lines, want)
		}
		_, err = v.take(new(snapshot.Progress))
		mustDo(t, err)
		if lines := diff(t, a, v.last, false); !slices.Equal(lines, want) {
			t.Errorf("of snapshots: %q, want %q", lines, want)
		}
	})
}

// What two snapshots have in common is not read, and neither is what has not changed in the volume.
func TestDiffReadsWhatHasChangedAlone(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, on string) {
		v := newVolume(t, on)
		plant(t, v)
		var both []*snapshot.Earlier
		for range 2 {
			_, err := v.take(new(snapshot.Progress))
			mustDo(t, err)
			both = append(both, v.last)
		}
		// Reading sets the time of access, as it is older than a day.
		old := time.Unix(1, 0)
		files := []string{filepath.Join(both[0].Tree, "same"), filepath.Join(both[0].Tree, "dir/deep/b")}
		for _, file := range files {
			mustDo(t, os.Chtimes(file, old, time.Time{}))
		}
		if lines := diff(t, both[0], both[1], false); len(lines) > 0 {
			t.Errorf("they are the same: %q", lines)
		}
		if lines := diff(t, both[1], &snapshot.Earlier{Tree: v.dir}, true); len(lines) > 0 {
			t.Errorf("it has not changed: %q", lines)
		}
		for _, file := range files {
			if accessed(t, file) != 1 {
				t.Errorf("%s was read", file)
			}
			if _, err := os.ReadFile(file); err != nil || accessed(t, file) == 1 {
				t.Errorf("whether it is read can't be seen: %v", err)
			}
		}
	})
}

// accessed is a file's time of access, in seconds.
func accessed(t *testing.T, name string) int64 {
	t.Helper()
	var st unix.Stat_t
	mustDo(t, unix.Lstat(name, &st))
	return st.Atim.Sec
}

func TestDiffEnds(t *testing.T) {
	testdisk.XFS(t, func(t *testing.T, on string) {
		v := newVolume(t, on)
		plant(t, v)
		_, err := v.take(new(snapshot.Progress))
		mustDo(t, err)
		empty := &snapshot.Earlier{Tree: t.TempDir()}
		full := errors.New("full")
		n := 0
		err = snapshot.Diff(t.Context(), empty, v.last, false, func(*snapshot.Change) error {
			n++
			return full
		})
		if !errors.Is(err, full) || n != 1 {
			t.Errorf("after an error of emit: %v, %d calls", err, n)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		err = snapshot.Diff(ctx, empty, v.last, false, func(*snapshot.Change) error {
			cancel(full)
			return nil
		})
		if !errors.Is(err, full) {
			t.Errorf("when it is interrupted: %v", err)
		}
		if err := snapshot.Diff(t.Context(), &snapshot.Earlier{Tree: on + "/none"}, v.last, false, nil); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("without the one: %v", err)
		}
	})
}
