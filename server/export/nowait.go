package export

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Go's scheduler is told of a system call, so that it can do without the thread for as
// long as the call blocks. That takes time, and the first that comes after all was idle
// wakes the thread that looks for such calls, which takes longer than a small call.
// It is not told of the system calls that never block: preadNow, and fstat of
// server/space. One that blocked all the same would stop all goroutines at the next
// garbage collection.

// preadNow is preadv2(2) with RWF_NOWAIT, which never waits.
func preadNow(fd int, p []byte, offset int64) (int, error) {
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
