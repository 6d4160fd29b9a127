package export

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// disk is what is known of the file system that a volume is on. Of one that is not
// known here, nothing.
type disk struct {
	// fs is its magic number, statfs(2), if it is one whose handles have the inode's
	// number in a place that is known, see numberIn.
	fs int64
	// quick: what is open has its attributes in the kernel's memory, so that fstat(2)
	// never waits; elsewhere a server or a process may have to be asked.
	quick bool
	// journal: what a system call changes in a directory, and the inode that it makes,
	// are one transaction, which is on the disk when the directory is synced.
	journal bool
	// settled: to sync a directory is a system call and no more when its changes are on
	// the disk already. ext4 flushes the disk's cache then.
	settled bool
}

func diskOf(root *os.File) disk {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(root.Fd()), &fs); err != nil {
		return disk{}
	}
	switch fs.Type {
	case unix.XFS_SUPER_MAGIC:
		return disk{fs: fs.Type, quick: true, journal: true, settled: true}
	case unix.EXT4_SUPER_MAGIC:
		return disk{fs: fs.Type, quick: true, journal: ext4Journal(root)}
	case unix.BTRFS_SUPER_MAGIC:
		return disk{fs: fs.Type, quick: true}
	case unix.TMPFS_MAGIC:
		return disk{quick: true}
	}
	return disk{}
}

// ext4Journal tells whether a file is on an ext4 that has a journal, as most do.
func ext4Journal(f *os.File) bool {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false
	}
	device, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		return false
	}
	// The process that writes the journal, or "<none>": fs/ext4/sysfs.c. The drivers of
	// ext2 and ext3, which have the same number, have no such file.
	task, err := os.ReadFile(filepath.Join("/sys/fs/ext4", filepath.Base(device), "journal_task"))
	return err == nil && !strings.HasPrefix(string(task), "<")
}
