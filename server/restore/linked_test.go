package restore_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/test/testdisk"
)

// has is what a tree has, but how many names its files have: those of a snapshot may have others in other snapshots.
func has(t *testing.T, root string) string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(describe(t, root)) {
		if before, after, ok := strings.Cut(line, " links "); ok {
			line = before[:strings.LastIndexByte(before, ' ')] + " " + after
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}

// A volume can be restored to snapshots that have files in common, and its changes are in none of them.
func TestRestoreOfLinked(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, disk string) {
		v := newVolume(t, disk)
		plant(t, v.dir)
		v.walked()
		want := has(t, v.dir)
		time.Sleep(2100 * time.Millisecond)
		v.take(t, "one")
		v.take(t, "two")
		in := func(name, at string) string { return filepath.Join(v.ready, name, at) }
		if inodeOf(t, in("one", "stays")) != inodeOf(t, in("two", "stays")) {
			t.Fatal("the second snapshot has files of its own")
		}
		for _, name := range []string{"two", "one", "two"} {
			spoil(t, v.dir)
			v.walked()
			must(t, v.restore(t, t.Context(), name))
			if got := has(t, v.dir); got != want {
				t.Fatalf("restored to %s:\n%s\nwant\n%s", name, got, want)
			}
			if inodeOf(t, filepath.Join(v.dir, "stays")) == inodeOf(t, in("one", "stays")) {
				t.Fatal("the volume has a file of a snapshot")
			}
			var st unix.Stat_t
			must(t, unix.Lstat(filepath.Join(v.dir, "stays"), &st))
			if st.Nlink != 1 {
				t.Errorf("it has %d names", st.Nlink)
			}
		}
		spoil(t, v.dir)
		for _, name := range []string{"one", "two"} {
			if got := has(t, filepath.Join(v.ready, name)); got != want {
				t.Errorf("snapshot %s has changed:\n%s", name, got)
			}
		}
	})
}

// A file that snapshots have in common is one file for clients, too, until the last of them is deleted.
func TestHandlesOfLinked(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, on string) {
		v := newVolume(t, on)
		plant(t, v.dir)
		v.walked()
		time.Sleep(2100 * time.Millisecond)
		v.take(t, "one")
		v.take(t, "two")
		shown := v.Shown()
		lookup := func(snapshot, name string) (disk.FileID, error) {
			at, err := v.opener.OpenIn(shown, disk.FileID{}, inode.UseAttr)
			if err != nil {
				return disk.FileID{}, err
			}
			defer at.Close()
			dir, err := at.Lookup([]byte(snapshot))
			if err != nil {
				return disk.FileID{}, err
			}
			defer dir.Close()
			f, err := dir.Lookup([]byte(name))
			if err != nil {
				return disk.FileID{}, err
			}
			defer f.Close()
			return f.ID, nil
		}
		readNow := func(id disk.FileID) (content string, err error) {
			f, err := v.opener.OpenIn(shown, id, inode.UseRead)
			if err != nil {
				return "", err
			}
			defer f.Close()
			buf := make([]byte, 100)
			n, err := f.ReadAt(buf, 0)
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return string(buf[:n]), err
		}
		read := func(id disk.FileID) (content string, err error) {
			for range 100 { // the index may have to look for it
				if content, err = readNow(id); !errors.Is(err, syscall.EAGAIN) {
					break
				}
				time.Sleep(50 * time.Millisecond)
			}
			return content, err
		}
		one, err := lookup("one", "stays")
		must(t, err)
		two, err := lookup("two", "stays")
		must(t, err)
		if one != two {
			t.Error("it has two handles")
		}
		other, err := lookup("one", "a")
		must(t, err)
		dirOfTwo, err := lookup("two", "a")
		must(t, err)
		if other == dirOfTwo {
			t.Error("directories of two snapshots are one")
		}
		must(t, os.RemoveAll(filepath.Join(v.ready, "one")))
		if content, err := read(one); err != nil || content != "first stays" {
			t.Errorf("while the other snapshot has it: %q, %v", content, err)
		}
		if _, err := lookup("one", "stays"); !errors.Is(err, syscall.ENOENT) {
			t.Errorf("by the name in a deleted snapshot: %v", err)
		}
		unread, err := lookup("two", "grows") // the other one is still open
		must(t, err)
		must(t, os.RemoveAll(filepath.Join(v.ready, "two")))
		if content, err := read(unread); !errors.Is(err, syscall.ESTALE) {
			t.Errorf("when no snapshot has it: %q, %v, want ESTALE", content, err)
		}
	})
}
