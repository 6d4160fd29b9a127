package export

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWalk(t *testing.T) {
	table, v, dir := volumeAt(t)
	mustDo(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755))
	mustDo(t, os.WriteFile(filepath.Join(dir, "a", "b", "file"), nil, 0o600))
	mustDo(t, os.Symlink("/", filepath.Join(dir, "link")))
	mustDo(t, unix.Mkfifo(filepath.Join(dir, "a", "fifo"), 0o600))
	var paths []string
	all, err := v.Walk(func(path string, id FileID) {
		paths = append(paths, path)
		if want, err := (inodes{}).identify(int(v.root.Fd()), []byte(path)); err != nil || id != want {
			t.Errorf("%s is %x, want %x, %v", path, id.Bytes(), want.Bytes(), err)
		}
	})
	slices.Sort(paths)
	if want := []string{".", "a", "a/b", "a/b/file", "a/fifo", "link"}; err != nil || !all || !slices.Equal(paths, want) {
		t.Errorf("%q, %v, %v", paths, all, err)
	}

	removed := make(chan struct{})
	_, err = v.Walk(func(path string, _ FileID) {
		if path == "." {
			go func() {
				table.Remove(7)
				close(removed)
			}()
			<-v.ending
		}
	})
	if !errors.Is(err, os.ErrClosed) {
		t.Errorf("during the end of the export: %v", err)
	}
	<-removed
	if _, err := v.Walk(func(string, FileID) { t.Error("called after the end of the export") }); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after the end of the export: %v", err)
	}
}

// What was moved from under a walk is said to be missed.
func TestWalkLost(t *testing.T) {
	_, v, dir := volumeAt(t)
	mustDo(t, os.MkdirAll(filepath.Join(dir, "a", "b", "c"), 0o755))
	mustDo(t, os.Mkdir(filepath.Join(dir, "other"), 0o755))
	all, err := v.Walk(func(path string, _ FileID) {
		if path == "a/b/c" {
			mustDo(t, os.Rename(filepath.Join(dir, "a", "b"), filepath.Join(dir, "other", "b")))
			mustDo(t, os.RemoveAll(filepath.Join(dir, "a")))
		}
	})
	if all || err != nil {
		t.Errorf("all is %v, %v", all, err)
	}
}
