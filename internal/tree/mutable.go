package tree

import (
	"os"

	"golang.org/x/sys/unix"
)

// Mutable clears the flags immutable and append-only of a file or directory,
// ioctl_iflags(2). A file system without such flags is no error.
func Mutable(f *os.File) error {
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return nil //nolint:nilerr // no flags
	}
	const keeps = 0x10 | 0x20 // FS_IMMUTABLE_FL, FS_APPEND_FL of linux/fs.h
	if flags&keeps == 0 {
		return nil
	}
	return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags&^keeps)
}

// mutableEntry is Mutable for a directory and an entry in it. Only files and
// directories have flags; it opens nothing else.
func mutableEntry(dir *os.File, name string) error {
	if err := Mutable(dir); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if t := st.Mode & unix.S_IFMT; t != unix.S_IFREG && t != unix.S_IFDIR {
		return nil
	}
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	return Mutable(f)
}
