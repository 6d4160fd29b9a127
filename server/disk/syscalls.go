package disk

import (
	"errors"
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

// Descriptor is an open descriptor that its holder owns: the holder closes it, or hands it on
// with Take. A descriptor that is an int is borrowed, and stays open as long as it is used.
// The zero descriptor is none.
//
// An os.File in its place would allocate twice and set a finalizer each time a file is opened;
// opening and closing a file with O_PATH then takes 1.6 times as long.
type Descriptor struct {
	number int // 1 more than the kernel's
}

// Owned is the result of a system call that opens something; -1 is none.
func Owned(fd int) Descriptor { return Descriptor{fd + 1} }

// OpenEntry opens the file with a name in a directory: with O_PATH, which has no effect on a fifo
// or a device, and without following a symbolic link.
func OpenEntry(dir int, name string) (Descriptor, error) {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	return Owned(fd), err
}

// FD lends the descriptor, -1 if there is none.
func (d Descriptor) FD() int { return d.number - 1 }

// Take hands the descriptor on: the result is the caller's, and d is none.
func (d *Descriptor) Take() Descriptor {
	taken := *d
	*d = Descriptor{}
	return taken
}

// Close closes the descriptor. It has no error to return: nothing was written through it, what
// was written was synced, or the file has been removed.
func (d *Descriptor) Close() {
	if d.number != 0 {
		_ = unix.Close(d.FD())
		*d = Descriptor{}
	}
}

// An ordinary system call first informs Go's scheduler, so that another thread can run
// goroutines while the call blocks. That takes time, and the first such call after an idle
// period wakes the thread that watches for blocked calls, which takes longer than a small call.
// The system calls here never block, so they do not inform the
// scheduler. If one blocked nevertheless, it would stop all goroutines at the next garbage
// collection.

// PreadNow is preadv2(2) with RWF_NOWAIT, which never waits.
func PreadNow(fd int, p []byte, offset int64) (int, error) {
	iovec := unix.Iovec{Base: unsafe.SliceData(p)}
	iovec.SetLen(len(p))
	// The offset is in two halves; where the first has all of it, the kernel leaves out
	// the second.
	n, _, errno := unix.RawSyscall6(unix.SYS_PREADV2, uintptr(fd), uintptr(unsafe.Pointer(&iovec)), 1, uintptr(offset), uintptr(offset>>32), unix.RWF_NOWAIT)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// Fstat is fstat(2). If it is quick (FS.Quick), it never blocks and does not inform the scheduler.
func Fstat(fd int, st *unix.Stat_t, quick bool) error {
	if !quick {
		return unix.Fstat(fd, st)
	}
	_, _, errno := unix.RawSyscall(unix.SYS_FSTAT, uintptr(fd), uintptr(unsafe.Pointer(st)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Fallocate is fallocate(2), again after a signal.
func Fallocate(fd int, mode uint32, offset, length int64) error {
	for {
		if err := unix.Fallocate(fd, mode, offset, length); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Linux's names and sizes of extended attributes, xattr(7).
const (
	// XattrUser is before the names of attributes that users may give to files.
	XattrUser = "user."
	// XattrACL is before those of POSIX ACLs, acl(5).
	XattrACL = "system.posix_acl_"
	// XattrListMax is the most that the names of a file's attributes take, each with a zero byte.
	XattrListMax = 64 << 10
	// XattrMax is the most that a value takes.
	XattrMax = 64 << 10
)
