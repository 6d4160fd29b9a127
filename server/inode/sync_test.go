package inode_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/inode"
)

// Every file and directory can be synced, however it was opened, and for who has no
// rights to it; what has only a name, at once.
func TestBeginSync(t *testing.T) {
	o, root, dir := openerAt(t)
	mustDo(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0))
	mustDo(t, os.Mkdir(filepath.Join(dir, "dir"), 0))
	mustDo(t, os.Symlink("/nowhere", filepath.Join(dir, "link")))
	mustDo(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0))
	for name, syncs := range map[string]uint64{"file": 1, "dir": 1, "link": 0, "fifo": 0} {
		f, err := o.Open(netip.Addr{}, handleOf(t, o, root, name), inode.UseAttr)
		mustDo(t, err)
		before := o.Table().Syncs.Durations.Snapshot().Count
		syncing := f.BeginSync(false, nil)
		mustDo(t, syncing.Wait())
		if n := o.Table().Syncs.Durations.Snapshot().Count - before; n != syncs {
			t.Errorf("%s: %d syncs, want %d", name, n, syncs)
		}
		f.Close()
	}
}

// What is made is on the disk with its directory, or has to be synced by itself too.
func TestComesWithName(t *testing.T) {
	o, root, _ := openerAt(t)
	dir, err := o.Open(netip.Addr{}, root, inode.UseNames)
	mustDo(t, err)
	defer dir.Close()
	file := func(name string) (*inode.File, error) { return dir.Create(actas.AsProcess(), name, 0o644, false) }
	for name, test := range map[string]struct {
		journal bool
		make    func(name string) (*inode.File, error)
		change  func(*inode.File) error
		syncs   int // of the file and its directory
	}{
		"a file":            {true, file, nil, 1},
		"without a journal": {false, file, nil, 2},
		"a directory":       {true, func(name string) (*inode.File, error) { return dir.Mkdir(actas.AsProcess(), name, 0o755) }, nil, 1},
		"a symbolic link":   {false, func(name string) (*inode.File, error) { return dir.Symlink(actas.AsProcess(), "to", name) }, nil, 1},
		"with another mode": {true, file, func(f *inode.File) error { return f.Chmod(actas.AsProcess(), 0o600) }, 2},
		"with other times": {true, file, func(f *inode.File) error {
			return f.Chtimes(actas.AsProcess(), inode.SetTime{Set: true}, inode.SetTime{})
		}, 2},
		"with another owner": {true, file, func(f *inode.File) error { return f.Chown(actas.AsProcess(), 1, 1) }, 2},
		"with an attribute":  {true, file, func(f *inode.File) error { return f.SetXattr(actas.AsProcess(), []byte("a"), nil, 0) }, 2},
		"that was there": {true, func(name string) (*inode.File, error) {
			f, err := dir.Create(actas.AsProcess(), name, 0o644, false)
			mustDo(t, err)
			f.Close()
			return dir.Lookup([]byte(name))
		}, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			dir.Volume.FS.Journal = test.journal
			f, err := test.make(name)
			mustDo(t, err)
			if test.change != nil {
				mustDo(t, test.change(f))
			}
			if f.ComesWithName() != (test.syncs == 1) {
				t.Errorf("%v, want %d syncs", f.ComesWithName(), test.syncs)
			}
			f.Close()
		})
	}
}
