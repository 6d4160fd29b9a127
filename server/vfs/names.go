package vfs

import (
	"cmp"
	"errors"
	"syscall"

	"github.com/podnas/podnas/server/export"
)

// Change has a directory's attributes before and after an operation. No other call has changed
// its names in between.
type Change struct{ Before, After Attrs }

// nameMax is the maximum size of a name, in bytes.
const nameMax = 255

// checkName returns an error for an invalid name of a file that may exist.
func checkName(name []byte) error {
	switch {
	case len(name) > nameMax:
		return syscall.ENAMETOOLONG
	case !export.ValidName(name):
		return syscall.EINVAL
	}
	return nil
}

// checkNew returns an error for an invalid name of a new file. "." and ".." exist already.
func checkNew(name []byte) error {
	if string(name) == "." || string(name) == ".." {
		return syscall.EEXIST
	}
	return checkName(name)
}

// Lookup returns the attributes of a name in a directory, which is open with UseAttr, and
// appends its handle to the bytes given. It runs on any goroutine; done is false if only a worker
// can decide whether the caller may search the directory.
func (t *Task) Lookup(dir *export.File, name, handle []byte) (attr export.Attr, _ []byte, done bool, err error) {
	if !t.IsCaller() {
		if may, known := t.May(dir, export.MayExec); !dir.Attr.IsDir() || !known || !may {
			return attr, nil, false, nil
		}
	}
	switch {
	case !dir.Attr.IsDir():
		return attr, nil, true, syscall.ENOTDIR
	case string(name) == ".":
	default:
		if err := checkName(name); err != nil {
			return attr, nil, true, err
		}
	}
	attr, handle, err = dir.Describe(name, handle)
	return attr, handle, true, err
}

// The following are for a directory that is open with UseNames, on a goroutine that acts as
// the caller (IsCaller). They lock the directory's names themselves, so the caller must hold no
// such lock. The changes are synced before the next step, unless the volume is async.

// lock locks the names of one or two directories, whose attributes before a change go to inA and inB,
// until unlock has set those after it. After an error, as ESTALE for a directory that was removed, only unlock
// must follow.
func (t *Task) lock(a, b *export.File, inA, inB *Change) (names export.LockedNames, err error) {
	names = export.LockNames(a, b)
	inA.Before, err = t.before(a)
	if inB.Before = inA.Before; b.ID != a.ID && err == nil {
		inB.Before, err = t.before(b)
	}
	return names, err
}

// unlock ends a lock. changed is false only if it is certain that no name changed.
func (t *Task) unlock(names export.LockedNames, a, b *export.File, inA, inB *Change, changed bool) {
	defer names.Unlock()
	inA.After = t.after(a, changed)
	if inB.After = inA.After; b.ID != a.ID {
		inB.After = t.after(b, changed)
	}
}

func (t *Task) before(dir *export.File) (Attrs, error) {
	attr, err := dir.StatLocked()
	return t.withChange(dir, Attrs{Attr: attr, Known: err == nil}), err
}

func (t *Task) after(dir *export.File, changed bool) (a Attrs) {
	if changed {
		dir.Changed()
	}
	var err error
	if t.WantChange {
		a.Change, a.Attr, err = dir.StatChange()
	} else {
		a.Attr, err = dir.Stat()
	}
	if a.Known = err == nil; a.Known {
		dir.KeepLocked(a.Attr)
	}
	return a
}

// withChange adds the change attribute.
func (t *Task) withChange(dir *export.File, a Attrs) Attrs {
	if !t.WantChange || !a.Known {
		return a
	}
	var err error
	a.Change, a.Attr, err = dir.Change(a.Attr)
	a.Known = err == nil
	return a
}

// syncNames adds the sync of a directory.
func (t *Task) syncNames(dir *export.File) {
	if !dir.Volume.Options.Async {
		t.Sync(dir, false)
	}
}

// Remove removes a name that is no directory.
func (t *Task) Remove(dir *export.File, name []byte) (Change, error) {
	return t.remove(dir, name, (*export.File).Remove)
}

// Rmdir removes an empty directory.
func (t *Task) Rmdir(dir *export.File, name []byte) (Change, error) {
	return t.remove(dir, name, (*export.File).Rmdir)
}

// RemoveAny removes a name, and what it names if that is an empty directory.
func (t *Task) RemoveAny(dir *export.File, name []byte) (Change, error) {
	return t.remove(dir, name, func(dir *export.File, name string) error {
		err := dir.Remove(name)
		if errors.Is(err, syscall.EISDIR) {
			err = dir.Rmdir(name)
		}
		return err
	})
}

func (t *Task) remove(dir *export.File, name []byte, remove func(*export.File, string) error) (change Change, err error) {
	names, err := t.lock(dir, dir, &change, &change)
	defer t.unlock(names, dir, dir, &change, &change, true)
	if err := cmp.Or(err, checkName(name)); err != nil {
		return change, err
	}
	if err := remove(dir, string(name)); err != nil {
		return change, err
	}
	t.syncNames(dir)
	return change, nil
}

// Rename renames a file, and replaces an existing file with the new name. If both names are of one
// file nothing happens, not even to the change attributes: RFC 8881 section 18.26.3.
func (t *Task) Rename(from *export.File, name []byte, to *export.File, newName []byte) (inFrom, inTo Change, err error) {
	names, err := t.lock(from, to, &inFrom, &inTo)
	changed := true
	defer func() { t.unlock(names, from, to, &inFrom, &inTo, changed) }()
	if err := cmp.Or(err, checkName(name), checkName(newName)); err != nil {
		return inFrom, inTo, err
	}
	renamed, err := from.Rename(string(name), to, string(newName))
	if err != nil {
		return inFrom, inTo, err
	}
	if changed = renamed; !changed {
		return inFrom, inTo, nil
	}
	// The new name first: after a power cut the file may have both names, but never none.
	t.syncNames(to)
	if from.ID != to.ID {
		t.syncNames(from)
	}
	return inFrom, inTo, nil
}

// Link gives a file, open with UseAttr, another name in dir.
func (t *Task) Link(f, dir *export.File, name []byte) (change Change, err error) {
	names, err := t.lock(dir, dir, &change, &change)
	defer t.unlock(names, dir, dir, &change, &change, true)
	switch err := cmp.Or(err, checkNew(name)); {
	case err != nil:
		return change, err
	case f.Attr.IsDir():
		return change, syscall.EISDIR
	}
	if err := f.Link(dir, string(name)); err != nil {
		return change, err
	}
	t.syncNames(dir)
	return change, nil
}
