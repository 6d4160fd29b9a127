package vfs

import (
	"syscall"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
)

// Extended attributes of users, xattr(7), of a file that is open with UseAttr. Names have no "user." in front. All is done as
// the caller, so that the kernel checks the rights, which the file's owner has not if the mode does not give them.

// xattrNameMax is the longest name of an extended attribute, without "user.".
const xattrNameMax = 255 - len(disk.XattrUser)

// checkXattr returns an error for an invalid name of an extended attribute. It may have slashes, and any bytes but zeros.
func checkXattr(name []byte) error {
	switch {
	case len(name) > xattrNameMax:
		return syscall.ENAMETOOLONG
	case len(name) == 0:
		return syscall.EINVAL
	}
	for _, c := range name {
		if c == 0 {
			return syscall.EINVAL
		}
	}
	return nil
}

// GetXattr reads the value of an extended attribute to p, and returns its size. The error is ENODATA if the file has none
// of this name.
func (c *Call) GetXattr(f *inode.File, name, p []byte) (n int, err error) {
	if err := checkXattr(name); err != nil {
		return 0, err
	}
	c.Of(f)
	err = c.AsCaller(func(u actas.Thread) error {
		n, err = f.GetXattr(u, name, p)
		return err
	})
	return n, err
}

// ListXattrs returns the names of the extended attributes.
func (c *Call) ListXattrs(f *inode.File) (names []string, err error) {
	c.Of(f)
	err = c.AsCaller(func(u actas.Thread) error {
		names, err = f.ListXattrs(u)
		return err
	})
	return names, err
}

// FileChange has the change attribute of a file before and after a change. Atomic is whether it is certain that no other
// call has changed the file in between. If not, After is as Before: a client must not take for its own what another one may
// have changed.
type FileChange struct {
	Before, After uint64
	Atomic        bool
}

// SetXattr sets an extended attribute, and syncs the file unless the volume is async. flags are those of
// inode.File.SetXattr.
func (c *Call) SetXattr(f *inode.File, name, value []byte, flags int) (FileChange, error) {
	return c.changeXattr(f, name, func(u actas.Thread) error { return f.SetXattr(u, name, value, flags) })
}

// RemoveXattr removes an extended attribute, and syncs the file unless the volume is async.
func (c *Call) RemoveXattr(f *inode.File, name []byte) (FileChange, error) {
	return c.changeXattr(f, name, func(u actas.Thread) error { return f.RemoveXattr(u, name) })
}

func (c *Call) changeXattr(f *inode.File, name []byte, do func(actas.Thread) error) (change FileChange, err error) {
	if err := checkXattr(name); err != nil {
		return change, err
	}
	if f.Volume.Options.ReadOnly {
		return change, exports.ErrReadOnly
	}
	c.Of(f)
	if err := c.blocksToChange(f, false); err != nil {
		return change, err
	}
	alone := f.Alone()
	if change.Before, _, err = f.StatChange(); err != nil {
		return change, err
	}
	change.After = change.Before
	if err := c.AsCaller(do); err != nil {
		return change, err
	}
	after, _, err := f.StatChange()
	if err == nil && alone.Changes(1) {
		change.After, change.Atomic = after, true
	}
	if err == nil && !f.Volume.Options.Async {
		err = c.Sync(f, false)
	}
	return change, err
}
