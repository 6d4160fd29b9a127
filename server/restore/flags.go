package restore

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/podnas/podnas/internal/tree"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/inode"
)

// despiteFlags calls do patiently, which changes a directory, or a name in it. Where a flag of chattr(1) keeps everybody from that,
// immutable or append-only, it clears the flags of both, which no snapshot has, and calls do again. name may be "": it is only the directory.
func (r *run) despiteFlags(dir disk.FileID, name string, do func() error) error {
	err := r.patiently(do)
	if !errors.Is(err, syscall.EPERM) {
		return err
	}
	switch other := r.clearFlags(dir, name); {
	case errors.Is(other, syscall.EPERM):
		return fmt.Errorf("%w: it or its directory is immutable or append-only, which podnas may not change: chattr -ia does", err)
	case other != nil:
		return other
	}
	return r.patiently(do)
}

// clearFlags clears the flags of a directory and of a name in it, if it is there.
func (r *run) clearFlags(dir disk.FileID, name string) error {
	d, err := r.open(dir, inode.UseAttr)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := r.clearFlagsOf(d); err != nil || name == "" {
		return err
	}
	f, err := d.Lookup([]byte(name))
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return r.clearFlagsOf(f)
}

// clearFlagsOf clears the flags of a file. Only regular files and directories have any; to open a device has effects.
func (r *run) clearFlagsOf(f *inode.File) error {
	if !f.Attr.IsRegular() && !f.Attr.IsDir() {
		return nil
	}
	d, err := r.to.Files.Open(f.ID, syscall.O_RDONLY|syscall.O_NONBLOCK)
	if err != nil {
		return err
	}
	opened := d.Take() // file closes it
	file := os.NewFile(uintptr(opened.FD()), "")
	defer func() { _ = file.Close() }() // only read from
	return tree.Mutable(file)
}

// cloneData has a file share the blocks of one of the snapshot. Where only one of them has the flag by which btrfs writes without a copy,
// it is emptied first, and gets the other's.
func (r *run) cloneData(to, from *inode.File) error {
	err := to.CloneFrom(r.as, from, 0, 0, 0)
	if !errors.Is(err, syscall.EINVAL) {
		return err
	}
	fd, failed := r.to.Files.Open(to.ID, syscall.O_RDONLY)
	if failed != nil {
		return failed
	}
	defer fd.Close()
	other, failed := r.from.Files.Open(from.ID, syscall.O_RDONLY)
	if failed != nil {
		return failed
	}
	defer other.Close()
	if tree.SameCOW(fd.FD(), other.FD()) {
		return err
	}
	if err := to.Truncate(r.as, 0); err != nil {
		return err
	}
	if err := tree.SwitchCOW(fd.FD()); err != nil {
		return err
	}
	return to.CloneFrom(r.as, from, 0, 0, 0)
}
