// Package timerslack has Go's scheduler wake less often.
//
// While goroutines make system calls, its monitor thread (runtime.sysmon) sleeps for 20 us at a
// time. With the kernel's timer slack of 50 us (prctl(2), PR_SET_TIMERSLACK) it wakes thousands of
// times a second, and takes processors back from system calls that would soon end. With a
// millisecond the server takes 0.82 of the processor time for synced WRITEs of 4 KiB to 16 files,
// 0.74 if they are to one file, and 0.78 with one of them at a time; docs/internals/tried.md has the command.
// Timers go off up to a millisecond late.
package timerslack

import (
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	usual = 50 * time.Microsecond // of a process for which nobody has set another
	long  = time.Millisecond
)

// Set gives all threads of the process the longer timer slack, unless somebody has set another
// than the usual. A thread gets the slack of the one that makes it, and the monitor is there before
// any code of ours, so Set starts the program again in the same process, once. It is called
// first of all. If it returns, the slack is set, or can't be.
func Set() {
	runtime.LockOSThread() // which has the slack, and is the one that is left
	defer runtime.UnlockOSThread()
	was, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || time.Duration(was) != usual {
		return
	}
	program, err := os.Executable()
	if err != nil || unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(long), 0, 0, 0) != nil {
		return
	}
	_ = unix.Exec(program, os.Args, os.Environ())
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(usual), 0, 0, 0)
}
