package durable

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
)

// A directory's sync waits for what is under way when its own fsync has returned, and commits if that
// fails. A file's does not.
func TestDirectoryWaitsForSyncsUnderWay(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	mustBeNil(t, err)
	defer dir.Close()
	file, err := os.Create(filepath.Join(dir.Name(), "file"))
	mustBeNil(t, err)
	defer file.Close()
	var st unix.Statfs_t
	mustBeNil(t, unix.Fstatfs(int(dir.Fd()), &st))
	var commit error = unix.ENOTTY
	if st.Type == unix.BTRFS_SUPER_MAGIC {
		commit = nil
	}
	for name, test := range map[string]struct {
		own   *os.File
		other error
		want  error // of own
		waits bool
	}{
		"a directory":                  {dir, nil, nil, true},
		"a directory, the other fails": {dir, unix.EIO, commit, true},
		"a file":                       {file, nil, nil, false},
		"a file, the other fails":      {file, unix.EIO, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var o overlap
				end, told := make(chan struct{}), make(chan error, 1)
				go func() {
					err := o.sync(&disk.FS{}, int(file.Fd()), func() error { <-end; return test.other })
					if !errors.Is(err, test.other) {
						t.Errorf("the other's sync: %v, want %v", err, test.other)
					}
				}()
				synctest.Wait()
				go func() { told <- o.sync(&disk.FS{}, int(test.own.Fd()), func() error { return nil }) }()
				synctest.Wait()
				if waits := len(told) == 0; waits != test.waits {
					t.Errorf("it waits: %v, want %v", waits, test.waits)
				}
				close(end)
				if err := <-told; !errors.Is(err, test.want) {
					t.Errorf("the sync: %v, want %v", err, test.want)
				}
			})
		})
	}
}

// Directories whose syncs return together don't wait for each other.
func TestDirectoriesSyncedTogether(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	mustBeNil(t, err)
	defer dir.Close()
	synctest.Test(t, func(t *testing.T) {
		var o overlap
		end, told := make(chan struct{}), make(chan error)
		for range 3 {
			go func() { told <- o.sync(&disk.FS{}, int(dir.Fd()), func() error { <-end; return nil }) }()
		}
		synctest.Wait()
		close(end)
		for range 3 {
			mustBeNil(t, <-told)
		}
		if len(o.syncs) != 0 {
			t.Errorf("%d syncs are under way for ever", len(o.syncs))
		}
	})
}
