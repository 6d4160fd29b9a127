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

// make creates a file in a directory, and adds the syncs unless the volume is async. A create that fails leaves
// nothing: f returns a file also with an error, and if that is a new one, it is removed again.
func (t *Task) make(dir *export.File, name []byte, attr *SetAttr, f func(name string) (*export.File, error)) (made Made, err error) {
	names, err := t.lock(dir, dir, &made.Dir, &made.Dir)
	defer t.unlock(names, dir, dir, &made.Dir, &made.Dir, true)
	if err := cmp.Or(err, checkNew(name)); err != nil {
		return made, err
	}
	if t.cantOwn(attr) && dir.Lacks(string(name)) { // else what is there decides
		return made, syscall.EPERM
	}
	object, err := f(string(name))
	if err != nil {
		if object != nil {
			t.unmake(dir, object, name)
			object.Close()
		}
		return made, err
	}
	t.Closes(object)
	latest, err := object.Latest()
	made.Object, made.Attr = object, Attrs{Attr: latest, Known: err == nil}
	if !dir.Volume.Options.Async && !object.ComesWithName() {
		t.Sync(object, false)
	}
	t.syncNames(dir)
	return made, nil
}

// cantOwn reports whether it is known that the caller may not give a new file, which is its own, the owner of
// attr: only root may give files away. Of groups only the kernel knows.
func (t *Task) cantOwn(attr *SetAttr) bool {
	return attr.UID != nil && *attr.UID != t.id.UID && t.id.UID != 0 && !t.service.workers.Only()
}

// Unmake removes a file that this call has made in a directory, for a call that fails after all. A file
// stays if somebody has begun to use it.
func (t *Task) Unmake(dir, made *export.File, name []byte) {
	var change Change
	names, err := t.lock(dir, dir, &change, &change)
	defer t.unlock(names, dir, dir, &change, &change, true)
	if err == nil {
		t.unmake(dir, made, name)
	}
}

// unmake is Unmake where the names are locked. If it fails, so has the call: there is nobody to tell.
func (t *Task) unmake(dir, made *export.File, name []byte) {
	if removed, _ := dir.Unmake(made, string(name)); removed {
		t.syncNames(dir)
	}
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

// Create creates a regular file. With Exclusive, attr must have neither a size nor times, and is set also if the
// file was there.
func (t *Task) Create(dir *export.File, name []byte, mode CreateMode, attr *SetAttr, verifier [8]byte) (Made, error) {
	return t.make(dir, name, attr, func(name string) (*export.File, error) {
		if attr.Size != nil && *attr.Size > MaxOffset {
			return nil, syscall.EFBIG // before there is a file
		}
		if mode == Exclusive {
			return t.createExclusive(dir, name, attr, verifier)
		}
		made, err := dir.Create(name, attr.mode())
		switch {
		case mode == Unchecked && errors.Is(err, syscall.EEXIST):
			return openExisting(dir, name, attr)
		case err != nil:
			return nil, err
		}
		if attr.Size != nil && *attr.Size != 0 {
			if err := made.Truncate(*attr.Size); err != nil {
				return made, err
			}
		}
		return made, setRest(made, attr)
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
	switch {
	case err != nil:
		return nil, err
	case !f.Attr.IsRegular():
		return f, syscall.EEXIST
	case attr.Size != nil:
		err = f.Truncate(*attr.Size)
	}
	return f, err
}

// createExclusive keeps the verifier in the new file's times, where a repeated
// call finds it.
func (t *Task) createExclusive(dir *export.File, name string, attr *SetAttr, verifier [8]byte) (*export.File, error) {
	// As signed numbers and without nanoseconds: every disk keeps those.
	atime := time.Unix(int64(int32(binary.BigEndian.Uint32(verifier[:4]))), 0)
	mtime := time.Unix(int64(int32(binary.BigEndian.Uint32(verifier[4:]))), 0)
	made, err := dir.Create(name, 0)
	switch {
	case errors.Is(err, syscall.EEXIST):
		found, lookupErr := dir.Lookup([]byte(name))
		if lookupErr != nil {
			return nil, lookupErr
		}
		if a := &found.Attr; !a.IsRegular() || !a.Atime.Equal(atime) || !a.Mtime.Equal(mtime) {
			return found, err
		}
		made = found // the call's repetition
	case err != nil:
		return nil, err
	default:
		if err := made.Chtimes(export.SetTime{Set: true, Time: atime}, export.SetTime{Set: true, Time: mtime}); err != nil {
			return made, err
		}
	}
	return made, t.setAttr(made, nil, attr)
}

// setRest sets the owner and the times of a new file.
func setRest(f *export.File, attr *SetAttr) error {
	return errors.Join(setOwner(f, attr), setTimes(f, attr))
}

// Mkdir creates a directory.
func (t *Task) Mkdir(dir *export.File, name []byte, attr *SetAttr) (Made, error) {
	return t.make(dir, name, attr, func(name string) (*export.File, error) {
		const special = syscall.S_ISUID | syscall.S_ISGID
		mode := attr.mode()
		made, err := dir.Mkdir(name, mode&^special)
		if err != nil {
			return nil, err
		}
		// mkdir(2) ignores setuid and setgid, but the directory may have
		// inherited setgid.
		if mode&special != 0 {
			if err := made.Chmod(mode | made.Attr.Mode&syscall.S_ISGID); err != nil {
				return made, err
			}
		}
		return made, setRest(made, attr)
	})
}

// Symlink creates a symbolic link. It has no mode.
func (t *Task) Symlink(dir *export.File, name, target []byte, attr *SetAttr) (Made, error) {
	return t.make(dir, name, attr, func(name string) (*export.File, error) {
		made, err := dir.Symlink(string(target), name)
		if err != nil {
			return nil, err
		}
		return made, setRest(made, attr)
	})
}

// Mknod creates a fifo, a socket, or a device with two numbers. Only root may create devices,
// and only if podnas has CAP_MKNOD.
func (t *Task) Mknod(dir *export.File, name []byte, fileType, major, minor uint32, attr *SetAttr) (Made, error) {
	return t.make(dir, name, attr, func(name string) (*export.File, error) {
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
		if err != nil {
			return nil, err
		}
		return made, setRest(made, attr)
	})
}
