package inode_test

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
)

// What was made for a call that fails goes, unless somebody uses it by now.
func TestUnmake(t *testing.T) {
	needNative(t)
	table, v, disk := volumeAt(t)
	o := inode.NewOpener(table, locate.NewKey(make([]byte, 32)), slog.New(slog.DiscardHandler))
	defer o.Close()
	root := o.Root(v)
	file := func(dir *inode.File) (*inode.File, error) { return dir.Create(actas.AsProcess(), "new", 0o600, false) }
	path := filepath.Join(disk, "new")
	for _, tt := range []struct {
		name  string
		make  func(dir *inode.File) (*inode.File, error)
		then  func(t *testing.T, made *inode.File)
		stays bool
	}{
		{"file", file, func(*testing.T, *inode.File) {}, false},
		{"file without rights", func(dir *inode.File) (*inode.File, error) { return dir.Create(actas.AsProcess(), "new", 0, false) }, func(*testing.T, *inode.File) {}, false},
		{"file with a size", file, func(t *testing.T, made *inode.File) { mustDo(t, made.Truncate(actas.AsProcess(), 1<<30)) }, false},
		{"file of another", file, func(t *testing.T, _ *inode.File) { mustDo(t, os.Chown(path, 1000, 1000)) }, false},
		{"directory", func(dir *inode.File) (*inode.File, error) { return dir.Mkdir(actas.AsProcess(), "new", 0o700) }, func(*testing.T, *inode.File) {}, false},
		{"link", func(dir *inode.File) (*inode.File, error) { return dir.Symlink(actas.AsProcess(), "to", "new") }, func(*testing.T, *inode.File) {}, false},
		{"fifo", func(dir *inode.File) (*inode.File, error) {
			return dir.Mknod(actas.AsProcess(), "new", inode.TypeFIFO, 0o600, 0, 0)
		}, func(*testing.T, *inode.File) {}, false},

		{"file that was written", file, func(t *testing.T, _ *inode.File) { mustDo(t, os.WriteFile(path, []byte("content"), 0)) }, true},
		{"file with another name", file, func(t *testing.T, _ *inode.File) { mustDo(t, os.Link(path, filepath.Join(disk, "other"))) }, true},
		{"file that is open", file, func(t *testing.T, made *inode.File) { t.Cleanup(made.Hold().Close) }, true},
		{"replaced by another", file, func(t *testing.T, _ *inode.File) {
			mustDo(t, os.WriteFile(filepath.Join(disk, "other"), nil, 0o600))
			mustDo(t, os.Rename(filepath.Join(disk, "other"), path))
		}, true},
		{"replaced by a directory", func(dir *inode.File) (*inode.File, error) { return dir.Mkdir(actas.AsProcess(), "new", 0o700) }, func(t *testing.T, _ *inode.File) {
			mustDo(t, os.Rename(path, filepath.Join(disk, "other")))
			mustDo(t, os.Mkdir(path, 0o700))
		}, true},
		{"directory that is used", func(dir *inode.File) (*inode.File, error) { return dir.Mkdir(actas.AsProcess(), "new", 0o700) }, func(t *testing.T, _ *inode.File) {
			mustDo(t, os.Mkdir(filepath.Join(path, "sub"), 0o700))
		}, true},
		{"what was there", func(dir *inode.File) (*inode.File, error) {
			made, err := dir.Create(actas.AsProcess(), "new", 0o600, false)
			if err != nil {
				return nil, err
			}
			made.Close()
			return dir.Lookup([]byte("new"))
		}, func(*testing.T, *inode.File) {}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, err := o.Open(netip.Addr{}, root, inode.UseNames)
			mustDo(t, err)
			defer dir.Close()
			defer inode.LockNames(dir, dir).Unlock()
			_, err = dir.StatLocked()
			mustDo(t, err)
			made, err := tt.make(dir)
			mustDo(t, err)
			defer made.Close()
			tt.then(t, made)
			removed, err := dir.Unmake(actas.AsProcess(), made, "new")
			if _, there := os.Lstat(path); removed == tt.stays || (there == nil) != tt.stays {
				t.Errorf("removed %v, %v; and now it is %v", removed, err, there)
			}
			for _, name := range []string{"new", "other"} {
				mustDo(t, os.RemoveAll(filepath.Join(disk, name)))
			}
		})
	}
}

// What is removed again takes no space, where the server counts.
func TestUnmakeCounted(t *testing.T) {
	needNative(t)
	o, v, root := countedAt(t, t.TempDir(), 1<<30)
	before := counted(t, v)
	for name, do := range map[string]func(dir *inode.File) (*inode.File, error){
		"file":      func(dir *inode.File) (*inode.File, error) { return dir.Create(actas.AsProcess(), "new", 0o600, false) },
		"directory": func(dir *inode.File) (*inode.File, error) { return dir.Mkdir(actas.AsProcess(), "new", 0o700) },
		"link":      func(dir *inode.File) (*inode.File, error) { return dir.Symlink(actas.AsProcess(), "to", "new") },
	} {
		dir, err := o.Open(netip.Addr{}, root, inode.UseNames)
		mustDo(t, err)
		names := inode.LockNames(dir, dir)
		_, err = dir.StatLocked()
		mustDo(t, err)
		made, err := do(dir)
		mustDo(t, err)
		removed, err := dir.Unmake(actas.AsProcess(), made, "new")
		made.Close()
		names.Unlock()
		dir.Close()
		if after := v.Account.Usage(); !removed || err != nil || after != before {
			t.Errorf("%s: removed %v, %v; %+v is used, and %+v was", name, removed, err, after, before)
		}
	}
}
