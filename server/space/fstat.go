package space

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// fstat is fstat(2). Go's scheduler is not told of a quick one, which never blocks: that
// takes time, as server/export/nowait.go explains.
func fstat(fd int, st *unix.Stat_t, quick bool) error {
	if !quick {
		return unix.Fstat(fd, st)
	}
	_, _, errno := unix.RawSyscall(unix.SYS_FSTAT, uintptr(fd), uintptr(unsafe.Pointer(st)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
