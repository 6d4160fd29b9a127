package testdisk

import (
	"encoding/binary"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TakeBack has the XFS of a directory free all that it has allocated ahead, as it does by itself every 5
// minutes.
func TakeBack(t testing.TB, dir string) {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// XFS_IOC_FREE_EOFBLOCKS and struct xfs_fs_eofblocks, xfs_fs.h: version 1, wait.
	const ioctl, sync = 0x8080583a, 1
	var how [128]byte
	binary.NativeEndian.PutUint32(how[0:], 1)
	binary.NativeEndian.PutUint32(how[4:], sync)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), ioctl, uintptr(unsafe.Pointer(&how))); errno != 0 {
		t.Fatalf("XFS_IOC_FREE_EOFBLOCKS: %v", errno)
	}
}
