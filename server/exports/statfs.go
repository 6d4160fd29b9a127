package exports

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/space"
)

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
