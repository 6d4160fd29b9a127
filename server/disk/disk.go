package disk

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

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

// Attr has the attributes of a file, from fstatat(2).
type Attr struct {
	Mode                uint32 // type and permission bits as in st_mode, inode(7)
	Nlink, UID, GID     uint32
	Size                int64
	Used                uint64 // bytes on the disk
	Ino                 uint64 // FS.Number
	Major, Minor        uint32 // of a device
	Atime, Mtime, Ctime time.Time

	Device uint64 // with Ino, what is counted by: FS.Inode
	Change uint64 // the change attribute, if the attributes were remembered; else 0
	Birth  int64  // in nanoseconds since 1970, if statx(2) has told; else 0
}

// AttrOf returns the attributes that fstat(2) has found.
func (d *FS) AttrOf(st *unix.Stat_t) Attr {
	return Attr{
		Mode:  st.Mode,
		Nlink: uint32(st.Nlink), // 64 bits on amd64, 32 on arm64
		UID:   st.Uid,
		GID:   st.Gid,
		Size:  st.Size,
		Used:  uint64(st.Blocks) * 512,
		Ino:   d.Number(InodeOf(st)),
		Major: unix.Major(st.Rdev),
		Minor: unix.Minor(st.Rdev),
		Atime: time.Unix(st.Atim.Unix()),
		Mtime: time.Unix(st.Mtim.Unix()),
		Ctime: time.Unix(st.Ctim.Unix()),

		Device: st.Dev,
	}
}

// AttrOfStatx returns the attributes that statx(2) has found.
func (d *FS) AttrOfStatx(st *unix.Statx_t) Attr {
	inode := InodeOfStatx(st)
	return Attr{
		Birth: BirthOf(st),

		Mode:  uint32(st.Mode),
		Nlink: st.Nlink,
		UID:   st.Uid,
		GID:   st.Gid,
		Size:  int64(st.Size),
		Used:  st.Blocks * 512,
		Ino:   d.Number(inode),
		Major: st.Rdev_major,
		Minor: st.Rdev_minor,
		Atime: time.Unix(st.Atime.Sec, int64(st.Atime.Nsec)),
		Mtime: time.Unix(st.Mtime.Sec, int64(st.Mtime.Nsec)),
		Ctime: time.Unix(st.Ctime.Sec, int64(st.Ctime.Nsec)),

		Device: inode.Device,
	}
}

// BirthOf is when a file was made, in nanoseconds since 1970, or 0 if statx(2) was not asked or the disk does not know.
func BirthOf(st *unix.Statx_t) int64 {
	if st.Mask&unix.STATX_BTIME == 0 {
		return 0
	}
	return st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
}

// StatOfNew is what an account looks at of a new inode.
func (d *FS) StatOfNew(a *Attr) (st unix.Stat_t) {
	i := d.Inode(a)
	st.Dev, st.Ino = i.Device, i.Number
	st.Mode, st.Nlink, st.Size, st.Blocks = a.Mode, 1, a.Size, int64(a.Used/512)
	return st
}

// IsRegular reports whether it is a regular file.
func (a *Attr) IsRegular() bool { return a.Mode&unix.S_IFMT == unix.S_IFREG }

// IsDir reports whether it is a directory.
func (a *Attr) IsDir() bool { return a.Mode&unix.S_IFMT == unix.S_IFDIR }

// IsSymlink reports whether it is a symbolic link.
func (a *Attr) IsSymlink() bool { return a.Mode&unix.S_IFMT == unix.S_IFLNK }

// Same reports whether attributes are those of the same file, whatever volumes it was found in.
func (a *Attr) Same(b *Attr) bool { return a.Ino == b.Ino && a.Device == b.Device }

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
