package quota

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// DropResource takes CAP_SYS_RESOURCE from every thread of the process, for good: with it, calls of clients would use the blocks that
// ext4 reserves, and pass its quotas. Call it before other threads change their capabilities: all get those of the calling one.
func DropResource() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // the capabilities 0 to 31, and 32 to 63
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	const bit = 1 << unix.CAP_SYS_RESOURCE
	if (data[0].Permitted|data[0].Effective)&bit == 0 {
		return nil
	}
	data[0].Permitted &^= bit
	data[0].Effective &^= bit
	data[0].Inheritable &^= bit
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0)
	runtime.KeepAlive(&header)
	runtime.KeepAlive(&data)
	if errors.Is(errno, syscall.ENOTSUP) {
		return &UnsupportedError{
			Reason: "ext4 does not limit processes with the capability CAP_SYS_RESOURCE, and a program built with cgo can't drop it from its threads",
			Fix:    "start it without this capability, or build it with CGO_ENABLED=0",
		}
	}
	if errno != 0 {
		return fmt.Errorf("give up CAP_SYS_RESOURCE: %w", errno)
	}
	return nil
}
