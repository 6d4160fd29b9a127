package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// own gives a new file in the state directory to the owner of that directory. So a
// podnas that runs as root once, on the disk of an ordinary user, leaves no files
// that this user's podnas can't read. If the process may not change owners, the
// file stays its own.
func own(root *os.Root, f *os.File) error {
	dir, err := root.Stat(StateDir)
	if err != nil {
		return err
	}
	file, err := f.Stat()
	if err != nil {
		return err
	}
	want, has := dir.Sys().(*syscall.Stat_t), file.Sys().(*syscall.Stat_t)
	if want.Uid == has.Uid {
		return nil
	}
	if err := f.Chown(int(want.Uid), int(want.Gid)); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// explainDenied adds advice to an error if the process may not read or write the
// disk's state, so that it is not mistaken for damage.
func explainDenied(root *os.Root, err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	var path *fs.PathError
	if !errors.As(err, &path) {
		return err
	}
	owner := "another user"
	for _, name := range []string{StateDir, path.Path} { // which may not even be looked at
		if info, statErr := root.Lstat(name); statErr == nil {
			owner = fmt.Sprintf("user %d", info.Sys().(*syscall.Stat_t).Uid)
		}
	}
	return fmt.Errorf("%w: it belongs to %s, and podnas runs as user %d: run podnas as root or as the owner of the disk, or give that user the whole state directory: chown -R %d %s/%s",
		err, owner, os.Geteuid(), os.Geteuid(), root.Name(), StateDir)
}
