package vfs

import (
	"cmp"
	"encoding/binary"
	"errors"
	"syscall"
	"time"

	"github.com/podnas/podnas/server/export"
)

// Made is a new file and its directory. Object is nil after an error; the task closes it.
type Made struct {
	Object *export.File
	Attr   Attrs
	Dir    Change
}

// make creates a file in a directory, and adds the syncs unless the volume is async.
func (t *Task) make(dir *export.File, name []byte, f func(name string) (*export.File, error)) (made Made, err error) {
	names, err := t.lock(dir, dir, &made.Dir, &made.Dir)
	defer t.unlock(names, dir, dir, &made.Dir, &made.Dir, true)
	if err := cmp.Or(err, checkNew(name)); err != nil {
		return made, err
	}
	object, err := f(string(name))
	if err != nil {
		return made, err
	}
	t.Closes(object)
	attr, err := object.Latest()
	made.Object, made.Attr = object, Attrs{Attr: attr, Known: err == nil}
	if !dir.Volume.Options.Async && !object.ComesWithName() {
		t.Sync(object, false)
	}
	t.syncNames(dir)
	return made, nil
}

// CreateMode is what Create does if the name exists.
type CreateMode uint8

// The modes of Create.
const (
	Unchecked CreateMode = iota // the file is opened, and its size set
	Guarded                     // EEXIST
	Exclusive                   // EEXIST, unless it was created with the same verifier
)

// ErrFileType means that files of a type can't be created.
var ErrFileType = errors.New("not a type that can be made")

// Create, Mkdir, Symlink and Mknod create a file in a directory that is open with UseNames, and
// lock its names meanwhile: the caller must hold no such lock. The goroutine acts as the caller
// (IsCaller).

// Create creates a regular file. With Exclusive it does not set attr: the client does that next.
func (t *Task) Create(dir *export.File, name []byte, mode CreateMode, attr *SetAttr, verifier [8]byte) (Made, error) {
	return t.make(dir, name, func(name string) (*export.File, error) {
		if attr.Size != nil && *attr.Size > MaxOffset {
			return nil, syscall.EFBIG // before there is a file
		}
		if mode == Exclusive {
			return createExclusive(dir, name, verifier)
		}
		made, err := dir.Create(name, attr.mode())
		if mode == Unchecked && errors.Is(err, syscall.EEXIST) {
			return openExisting(dir, name, attr)
		}
		return finish(made, err, func() error {
			if attr.Size != nil && *attr.Size != 0 {
				if err := made.Truncate(*attr.Size); err != nil {
					return err
				}
			}
			return setRest(made, attr)
		})
	})
}

func (a *SetAttr) mode() uint32 {
	if a.Mode == nil {
		return 0
	}
	return *a.Mode & 0o7777
}

// openExisting is Create of an existing name. Of the attributes only the size is for an existing
// file.
func openExisting(dir *export.File, name string, attr *SetAttr) (*export.File, error) {
	f, err := dir.Lookup([]byte(name))
	return finish(f, err, func() error {
		switch {
		case !f.Attr.IsRegular():
			return syscall.EEXIST
		case attr.Size != nil:
			return f.Truncate(*attr.Size)
		}
		return nil
	})
}

// createExclusive keeps the verifier in the new file's times, where a repeated
// call finds it.
func createExclusive(dir *export.File, name string, verifier [8]byte) (*export.File, error) {
	// As signed numbers and without nanoseconds: every disk keeps those.
	atime := time.Unix(int64(int32(binary.BigEndian.Uint32(verifier[:4]))), 0)
	mtime := time.Unix(int64(int32(binary.BigEndian.Uint32(verifier[4:]))), 0)
	made, err := dir.Create(name, 0)
	if errors.Is(err, syscall.EEXIST) {
		found, lookupErr := dir.Lookup([]byte(name))
		if lookupErr != nil {
			return nil, lookupErr
		}
		if a := &found.Attr; a.IsRegular() && a.Atime.Equal(atime) && a.Mtime.Equal(mtime) {
			return found, nil // the call's repetition
		}
		found.Close()
		return nil, err
	}
	return finish(made, err, func() error {
		return made.Chtimes(export.SetTime{Set: true, Time: atime}, export.SetTime{Set: true, Time: mtime})
	})
}

// finish sets what could not be set at creation, and closes the file if that fails.
func finish(f *export.File, err error, set func() error) (*export.File, error) {
	if err != nil {
		return nil, err
	}
	if err := set(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// setRest sets the owner and the times of a new file.
func setRest(f *export.File, attr *SetAttr) error {
	return errors.Join(setOwner(f, attr), setTimes(f, attr))
}

// Mkdir creates a directory.
func (t *Task) Mkdir(dir *export.File, name []byte, attr *SetAttr) (Made, error) {
	return t.make(dir, name, func(name string) (*export.File, error) {
		const special = syscall.S_ISUID | syscall.S_ISGID
		mode := attr.mode()
		made, err := dir.Mkdir(name, mode&^special)
		return finish(made, err, func() error {
			// mkdir(2) ignores setuid and setgid, but the directory may have
			// inherited setgid.
			if mode&special != 0 {
				if err := made.Chmod(mode | made.Attr.Mode&syscall.S_ISGID); err != nil {
					return err
				}
			}
			return setRest(made, attr)
		})
	})
}

// Symlink creates a symbolic link. It has no mode.
func (t *Task) Symlink(dir *export.File, name, target []byte, attr *SetAttr) (Made, error) {
	return t.make(dir, name, func(name string) (*export.File, error) {
		made, err := dir.Symlink(string(target), name)
		return finish(made, err, func() error { return setRest(made, attr) })
	})
}

// Mknod creates a fifo, a socket, or a device with two numbers. Only root may create devices,
// and only if podnas has CAP_MKNOD.
func (t *Task) Mknod(dir *export.File, name []byte, fileType, major, minor uint32, attr *SetAttr) (Made, error) {
	return t.make(dir, name, func(name string) (*export.File, error) {
		switch fileType {
		case export.TypeFIFO, export.TypeSocket:
		case export.TypeChar, export.TypeBlock:
			if t.id.UID != 0 {
				return nil, syscall.EPERM
			}
		default:
			return nil, ErrFileType
		}
		made, err := dir.Mknod(name, fileType, attr.mode(), major, minor)
		return finish(made, err, func() error { return setRest(made, attr) })
	})
}
