package vfs

import (
	"cmp"
	"errors"
	"syscall"
	"time"

	"github.com/podnas/podnas/server/export"
)

// Attrs are a file's attributes, if they are known.
type Attrs struct {
	export.Attr

	Known bool
	// Change is the change attribute of a directory that was changed, if the task wants it.
	Change uint64
}

func known(a export.Attr) Attrs { return Attrs{Attr: a, Known: a.Nlink > 0} }

// AttrsOf reads a file's attributes.
func AttrsOf(f *export.File) Attrs {
	a, err := f.Stat()
	return Attrs{Attr: a, Known: err == nil}
}

// ErrNotSync means that a file has changed since the time that SetAttr's caller expected.
var ErrNotSync = errors.New("the file has changed meanwhile")

// SetAttr are the attributes to set of a file. Those that are nil do not change.
type SetAttr struct {
	Mode, UID, GID *uint32
	Size           *uint64
	Atime, Mtime   export.SetTime
}

// SetAttr sets attributes of a file that is open with UseAttr. data is the same file, open
// with UseWrite, if a size is to be set. The goroutine acts as the caller (IsCaller). The error
// is ErrNotSync if expected is not nil and returns false for the file's ctime. After another error
// attr has what was not set.
func (t *Task) SetAttr(f, data *export.File, attr *SetAttr, expected func(ctime time.Time) bool) (before, after Attrs, err error) {
	before = AttrsOf(f)
	defer func() { after = AttrsOf(f) }()
	if expected != nil && (!before.Known || !expected(before.Ctime)) {
		err = ErrNotSync
	} else {
		err = t.setAttr(f, data, attr)
	}
	if err == nil && !f.Volume.Options.Async {
		if data == nil {
			data = f
		}
		t.Sync(data, false)
	}
	if f.Attr.IsDir() { // other calls may change its names meanwhile
		before = Attrs{}
	}
	return before, after, err
}

// setAttr sets the owner first, because that clears setuid, and the times last, because the
// other changes update them.
func (t *Task) setAttr(f, data *export.File, attr *SetAttr) error {
	if attr.Size != nil && *attr.Size > MaxOffset {
		return syscall.EFBIG
	}
	if err := setOwner(f, attr); err != nil {
		return err
	}
	attr.UID, attr.GID = nil, nil
	if attr.Mode != nil {
		if f.Attr.IsSymlink() { // EOPNOTSUPP is of no operation that sets a mode
			return syscall.EINVAL
		}
		if err := f.Chmod(*attr.Mode & 0o7777); err != nil {
			return err
		}
		attr.Mode = nil
	}
	if attr.Size != nil {
		_, err := t.mayUse(data, &f.Attr, export.MayWrite) // known, as the goroutine acts as the caller
		if err := cmp.Or(t.denied(data, true), err); err != nil {
			return err
		}
		if err := data.Truncate(*attr.Size); err != nil {
			return err
		}
		attr.Size = nil
		// open(2) with O_TRUNC by a user that may write but does not own the file: the
		// client sets the size and this time, and setting the size has set the time.
		if !attr.Atime.Set && attr.Mtime.Set && attr.Mtime.Now {
			return nil
		}
	}
	return setTimes(f, attr)
}

func setOwner(f *export.File, attr *SetAttr) error {
	if attr.UID == nil && attr.GID == nil {
		return nil
	}
	owner := func(id *uint32) (int, error) {
		switch {
		case id == nil:
			return export.NoChange, nil
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
	return f.Chown(uid, gid)
}

func setTimes(f *export.File, attr *SetAttr) error {
	if !attr.Atime.Set && !attr.Mtime.Set {
		return nil
	}
	return f.Chtimes(attr.Atime, attr.Mtime)
}
