package disk

import (
	"fmt"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Statx is statx(2); that of x/sys allocates the name.
func Statx(dir int, name *byte, flags, mask int, st *unix.Statx_t) error {
	_, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(dir), uintptr(unsafe.Pointer(name)), uintptr(flags), uintptr(mask), uintptr(unsafe.Pointer(st)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Reopen opens a file again that is open with O_PATH.
func Reopen(fd, flags int) (Descriptor, error) {
	// That descriptor is open, so its link in /proc leads to it whatever its name is now.
	var path [32]byte // ends with 0
	strconv.AppendInt(append(path[:0], "/proc/self/fd/"...), int64(fd), 10)
	for {
		n, _, errno := unix.Syscall6(unix.SYS_OPENAT, ^uintptr(99), uintptr(unsafe.Pointer(&path)), uintptr(flags&^unix.O_NOFOLLOW|unix.O_CLOEXEC), 0, 0, 0)
		switch errno {
		case 0:
			return Owned(int(n)), nil
		case unix.EINTR:
		default:
			return Descriptor{}, errno
		}
	}
}

// Access asks the kernel, faccessat2(2), whether the calling thread may do something with an open file.
func Access(fd int, mode uint32) error {
	var empty byte // a path; x/sys would allocate one
	const flags = unix.AT_EMPTY_PATH | unix.AT_EACCESS
	_, _, errno := unix.Syscall6(unix.SYS_FACCESSAT2, uintptr(fd), uintptr(unsafe.Pointer(&empty)), uintptr(mode), flags, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// ProcPath is a path to an open file. A process may always follow its own.
func ProcPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// Within is how names are resolved: never up, through a symbolic link, or into a
// mount.
const Within = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS

// ValidName reports whether a client may use a name: one component that is not "."
// or "..". The file system limits its length.
func ValidName[T string | []byte](name T) bool {
	switch string(name) {
	case "", ".", "..":
		return false
	}
	for i := range len(name) {
		if name[i] == '/' || name[i] == 0 {
			return false
		}
	}
	return true
}

// PathOnly are the flags that open a file only for its attributes, and as the place to look up names: without an effect
// on a fifo or a device, and without following a symbolic link.
const PathOnly = unix.O_PATH | unix.O_NOFOLLOW
