package disk

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

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
