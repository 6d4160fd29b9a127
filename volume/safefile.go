package volume

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// stateFileMax is the maximum size of a file that is read, in bytes. A record has some 500 and its
// manifest.
const stateFileMax = 4 << 20

// errNotRegular means that something else is where a file should be.
var errNotRegular = errors.New("it is not a regular file")

// openRegular opens a file of the state directory. Unlike os.Root it follows no symbolic link, which
// could lead into a volume, and it does not wait for the other end of a fifo.
func openRegular(dir *os.Root, name string, flag int, perm os.FileMode) (*os.File, error) {
	before, err := dir.Lstat(name)
	switch {
	case errors.Is(err, os.ErrNotExist) && flag&os.O_CREATE != 0:
		flag |= os.O_EXCL
	case err != nil:
		return nil, err
	case !before.Mode().IsRegular():
		return nil, fmt.Errorf("%s: %w, but has the mode %s", name, errNotRegular, before.Mode())
	}
	f, err := dir.OpenFile(name, flag|unix.O_NONBLOCK, perm)
	if err != nil {
		return nil, err
	}
	now, err := f.Stat()
	if err == nil && before != nil && !os.SameFile(before, now) {
		err = fmt.Errorf("%s was replaced while it was opened", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// readRegular reads a file of the state directory.
func readRegular(dir *os.Root, name string) ([]byte, error) {
	f, err := openRegular(dir, name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, stateFileMax+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if len(data) > stateFileMax {
		return nil, fmt.Errorf("%s has more than %d bytes", name, stateFileMax)
	}
	return data, nil
}
