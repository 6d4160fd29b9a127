package actas_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/test/testdisk"
)

// As a file's owner a user may change its mode, but can't read it, nor write to a directory, nor link what is immutable; and
// afterwards the user is nobody's owner.
func TestAsOwner(t *testing.T) {
	needIdentities(t)
	root, err := os.Open(testdisk.OneXFS(t))
	must(t, err)
	defer root.Close()
	disk := disk.ProcPath(int(root.Fd())) // the parents of a test's directory are closed to others
	must(t, os.Chmod(disk, 0o755))
	dir, file := filepath.Join(disk, "dir"), filepath.Join(disk, "file")
	must(t, os.Mkdir(dir, 0o777))
	must(t, os.Chmod(dir, 0o777))
	must(t, os.WriteFile(file, nil, 0o600))
	fixed := filepath.Join(disk, "fixed")
	must(t, os.WriteFile(fixed, nil, 0o666))
	defer testdisk.Unwritable(t, fixed)()
	chmod := func() error { return unix.Chmod(file, 0o600) }
	id := actas.Identity{UID: 1000, GID: 1000}
	err = actas.NewUsers(nil).As(&id, func(as actas.Thread) error {
		refused := func(what string, err, want error) {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
		refused("chmod before", chmod(), unix.EPERM)
		must(t, as.AsOwner(chmod))
		must(t, as.AsOwner(func() error { return unix.Link(file, filepath.Join(dir, "link")) }))
		refused("link in a directory of root", as.AsOwner(func() error { return unix.Link(file, filepath.Join(disk, "link")) }), unix.EACCES)
		refused("link of what is immutable", as.AsOwner(func() error { return unix.Link(fixed, filepath.Join(dir, "fixed")) }), unix.EPERM)
		refused("open", as.AsOwner(func() error {
			_, err := os.Open(file)
			return err
		}), unix.EACCES)
		refused("chmod afterwards", chmod(), unix.EPERM)
		return nil
	})
	must(t, err)
	isProcess(t)
	if err := actas.AsProcess().AsOwner(chmod); !errors.Is(err, unix.EPERM) {
		t.Errorf("as the process: %v", err)
	}
}
