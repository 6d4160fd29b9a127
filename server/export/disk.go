package export

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/space"
)

// disk has the known properties of a volume's file system; it is zero for an
// unknown one.
type disk struct {
	// fs is its magic number, statfs(2), if the position of the inode's number in its
	// handles is known, see numberIn.
	fs int64
	// quick is whether fstat(2) never waits, because the attributes of open files are
	// in memory. Other file systems may have to query a server or a process.
	quick bool
	// journal is whether a system call changes a directory and creates the inode in
	// one transaction, which is on the disk when the directory is synced.
	journal bool
	// numbered is whether the number that a directory has for a name is the inode's, and no
	// other file of the volume has it.
	numbered bool
	// dirents is whether the number that a directory has for a name is the inode's, but for what is
	// mounted there, and for a subvolume.
	dirents bool
	// overlay is whether the files of one tree are on several devices.
	overlay bool
	// device is the volume's root's, Volume.statRoot; on an overlay, that of all its directories.
	device uint64
	// settled is whether syncing a directory costs only a system call if its changes
	// are on the disk already. ext4 flushes the disk's cache then.
	settled bool
	// noatime and relatime are how it is mounted, mount(8).
	noatime, relatime bool
}

func diskOf(root *os.File) disk {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(root.Fd()), &fs); err != nil {
		return disk{}
	}
	d := diskOfType(root, fs.Type)
	d.noatime, d.relatime = fs.Flags&unix.ST_NOATIME != 0, fs.Flags&unix.ST_RELATIME != 0
	return d
}

func diskOfType(root *os.File, fs int64) disk {
	switch fs {
	case unix.XFS_SUPER_MAGIC:
		return disk{fs: fs, quick: true, journal: true, settled: true, numbered: true, dirents: true}
	case unix.EXT4_SUPER_MAGIC:
		return disk{fs: fs, quick: true, journal: ext4Journal(root), numbered: true, dirents: true}
	case unix.BTRFS_SUPER_MAGIC:
		return disk{fs: fs, quick: true, dirents: true}
	case unix.TMPFS_MAGIC:
		return disk{fs: fs, quick: true, dirents: true}
	case unix.OVERLAYFS_SUPER_MAGIC:
		return disk{overlay: true}
	}
	return disk{}
}

// ofLayer marks the numbers of files that are not on the device of an overlay's directories.
const ofLayer = 1 << 63

// number is by what an inode is known in its volume. On an overlay whose layers are on several file systems,
// directories have numbers of the overlay's own, and other files those of their layer, so that one of each may
// have the same: see the table in Documentation/filesystems/overlayfs.rst.
func (d *disk) number(i space.Inode) uint64 {
	if d.overlay && i.Device != d.device {
		return i.Number ^ ofLayer
	}
	return i.Number
}

// inode is the inode that attributes are of: to mark twice is not to mark.
func (d *disk) inode(a *Attr) space.Inode {
	return space.Inode{Device: a.device, Number: d.number(space.Inode{Device: a.device, Number: a.Ino})}
}

// inodeOf is space.InodeOf for statx(2).
func inodeOf(st *unix.Statx_t) space.Inode {
	return space.Inode{Device: unix.Mkdev(st.Dev_major, st.Dev_minor), Number: st.Ino}
}

// keepsAtime reports whether reading a file with these attributes does not change its atime, and has not
// just done so. With relatime the first time after a change does, and one each day.
func (d *disk) keepsAtime(a *Attr, now int64) bool {
	age := time.Duration(now - a.Atime.UnixNano())
	const day = 24 * time.Hour
	return age >= atimeSettles && (d.noatime || d.relatime && a.Atime.After(a.Mtime) && a.Atime.After(a.Ctime) && age < day-time.Minute)
}

// ext4Journal reports whether a file is on an ext4 with a journal, as most have.
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

// HasRoom reports whether the disk has space for n bytes of users other than root:
// ext4 reserves its last blocks for root. It reads the free space again after a
// sixteenth of it was used, so it can be wrong by what other programs have written
// meanwhile.
func (v *Volume) HasRoom(n int) bool {
	if v.credit.Add(-int64(n)) >= 0 {
		return true
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(v.root.Fd()), &st); err != nil {
		return false
	}
	credit := space.BytesOf(st.Bavail, st.Bsize) / 16
	if credit < 4<<20 { // when it is nearly full, let the kernel decide
		return false
	}
	v.credit.Store(credit)
	return true
}
