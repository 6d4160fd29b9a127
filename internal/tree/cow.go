package tree

import "golang.org/x/sys/unix"

// Flags of a file, of linux/fs.h.
const (
	flagCompressed = 0x4      // FS_COMPR_FL
	flagNoCOW      = 0x800000 // FS_NOCOW_FL: writes go where the data is, as databases on btrfs often have it
)

// SameCOW reports whether two files both have flagNoCOW, or both not: on btrfs only such files share blocks.
func SameCOW(fd, other int) bool {
	flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
	if err != nil {
		return true // there is no such flag
	}
	others, err := unix.IoctlGetInt(other, unix.FS_IOC_GETFLAGS)
	return err != nil || (flags^others)&flagNoCOW == 0
}

// SwitchCOW gives an empty file flagNoCOW if it does not have it, or clears it.
func SwitchCOW(fd int) error {
	flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
	if err != nil {
		return err
	}
	if flags ^= flagNoCOW; flags&flagNoCOW != 0 {
		flags &^= flagCompressed // which btrfs refuses beside it
	}
	return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, flags)
}
