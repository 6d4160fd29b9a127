package space

import (
	"encoding/binary"
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// aheadMax is how much past its end a file is charged for, in bytes: the blocks of its
// extent map and its attributes are less.
const aheadMax = 128 << 10

// Prices are an inode's charges beside its blocks.
type Prices struct {
	Inode int64 // bytes
	// ahead: the file system may later free a file's blocks past its end.
	ahead bool
	// PerName: directories have no blocks that grow with their names, so each name of
	// a file costs as much as an inode.
	PerName bool
}

// The size of an inode if the file system does not report it.
const (
	// ext4Inode is the size on all but the smallest disks. mkfs.ext4 allocates all
	// inodes, and there are never more.
	ext4Inode = 256
	// btrfsInode is its item and those of a name (reference, entry by hash and by number),
	// which mkfs.btrfs has on the disk twice: 829 bytes for an empty file with a name of
	// 20 bytes, by allocation/metadata/disk_used in /sys/fs/btrfs.
	btrfsInode = 1024
	// tmpfsInode is memory, of the inode and of the entry of its name: 1,137 bytes, by Slab
	// in /proc/meminfo.
	tmpfsInode = 1024
	otherInode = 512
)

// PricesOf are the prices on the disk of a directory.
func PricesOf(root *os.File) Prices {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(root.Fd()), &fs); err != nil {
		return Prices{Inode: otherInode}
	}
	switch fs.Type {
	case unix.XFS_SUPER_MAGIC:
		return Prices{Inode: xfsInode(root), ahead: true}
	case unix.EXT4_SUPER_MAGIC:
		return Prices{Inode: ext4Inode}
	case unix.BTRFS_SUPER_MAGIC:
		return Prices{Inode: btrfsInode, PerName: true}
	case unix.TMPFS_MAGIC:
		return Prices{Inode: tmpfsInode, PerName: true}
	}
	return Prices{Inode: otherInode}
}

// xfsInode returns the size of an inode on an XFS.
func xfsInode(root *os.File) int64 {
	// XFS_IOC_FSGEOMETRY_V1 and struct xfs_fsop_geom_v1, xfs_fs.h: its seventh number.
	const ioctl, size, inodeSizeAt = 0x80705864, 112, 24
	var geometry [size]byte
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, root.Fd(), ioctl, uintptr(unsafe.Pointer(&geometry)))
	if n := binary.NativeEndian.Uint32(geometry[inodeSizeAt:]); errno == 0 && n > 0 {
		return int64(n)
	}
	return otherInode
}

// of returns an inode's charge, in bytes, and the additional allocation past the end of
// a file.
func (p Prices) of(st *unix.Stat_t) (bytes, ahead int64) {
	bytes = BytesOf(uint64(st.Blocks), 512)
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		if most := addSizes(roundUp(st.Size), aheadMax); bytes > most {
			bytes, ahead = most, bytes-most
		}
	}
	names := uint64(1)
	if p.PerName && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		names = max(uint64(st.Nlink), 1) //nolint:unconvert // 32 bits on arm64
	}
	return addSizes(bytes, BytesOf(names, p.Inode)), ahead
}

// mayShrink reports whether the file system may free blocks past the file's end.
func (p Prices) mayShrink(st *unix.Stat_t) bool {
	return p.ahead && st.Mode&unix.S_IFMT == unix.S_IFREG && BytesOf(uint64(st.Blocks), 512) > roundUp(st.Size)
}

// Sizes and offsets come from clients and may be all that 63 bits hold, so sums of
// them stop at the largest number.

// blockSize is what space is allocated in, in bytes, on every file system that matters
// here.
const blockSize = 4096

// addSizes adds numbers of which the second is not negative.
func addSizes(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// roundUp is the end of the block that ends a size, which is not negative.
func roundUp(bytes int64) int64 { return addSizes(bytes, blockSize-1) &^ (blockSize - 1) }

// BytesOf is what a number of units has in bytes, at most the largest number.
func BytesOf(count uint64, unit int64) int64 {
	if unit <= 0 || count > uint64(math.MaxInt64/unit) {
		return math.MaxInt64
	}
	return int64(count) * unit
}
