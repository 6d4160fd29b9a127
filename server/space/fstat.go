package space

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// fstat is fstat(2). If it is quick, it never blocks and does not inform Go's scheduler, which
// saves time: server/export/nowait.go explains it.
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
