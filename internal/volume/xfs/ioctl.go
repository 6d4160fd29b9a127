package xfs

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From libxfs/xfs_fs.h and linux/fs.h, which golang.org/x/sys does not have.
const (
	iocGeometry   = 0x80705864 // XFS_IOC_FSGEOMETRY_V1
	iocGrow       = 0x4010586e // XFS_IOC_FSGROWFSDATA
	iocSetReserve = 0xc0105872 // XFS_IOC_SET_RESBLKS
	iocGetReserve = 0x80105873 // XFS_IOC_GET_RESBLKS
	iocFreeze     = 0xc0045877 // FIFREEZE
	iocThaw       = 0xc0045878 // FITHAW
)

// geometry is struct xfs_fsop_geom_v1.
type geometry struct {
	blockSize  uint32
	_          [6]uint32
	inodesMax  uint32 // percent of the space
	dataBlocks uint64
	_          [9]uint64
}

// growth is struct xfs_growfs_data.
type growth struct {
	blocks    uint64
	inodesMax uint32
	_         uint32
}

// Reserve is struct xfs_fsop_resblks: the blocks that XFS keeps for its own essential operations.
type Reserve struct {
	Blocks, Available uint64
}

func ioctl[T any](f *os.File, request uintptr, arg *T) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(arg))); errno != 0 {
		return errno
	}
	return nil
}

func readGeometry(root *os.File) (geometry, error) {
	var g geometry
	if err := ioctl(root, iocGeometry, &g); err != nil {
		return g, fmt.Errorf("read the size of the XFS: %w", err)
	}
	return g, nil
}

// Size returns the size in bytes of a file system of which a folder is open, with its log, which statfs leaves out.
func Size(root *os.File) (int64, error) {
	g, err := readGeometry(root)
	return int64(g.dataBlocks) * int64(g.blockSize), err
}

// Grow makes a file system larger, if that is worth at least step bytes. It returns what its size was, and whether it has
// grown.
func Grow(root *os.File, size, step int64) (from int64, grown bool, err error) {
	g, err := readGeometry(root)
	if err != nil {
		return 0, false, err
	}
	from = int64(g.dataBlocks) * int64(g.blockSize)
	want := uint64(size) / uint64(g.blockSize)
	if want < g.dataBlocks+uint64(step)/uint64(g.blockSize) {
		return from, false, nil
	}
	if err := ioctl(root, iocGrow, &growth{blocks: want, inodesMax: g.inodesMax}); err != nil {
		return from, false, fmt.Errorf("make the XFS larger: %w", err)
	}
	return from, true, nil
}

// GetReserve returns the reserve of a file system.
func GetReserve(root *os.File) (Reserve, error) {
	var r Reserve
	if err := ioctl(root, iocGetReserve, &r); err != nil {
		return r, fmt.Errorf("read the reserve of the XFS: %w", err)
	}
	return r, nil
}

// SetReserve sets how many blocks are reserved.
func SetReserve(root *os.File, blocks uint64) error {
	if err := ioctl(root, iocSetReserve, &Reserve{Blocks: blocks}); err != nil {
		return fmt.Errorf("set the reserve of the XFS: %w", err)
	}
	return nil
}

// WriteBack has the disk say what the file system's log says, the superblock's size included.
func WriteBack(root *os.File) error {
	var unused int32
	if err := ioctl(root, iocFreeze, &unused); err != nil {
		return fmt.Errorf("freeze the XFS: %w", err)
	}
	if err := ioctl(root, iocThaw, &unused); err != nil {
		return fmt.Errorf("thaw the XFS: %w", err)
	}
	return nil
}
