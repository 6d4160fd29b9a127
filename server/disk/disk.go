package disk

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// FS has the known properties of a volume's file system; it is zero for an
// unknown one.
type FS struct {
	// Type is its magic number, statfs(2), if the position of the inode's number in its
	// handles is known, see NumberIn.
	Type int64
	// Quick is whether fstat(2) never waits, because the attributes of open files are
	// in memory. Other file systems may have to query a server or a process.
	Quick bool
	// Journal is whether a system call changes a directory and creates the inode in
	// one transaction, which is on the disk when the directory is synced.
	Journal bool
	// Numbered is whether the number that a directory has for a name is the inode's, and no
	// other file of the volume has it.
	Numbered bool
	// Dirents is whether the number that a directory has for a name is the inode's, but for what is
	// mounted there, and for a subvolume.
	Dirents bool
	// Overlay is whether the files of one tree are on several devices.
	Overlay bool
	// Device is the volume's root's, set with the volume; on an overlay, that of all its directories.
	Device uint64
	// Settled is whether syncing a directory costs only a system call if its changes
	// are on the disk already. ext4 flushes the disk's cache then.
	Settled bool
	// NoAtime and RelAtime are how it is mounted, mount(8).
	NoAtime, RelAtime bool
}

// Of returns the properties of the file system that a volume's root is on.
func Of(root *os.File) FS {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(root.Fd()), &fs); err != nil {
		return FS{}
	}
	d := diskOfType(root, fs.Type)
	d.NoAtime, d.RelAtime = fs.Flags&unix.ST_NOATIME != 0, fs.Flags&unix.ST_RELATIME != 0
	return d
}

func diskOfType(root *os.File, fs int64) FS {
	switch fs {
	case unix.XFS_SUPER_MAGIC:
		return FS{Type: fs, Quick: true, Journal: true, Settled: true, Numbered: true, Dirents: true}
	case unix.EXT4_SUPER_MAGIC:
		return FS{Type: fs, Quick: true, Journal: ext4Journal(root), Numbered: true, Dirents: true}
	case unix.BTRFS_SUPER_MAGIC:
		return FS{Type: fs, Quick: true, Dirents: true}
	case unix.TMPFS_MAGIC:
		return FS{Type: fs, Quick: true, Dirents: true}
	case unix.OVERLAYFS_SUPER_MAGIC:
		return FS{Overlay: true}
	}
	return FS{}
}

// Inode identifies a file in its volume. On an overlay the number alone does not,
// because files and directories are on different devices.
type Inode struct{ Device, Number uint64 }

// InodeOf is the inode with these attributes.
func InodeOf(st *unix.Stat_t) Inode { return Inode{st.Dev, st.Ino} }

// ofLayer marks the numbers of files that are not on the device of an overlay's directories.
const ofLayer = 1 << 63

// Number is by what an inode is known in its volume. On an overlay whose layers are on several file systems,
// directories have numbers of the overlay's own, and other files those of their layer, so that one of each may
// have the same: see the table in Documentation/filesystems/overlayfs.rst.
func (d *FS) Number(i Inode) uint64 {
	if d.Overlay && i.Device != d.Device {
		return i.Number ^ ofLayer
	}
	return i.Number
}

// Inode is the inode that attributes are of. Number marks it once, from what the attributes have: a second mark would undo the
// first.
func (d *FS) Inode(a *Attr) Inode {
	return Inode{Device: a.Device, Number: d.Number(Inode{Device: a.Device, Number: a.Ino})}
}

// InodeOfStatx is InodeOf for statx(2).
func InodeOfStatx(st *unix.Statx_t) Inode {
	return Inode{Device: unix.Mkdev(st.Dev_major, st.Dev_minor), Number: st.Ino}
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
