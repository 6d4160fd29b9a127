package export

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/space"
)

// Attr has the attributes of a file, from fstatat(2).
type Attr struct {
	Mode                uint32 // type and permission bits as in st_mode, inode(7)
	Nlink, UID, GID     uint32
	Size                int64
	Used                uint64 // bytes on the disk
	Ino                 uint64 // disk.number
	Major, Minor        uint32 // of a device
	Atime, Mtime, Ctime time.Time

	device uint64 // with Ino, what is counted by: disk.inode
	change uint64 // the change attribute, if the attributes were remembered; else 0
}

func (d *disk) attrOf(st *unix.Stat_t) Attr {
	return Attr{
		Mode:  st.Mode,
		Nlink: uint32(st.Nlink), // 64 bits on amd64, 32 on arm64
		UID:   st.Uid,
		GID:   st.Gid,
		Size:  st.Size,
		Used:  uint64(st.Blocks) * 512,
		Ino:   d.number(space.InodeOf(st)),
		Major: unix.Major(st.Rdev),
		Minor: unix.Minor(st.Rdev),
		Atime: time.Unix(st.Atim.Unix()),
		Mtime: time.Unix(st.Mtim.Unix()),
		Ctime: time.Unix(st.Ctim.Unix()),

		device: st.Dev,
	}
}

// statOfNew is what an account looks at of a new inode.
func (d *disk) statOfNew(a *Attr) (st unix.Stat_t) {
	i := d.inode(a)
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
