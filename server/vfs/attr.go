package vfs

import (
	"errors"
	"syscall"
	"time"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/inode"
)

// Attrs are a file's attributes, if they are known.
type Attrs struct {
	disk.Attr

	Known bool
	// Change is the change attribute of a directory that was changed, if Call.WantChange is set.
	Change uint64
}

func known(a disk.Attr) Attrs { return Attrs{Attr: a, Known: a.Nlink > 0} }

// AttrsOf reads a file's attributes.
func AttrsOf(f *inode.File) Attrs {
	a, err := f.Stat()
	return Attrs{Attr: a, Known: err == nil}
}

// ErrNotSync means that a file has changed since the time that SetAttr's caller expected.
var ErrNotSync = errors.New("the file has changed meanwhile")

// SetAttr are the attributes to set of a file. Those that are nil do not change.
type SetAttr struct {
	Mode, UID, GID *uint32
	Size           *uint64
	Atime, Mtime   inode.SetTime
	// Umask is for a new file, and taken from Mode where the directory has no default ACL: umask(2).
	Umask uint32
	// ACLs replace both ACLs of a file. Of a mode beside them only setuid, setgid and the sticky bit count, RFC 8881 section
	// 6.4.1.3.
	ACLs *ACLs
}

// SetAttr sets attributes of a file that is open with UseAttr, and syncs it unless the volume is async.
// data is the same file, open with UseWrite, if a size is to be set. The error
// is ErrNotSync if expected is not nil and returns false for the file's ctime. After another error
// attr has what was not set; before and after are right then, too.
func (c *Call) SetAttr(f, data *inode.File, attr *SetAttr, expected func(ctime time.Time) bool) (before, after Attrs, err error) {
	before = AttrsOf(f)
	if expected != nil && (!before.Known || !expected(before.Ctime)) {
		err = ErrNotSync
	} else {
		err = c.setAttrs(f, data, attr)
	}
	after = AttrsOf(f)
	if f.Attr.IsDir() { // other calls may change its names meanwhile
		before = Attrs{}
	}
	if err != nil || f.Volume.Options.Async {
		return before, after, err
	}
	if data == nil {
		data = f
	}
	return before, after, c.Sync(data, false)
}

// setAttrs sets attributes of a file as the caller.
func (c *Call) setAttrs(f, data *inode.File, attr *SetAttr) error {
	if attr.Size != nil {
		if *attr.Size > MaxOffset {
			return syscall.EFBIG
		}
		if err := c.denied(data, true); err != nil {
			return err
		}
		if err := c.settleToResize(data); err != nil {
			return err
		}
	} else if _, err := c.awaitSnapshot(f, false); err != nil {
		return err
	}
	writer := false
	err := c.AsCaller(func(u actas.Thread) error {
		err := c.together.Do(f, data, func() error { return c.setAttr(u, f, data, attr) })
		writer = errors.Is(err, syscall.EPERM) && attr.touches(&f.Attr) && c.ask(u, f, &f.Attr, inode.MayWrite) == nil
		return err
	})
	if !writer {
		return err
	}
	return setTimes(actas.AsProcess(), f, attr)
}

// touches reports whether what is left to set is a regular file's mtime, to now. ftruncate(2) to the size that a file has, and
// open(2) with O_TRUNC of an empty one, do that, for which the right to write is enough: clients leave the size out then.
// utimensat(2) with UTIME_OMIT and UTIME_NOW, which is the owner's alone, sends the same, so it may be a writer's, too.
func (s *SetAttr) touches(a *disk.Attr) bool {
	return a.IsRegular() && s.Mtime.Set && s.Mtime.Now && !s.Atime.Set &&
		s.Size == nil && s.Mode == nil && s.UID == nil && s.GID == nil && s.ACLs == nil
}

// setAttr sets the owner first, because that clears setuid, and the times last, because the
// other changes update them. It is called in Together.Do.
func (c *Call) setAttr(u actas.Thread, f, data *inode.File, attr *SetAttr) error {
	if err := setOwner(u, f, attr); err != nil {
		return err
	}
	attr.UID, attr.GID = nil, nil
	if err := setModeAndACLs(u, f, attr); err != nil {
		return err
	}
	if attr.Size != nil {
		if err := c.ask(u, data, &f.Attr, inode.MayWrite); err != nil {
			return err
		}
		if err := data.Truncate(u, *attr.Size); err != nil {
			return err
		}
		attr.Size = nil
		// open(2) with O_TRUNC by a user that may write but does not own the file: the
		// client sets the size and this time, and setting the size has set the time.
		if !attr.Atime.Set && attr.Mtime.Set && attr.Mtime.Now {
			return nil
		}
	}
	return setTimes(u, f, attr)
}

// setModeAndACLs sets the ACLs first: a disk may have no room for them, and setting them may clear setgid.
func setModeAndACLs(u actas.Thread, f *inode.File, attr *SetAttr) error {
	if attr.Mode != nil && f.Attr.IsSymlink() { // EOPNOTSUPP is of no operation that sets a mode
		return syscall.EINVAL
	}
	if attr.ACLs != nil {
		if err := setACLs(u, f, *attr.ACLs, true, true); err != nil {
			return err
		}
		attr.ACLs = nil
		if attr.Mode != nil { // its rights are those of the ACL
			a, err := f.Stat()
			if err != nil {
				return err
			}
			mode := *attr.Mode&special | a.Mode&0o777
			attr.Mode = &mode
		}
	}
	if attr.Mode == nil {
		return nil
	}
	err := f.Chmod(u, *attr.Mode&(0o777|special))
	if err == nil {
		attr.Mode = nil
	}
	return err
}

// special are the bits of a mode that are no rights.
const special = syscall.S_ISUID | syscall.S_ISGID | syscall.S_ISVTX

func setOwner(u actas.Thread, f *inode.File, attr *SetAttr) error {
	if attr.UID == nil && attr.GID == nil {
		return nil
	}
	owner := func(id *uint32) (int, error) {
		switch {
		case id == nil:
			return inode.NoChange, nil
		case *id == 1<<32-1: // for chown(2) this means no change
			return 0, syscall.EINVAL
		}
		return int(*id), nil
	}
	uid, err := owner(attr.UID)
	if err != nil {
		return err
	}
	gid, err := owner(attr.GID)
	if err != nil {
		return err
	}
	return f.Chown(u, uid, gid)
}

func setTimes(u actas.Thread, f *inode.File, attr *SetAttr) error {
	if !attr.Atime.Set && !attr.Mtime.Set {
		return nil
	}
	return f.Chtimes(u, attr.Atime, attr.Mtime)
}
