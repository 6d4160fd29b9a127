package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

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
	for _, name := range []string{StateDir, strings.TrimPrefix(path.Path, root.Name()+"/")} { // which may not even be looked at
		if info, statErr := root.Lstat(name); statErr == nil {
			owner = fmt.Sprintf("user %d", info.Sys().(*syscall.Stat_t).Uid)
		}
	}
	return fmt.Errorf("%w: it belongs to %s, and podnas runs as user %d: run podnas as root or as the owner of the disk, or give that user the whole state directory: chown -R %d %s/%s",
		err, owner, os.Geteuid(), os.Geteuid(), root.Name(), StateDir)
}
