package diskimage

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/volume/xfs"
)

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
	from, grown, err := xfs.Grow(i.root, size, sizeStep)
	if grown {
		i.log.Info("disk image: grown", "from", from, "bytes", size)
	}
	return err
}
