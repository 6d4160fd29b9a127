package exports

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/space"
)

// Ability is what a file system can do, or not.
type Ability int

// The abilities that file systems lack.
const (
	CanAllocate Ability = iota
	CanDeallocate
	CanClone
	CanXattr
	CanACL
	abilities // how many there are
)

// known is whether a file system has an ability, as far as somebody has wanted to know.
type known [abilities]atomic.Int32

const (
	isAble = 1 + iota
	isUnable
)

// Unable returns the error of an operation as it is, but for EOPNOTSUPP where the file system can do it with other
// files: that becomes EINVAL. Linux's client does not ask again, as long as the volume is mounted, for what it was told
// is not supported. The caller must be root.
func (v *Volume) Unable(what Ability, err error) error {
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	if v.isUnable(what) {
		return err
	}
	return unix.EINVAL
}

// HasXattrs reports whether files of the volume may have extended attributes of users. The caller must be root.
func (v *Volume) HasXattrs() bool { return !v.isUnable(CanXattr) }

// HasClones reports whether files of the volume may share blocks. The caller must be root.
func (v *Volume) HasClones() bool { return !v.isUnable(CanClone) }

// HasClones reports whether files in a directory, which is no volume's, may share blocks.
func HasClones(dir string) bool {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true // what is not known, the next call tells
	}
	d := disk.Owned(fd)
	defer d.Close()
	return !errors.Is(tryBlocks(fd, CanClone), unix.EOPNOTSUPP)
}

// HasACLs reports whether files of the volume may have POSIX ACLs. The caller must be root.
func (v *Volume) HasACLs() bool { return !v.isUnable(CanACL) }

// isUnable reports whether it is known that the file system can't do something.
func (v *Volume) isUnable(what Ability) bool {
	is := &v.known[what]
	if is.Load() == 0 {
		switch tried := v.try(what); {
		case tried == nil:
			is.Store(isAble)
		case errors.Is(tried, unix.EOPNOTSUPP):
			is.Store(isUnable)
		}
	}
	return is.Load() == isUnable
}

// try tries what a file system can do, with a file that has no name and no data.
func (v *Volume) try(what Ability) error {
	switch what {
	case CanXattr: // in the root's own attributes, where there is none of this name
		return v.tryXattr(disk.XattrUser + "podnas.none")
	case CanACL:
		return v.tryXattr("system.posix_acl_access")
	}
	return tryBlocks(int(v.Files.Root.Fd()), what)
}

// tryBlocks is try for what is done with blocks, in a directory.
func tryBlocks(dir int, what Ability) error {
	const block = 64 << 10 // no file system has larger ones
	fd, err := unix.Openat(dir, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	d := disk.Owned(fd)
	defer d.Close()
	if err := unix.Ftruncate(fd, 2*block); err != nil {
		return err
	}
	switch what {
	case CanAllocate:
		return disk.Fallocate(fd, 0, 0, block)
	case CanDeallocate:
		return disk.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, block)
	}
	return unix.IoctlFileCloneRange(fd, &unix.FileCloneRange{Src_fd: int64(fd), Src_length: block, Dest_offset: block})
}

// tryXattr asks for an extended attribute of the root, which need not be there.
func (v *Volume) tryXattr(name string) error {
	_, err := unix.Fgetxattr(int(v.Files.Root.Fd()), name, nil)
	if errors.Is(err, unix.ENODATA) {
		return nil
	}
	return err
}

// Statfs has the size and free space of a volume, in bytes and files, and the
// limits for names.
type Statfs struct {
	space.Room
	NameMax, LinkMax uint32
	BlockSize        uint32 // in bytes
}

// Statfs returns the size and free space of the volume. Snapshots have those of their volume, as they are on its file system.
func (v *Volume) Statfs() (Statfs, error) {
	if v.Of != nil && v.FSID == v.Of.FSID {
		return v.Of.Statfs()
	}
	if !v.Begin() {
		return Statfs{}, unix.ESTALE
	}
	defer v.Done()
	var st unix.Statfs_t
	// On XFS and ext4 statfs of a directory returns its project's limit as the size;
	// of a file it does not.
	if err := unix.Fstatfs(int(v.Files.Root.Fd()), &st); err != nil {
		return Statfs{}, fmt.Errorf("statfs: %w", err)
	}
	room := Statfs{
		Room: space.Room{
			Size:      uint64(space.BytesOf(st.Blocks, st.Bsize)),
			Free:      uint64(space.BytesOf(st.Bfree, st.Bsize)),
			Available: uint64(space.BytesOf(st.Bavail, st.Bsize)),
			Files:     st.Files,
			FreeFiles: st.Ffree,
		},
		NameMax: uint32(st.Namelen),
		LinkMax: linkMax(st.Type),

		BlockSize: uint32(st.Bsize),
	}
	if v.Account != nil {
		v.Account.LimitTo(&room.Room)
	}
	return room, nil
}

// linkMax is the maximum link count of a file. The kernel does not expose it:
// glibc's pathconf(3) has such a table too.
func linkMax(fsType int64) uint32 {
	switch fsType {
	case unix.EXT4_SUPER_MAGIC:
		return 65_000
	case unix.XFS_SUPER_MAGIC:
		return 1<<31 - 1
	case unix.BTRFS_SUPER_MAGIC:
		return 65_535
	}
	return 127 // glibc's guess
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
	if err := unix.Fstatfs(int(v.Files.Root.Fd()), &st); err != nil {
		return false
	}
	credit := space.BytesOf(st.Bavail, st.Bsize) / 16
	if credit < 4<<20 { // when it is nearly full, let the kernel decide
		return false
	}
	v.credit.Store(credit)
	return true
}
