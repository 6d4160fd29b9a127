package testdisk

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Flags of a file, of linux/fs.h: FS_IMMUTABLE_FL, FS_APPEND_FL, and FS_NOCOW_FL.
const (
	immutable  = 0x10
	appendOnly = 0x20
	noCOW      = 0x800000
)

// Unwritable keeps everybody, root too, from writing a file until mend is called.
func Unwritable(t *testing.T, file string) (mend func()) {
	t.Helper()
	return withFlag(t, file, immutable)
}

// Untruncatable keeps everybody from truncating a file until mend is called, even those that have the right to write it.
func Untruncatable(t *testing.T, file string) (mend func()) {
	t.Helper()
	return withFlag(t, file, appendOnly)
}

func withFlag(t *testing.T, file string, flag uint32) (mend func()) {
	t.Helper()
	change := func(mode os.FileMode, set uint32) {
		t.Helper()
		f, err := os.Open(file)
		if set == 0 && errors.Is(err, os.ErrNotExist) {
			return // there is nothing to mend
		}
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if os.Getuid() == 0 { // whom no mode keeps from it
			var flags uint32
			if flags, err = unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS); err == nil {
				err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags&^flag|set))
			}
		} else {
			err = f.Chmod(mode)
		}
		if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) {
			t.Skip("the file system has no such files")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	change(0o400, flag)
	writable := false
	mend = func() {
		if !writable {
			change(0o600, 0)
			writable = true
		}
	}
	t.Cleanup(mend)
	return mend
}

// WithoutCOW has writes to an empty file of btrfs, or to those that will be made in a directory, go where the data is, or not if
// that is so: chattr +C and -C. On other file systems it does nothing.
func WithoutCOW(t *testing.T, file string, without bool) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil {
		flags &^= noCOW
		if without {
			flags |= noCOW
		}
		err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags))
	}
	if err != nil && !errors.Is(err, unix.ENOTTY) && !errors.Is(err, unix.EOPNOTSUPP) {
		t.Fatal(err)
	}
}
