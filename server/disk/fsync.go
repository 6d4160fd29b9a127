package disk

import (
	"cmp"
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// alive reports whether the file system of an open file or directory still works after a
// sync. If it can't write its journal, it reports that only to waiting syncs; later syncs
// have nothing to wait for and get no error: without this check, TestSyncFails in server
// finds names lost on XFS each time, on ext4 most times, and on btrfs when processors are
// busy, one time in five.
func (d *FS) alive(fd int) error {
	var err error
	switch {
	case d.Type == unix.XFS_SUPER_MAGIC:
		_, err = unix.Flistxattr(fd, nil)
	case d.Type == unix.EXT4_SUPER_MAGIC && d.Journal, d.Type == unix.BTRFS_SUPER_MAGIC:
		// Begins a change, and finds nothing to do.
		err = unix.Fremovexattr(fd, "user.podnas.none")
	}
	if errors.Is(err, unix.EIO) || errors.Is(err, unix.EROFS) {
		return err
	}
	return nil
}

// Sync is fsync(2), or fdatasync(2). Without an error, all earlier changes are on the disk,
// unless another sync through the descriptor has failed since they were made.
func (d *FS) Sync(fd int, data bool) error {
	sync := unix.Fsync
	if data {
		sync = unix.Fdatasync
	}
	err := sync(fd)
	if errors.Is(err, unix.EBADF) { // open with O_PATH
		fd, err = unix.Open(ProcPath(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		opened := Owned(fd)
		defer opened.Close()
		err = sync(fd)
	}
	return cmp.Or(err, d.alive(fd))
}

// Commit commits a btrfs with all changes of names and attributes from before it. It writes no file's data.
func (d *FS) Commit(dir int) error {
	const startSync, waitSync = 0x80089418, 0x40089416 // BTRFS_IOC_START_SYNC, BTRFS_IOC_WAIT_SYNC, linux/btrfs.h
	opened, err := Reopen(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer opened.Close()
	var transaction uint64
	for _, request := range []uintptr{startSync, waitSync} {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(opened.FD()), request, uintptr(unsafe.Pointer(&transaction))); errno != 0 {
			return errno
		}
	}
	return d.alive(opened.FD())
}
