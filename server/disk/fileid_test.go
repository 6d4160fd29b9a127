package disk_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/server/disk"
)

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "...": true, "..a": true, " ": true, "\xff": true, strings.Repeat("n", 300): true,
		"": false, ".": false, "..": false, "a/b": false, "/": false, "a\x00": false,
	} {
		if disk.ValidName(name) != want {
			t.Errorf("ValidName(%q) = %v", name, !want)
		}
	}
}

// Both ways to name a file keep the same promises.
func TestIdentify(t *testing.T) {
	for _, way := range []struct {
		name     string
		identify func(*os.File, string) (disk.FileID, error)
	}{
		{"by inode and birth", func(dir *os.File, name string) (disk.FileID, error) {
			return disk.ByInode{&disk.FS{}}.Identify(int(dir.Fd()), []byte(name))
		}},
		{"by handle", func(dir *os.File, name string) (disk.FileID, error) {
			return disk.ByHandle{}.Identify(int(dir.Fd()), []byte(name))
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			dir, err := os.Open(t.TempDir())
			must(t, err)
			defer dir.Close()
			if _, err := way.identify(dir, ""); errors.Is(err, disk.ErrNoFileID) {
				t.Skipf("the temporary directory's file system can't: %v", err)
			}
			id := func(name string) disk.FileID {
				t.Helper()
				id, err := way.identify(dir, name)
				must(t, err)
				if id.IsZero() {
					t.Errorf("FileID of %q is zero", name)
				}
				return id
			}
			name := filepath.Join(dir.Name(), "file")
			must(t, os.WriteFile(name, nil, 0o600))
			must(t, os.Symlink("file", filepath.Join(dir.Name(), "link")))
			file := id("file")
			if id("link") == file {
				t.Error("followed a symbolic link")
			}
			if id("") != id(".") || id("") == file {
				t.Error("the directory itself")
			}
			f, err := os.Open(name)
			must(t, err)
			if open, err := way.identify(f, ""); err != nil || open != file {
				t.Errorf("an open file: %x, %v, by name %x", open, err, file)
			}
			must(t, f.Close())
			must(t, os.Rename(name, filepath.Join(dir.Name(), "renamed")))
			if id("renamed") != file {
				t.Error("changed with a rename")
			}
			must(t, os.Remove(filepath.Join(dir.Name(), "renamed")))
			if _, err := way.identify(dir, "renamed"); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a removed file: %v", err)
			}
			// A file system may give the inode number to the next file.
			time.Sleep(20 * time.Millisecond)
			for range 100 {
				must(t, os.WriteFile(name, nil, 0o600))
				if id("file") == file {
					t.Fatal("a new file has the FileID of a removed one")
				}
				must(t, os.Remove(name))
			}
		})
	}
}
