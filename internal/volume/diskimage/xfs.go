package diskimage

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From libxfs/xfs_fs.h, which golang.org/x/sys does not have.
const (
	xfsIocGeometry   = 0x80705864 // XFS_IOC_FSGEOMETRY_V1
	xfsIocGrow       = 0x4010586e // XFS_IOC_FSGROWFSDATA
	xfsIocSetReserve = 0xc0105872 // XFS_IOC_SET_RESBLKS
	xfsIocGetReserve = 0x80105873 // XFS_IOC_GET_RESBLKS
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

// reserve is struct xfs_fsop_resblks: the blocks that XFS keeps for its own essential
// operations.
type reserve struct {
	blocks, available uint64
}

func ioctl[T any](f *os.File, request uintptr, arg *T) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(arg))); errno != 0 {
		return errno
	}
	return nil
}

// grow grows the file, the loop device and the file system to the size, each if
// needed: a killed process may have grown only some.
func (i *Image) grow(size int64) error {
	info, err := i.file.Stat()
	if err != nil {
		return err
	}
	if has := info.Size(); has > size {
		i.log.Warn("disk image: larger than requested, keeping its size because an XFS can't shrink", "bytes", has, "asked", size)
		size = has
	} else if has < size {
		if err := i.file.Truncate(size); err != nil {
			return fmt.Errorf("make it larger: %w", err)
		}
		if err := i.file.Sync(); err != nil {
			return fmt.Errorf("make it larger: %w", err)
		}
	}
	if err := unix.IoctlSetInt(int(i.loop.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return fmt.Errorf("set the size of %s: %w", i.loop.Name(), err)
	}
	var g geometry
	if err := ioctl(i.xfs, xfsIocGeometry, &g); err != nil {
		return fmt.Errorf("read the size of the XFS: %w", err)
	}
	want := uint64(size) / uint64(g.blockSize)
	if want < g.dataBlocks+sizeStep/uint64(g.blockSize) {
		return nil
	}
	if err := ioctl(i.xfs, xfsIocGrow, &growth{blocks: want, inodesMax: g.inodesMax}); err != nil {
		return fmt.Errorf("make the XFS larger: %w", err)
	}
	i.log.Info("disk image: grown", "from", g.dataBlocks*uint64(g.blockSize), "bytes", size)
	return nil
}
