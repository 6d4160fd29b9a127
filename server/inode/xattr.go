package inode

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
)

// Extended attributes of users, xattr(7). Clients name them without "user.", so no other attributes can be reached. The
// kernel checks the rights: a value takes the right to read the file, a change that to write it. Only regular
// files and directories have such attributes. The file is open with UseAttr, or through a Held.

// xattrListMax is how long the names of a file's attributes may become by a client: several calls may add some
// at once, and Linux lists no names that take more than disk.XattrListMax.
const xattrListMax = disk.XattrListMax - 16*256

// GetXattr reads the value of an attribute to p, which is best as large as disk.XattrMax, and returns its size. The
// error is ENODATA if there is none.
func (f *File) GetXattr(as actas.Thread, name []byte, p []byte) (int, error) {
	as.MustAct()
	if !f.hasXattrs() {
		return 0, unix.ENODATA
	}
	return f.getXattr(disk.XattrUser+string(name), p)
}

func (f *File) hasXattrs() bool { return f.Attr.IsRegular() || f.Attr.IsDir() }

// ListXattrs returns the names of the attributes. It takes the right to read the file, for which the kernel does
// not ask.
func (f *File) ListXattrs(as actas.Thread) ([]string, error) {
	if err := f.Access(as, MayRead); err != nil || !f.hasXattrs() {
		return nil, err
	}
	p := make([]byte, disk.XattrListMax)
	n, err := f.listXattrs(p)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range strings.SplitSeq(string(p[:n]), "\x00") {
		if name, is := strings.CutPrefix(name, disk.XattrUser); is && name != "" {
			names = append(names, name)
		}
	}
	return names, nil
}

// Flags of SetXattr, setxattr(2).
const (
	XattrCreate  = unix.XATTR_CREATE  // EEXIST if there is one
	XattrReplace = unix.XATTR_REPLACE // ENODATA if there is none
)

// SetXattr sets an attribute. The error is ENOSPC if the disk has no room for it with the file.
func (f *File) SetXattr(as actas.Thread, name, value []byte, flags int) error {
	as.MustAct()
	full := disk.XattrUser + string(name)
	switch {
	case !f.hasXattrs():
		return unix.EPERM
	case len(value) > disk.XattrMax:
		return unix.E2BIG
	}
	if n, err := f.listXattrs(nil); flags != XattrReplace && (errors.Is(err, unix.E2BIG) || n+len(full) >= xattrListMax) {
		if _, err := f.getXattr(full, nil); errors.Is(err, unix.ENODATA) {
			return unix.ENOSPC
		}
	}
	if err := f.enterCharge(); err != nil {
		return err
	}
	return f.changeXattr(len(full)+len(value), func() error {
		if f.isPath() {
			return unix.Setxattr(f.proc(), full, value, flags)
		}
		return unix.Fsetxattr(f.fd, full, value, flags)
	})
}

// RemoveXattr removes an attribute.
func (f *File) RemoveXattr(as actas.Thread, name []byte) error {
	as.MustAct()
	if !f.hasXattrs() {
		return unix.EPERM
	}
	if err := f.enterCharge(); err != nil {
		return err
	}
	full := disk.XattrUser + string(name)
	return f.changeXattr(0, func() error {
		if f.isPath() {
			return unix.Removexattr(f.proc(), full)
		}
		return unix.Fremovexattr(f.fd, full)
	})
}

// changeXattr has do set an extended attribute with so many bytes in its name and value, or remove one: then they are 0.
func (f *File) changeXattr(size int, do func() error) error {
	f.changed = true
	return f.changeIt(func() error {
		if a := f.Volume.Account; size > 0 && f.charge != nil {
			room, err := a.Reserve(a.ForXattr(size))
			if err != nil {
				return err
			}
			defer room.Release()
		}
		err := do()
		f.charge.ChangedXattr(f.fd)
		return err
	})
}

func (f *File) getXattr(name string, p []byte) (int, error) {
	if f.isPath() {
		return unix.Getxattr(f.proc(), name, p)
	}
	return unix.Fgetxattr(f.fd, name, p)
}

func (f *File) listXattrs(p []byte) (int, error) {
	if f.isPath() {
		return unix.Listxattr(f.proc(), p)
	}
	return unix.Flistxattr(f.fd, p)
}

// Alone is for a call that changes a file, and tells the change attribute from before and after.
type Alone struct {
	file *File
	was  uint64
	sure bool
}

// Alone begins to look whether other calls change the file. They are known together with those of some other files.
func (f *File) Alone() Alone {
	was := f.opener.versions.of(f.Volume, &f.ID).Load()
	return Alone{f, was, was&changesAtOnce == 0}
}

// Changes reports whether it is certain that since Alone there were so many changes, and none is under way.
func (a Alone) Changes(n uint64) bool {
	return a.sure && a.file.opener.versions.of(a.file.Volume, &a.file.ID).Load() == a.was+n*oneChange
}
