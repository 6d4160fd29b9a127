package export

import (
	"errors"
	"fmt"
	"os"
	"runtime"

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
	opened := owned(fd)
	opened.close()
	return nil
}

// ProbeIndex tests whether files of the disk at dir can be found by an index. The error is a
// *NeedsError, unless dir can't be opened.
func ProbeIndex(dir string) error {
	root, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	d := diskOf(root)
	id, err := Identify(root)
	if err != nil || d.numberIn(&id) == 0 {
		return &NeedsError{"files can't be told apart", "use a disk whose files have birth times, as ext4, XFS and btrfs give them", errors.Join(err, ErrNoFileID)}
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: within | unix.RESOLVE_NO_MAGICLINKS}
	path, err := unix.Openat2(int(root.Fd()), ".", &how)
	if err != nil {
		return &NeedsError{"the system call openat2 is not allowed", "use Linux 5.6 or later, and a seccomp profile that knows it", err}
	}
	named := owned(path)
	defer named.close()
	opened, err := reopen(path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return &NeedsError{"open files can't be opened again", "mount /proc, and let podnas's user read the disk", err}
	}
	opened.close()
	return nil
}

// ProbeIdentities tests whether threads of this process can act as other users. The error is
// a *NeedsError.
func ProbeIdentities() error {
	answer := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		answer <- become(&Identity{UID: otherUser(), GID: otherUser()})
	}()
	if err := <-answer; err != nil {
		return &NeedsError{"threads can't act as other users", "run as root with the capabilities SETUID and SETGID", err}
	}
	return nil
}
