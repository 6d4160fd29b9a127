package disk

import (
	"time"

	"golang.org/x/sys/unix"
)

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
