package disk

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// NeedsError says what the native engine needs but lacks here.
type NeedsError struct {
	What string
	Fix  string
	Err  error
}

func (e *NeedsError) Error() string { return fmt.Sprintf("%s (%v); %s", e.What, e.Err, e.Fix) }

func (e *NeedsError) Unwrap() error { return e.Err }

// ProbeHandles tests whether files of the disk at dir can be opened by the kernel's handles.
// The error is a *NeedsError, unless dir can't be opened.
func ProbeHandles(dir string) error {
	root, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	handle, _, err := unix.NameToHandleAt(int(root.Fd()), "", unix.AT_EMPTY_PATH)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return &NeedsError{"the file system has no file handles", "use a disk with ext4, XFS or btrfs in place of an overlay", err}
	case err != nil:
		return &NeedsError{"the system call for file handles is not allowed", "let the container's seccomp profile allow name_to_handle_at, or run it unconfined", err}
	}
	fd, err := unix.OpenByHandleAt(int(root.Fd()), handle, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return &NeedsError{"files can't be opened by handle", "run as root with the capability DAC_READ_SEARCH, outside a user namespace", err}
	}
	opened := Owned(fd)
	opened.Close()
	return nil
}
