package vfs

import (
	"cmp"
	"errors"
	"syscall"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
)

// Change has a directory's attributes before and after an operation. No other call has changed
// its names in between.
type Change struct{ Before, After Attrs }

// nameMax is the maximum size of a name, in bytes.
const nameMax = 255

// checkOld returns an error for a name in a directory that can't be removed.
func checkOld(dir *inode.File, name []byte) error {
	if snapshotsAt(dir, name) != nil {
		return exports.ErrReadOnly
	}
	return checkName(name)
}

// checkName returns an error for an invalid name of a file that may exist.
func checkName(name []byte) error {
	switch {
	case len(name) > nameMax:
		return syscall.ENAMETOOLONG
	case !disk.ValidName(name):
		return syscall.EINVAL
	}
	return nil
}

// checkNew returns an error for an invalid name of a new file in a directory. "." and ".." exist already, and so do snapshots.
func checkNew(dir *inode.File, name []byte) error {
	if string(name) == "." || string(name) == ".." || snapshotsAt(dir, name) != nil {
		return syscall.EEXIST
	}
	return checkName(name)
}

// Lookup returns the attributes of a name in a directory, which is open with UseAttr, and
// appends its handle to the bytes given.
func (c *Call) Lookup(dir *inode.File, name, handle []byte) (attr disk.Attr, _ []byte, err error) {
	if !dir.Attr.IsDir() {
		return attr, nil, syscall.ENOTDIR
	}
	if string(name) != "." {
		if err := checkName(name); err != nil {
			return attr, nil, err
		}
	}
	if may, known := c.knownMay(dir, inode.MayExec); may || known && c.isProcess() {
		return dir.Describe(name, handle)
	}
	err = c.AsCaller(func(actas.Thread) error {
		attr, handle, err = dir.Describe(name, handle)
		return err
	})
	return attr, handle, err
}

// The following are for a directory that is open with UseNames. They lock the directory's names
// themselves, so the caller must hold no such lock, and sync what they have changed, unless the volume
// is async. What they return besides the error is right also if the error is that of a sync.

// lock locks the names of one or two directories, until unlock. Nobody has names locked and waits for a permit.
func (c *Call) lock(a, b *inode.File) (inode.LockedNames, error) {
	if err := c.mayWaitAgain(); err != nil {
		return inode.LockedNames{}, err
	}
	if names, ok := inode.TryLockNames(a, b); ok {
		return names, nil
	}
	c.wait()
	return inode.LockNamesInTurn(a, b, c.mayWaitAgain)
}

// lookBefore sets the attributes before a change of directories whose names are locked: inA is a's, inB is b's. The error is
// ESTALE for a directory that was removed.
func (c *Call) lookBefore(a, b *inode.File, inA, inB *Change) (err error) {
	inA.Before, err = c.before(a)
	if inB.Before = inA.Before; b.ID != a.ID && err == nil {
		inB.Before, err = c.before(b)
	}
	return err
}

// unlock ends a lock, and sets the attributes after the change.
func (c *Call) unlock(names inode.LockedNames, a, b *inode.File, inA, inB *Change) {
	defer names.Unlock()
	inA.After = c.after(a)
	if inB.After = inA.After; b.ID != a.ID {
		inB.After = c.after(b)
	}
}

func (c *Call) before(dir *inode.File) (a Attrs, err error) {
	if c.WantChange {
		a.Change, a.Attr, err = dir.StatChangeLocked()
	} else {
		a.Attr, err = dir.StatLocked()
	}
	a.Known = err == nil
	return a, err
}

func (c *Call) after(dir *inode.File) (a Attrs) {
	var err error
	if c.WantChange {
		a.Change, a.Attr, err = dir.StatChange()
	} else {
		a.Attr, err = dir.Stat()
	}
	if a.Known = err == nil; a.Known {
		dir.RememberLocked(a.Attr)
	}
	return a
}

// syncNames syncs a directory.
func (c *Call) syncNames(dir *inode.File) error {
	if dir.Volume.Options.Async {
		return nil
	}
	return c.Sync(dir, false)
}

// Remove removes a name that is no directory.
func (c *Call) Remove(dir *inode.File, name []byte) (Change, error) {
	return c.remove(dir, name, (*inode.File).Remove)
}

// Rmdir removes an empty directory.
func (c *Call) Rmdir(dir *inode.File, name []byte) (Change, error) {
	return c.remove(dir, name, (*inode.File).Rmdir)
}

// RemoveAny removes a name, and what it names if that is an empty directory.
func (c *Call) RemoveAny(dir *inode.File, name []byte) (Change, error) {
	return c.remove(dir, name, func(dir *inode.File, u actas.Thread, name string) error {
		err := dir.Remove(u, name)
		if errors.Is(err, syscall.EISDIR) {
			err = dir.Rmdir(u, name)
		}
		return err
	})
}

func (c *Call) remove(dir *inode.File, name []byte, remove func(*inode.File, actas.Thread, string) error) (Change, error) {
	if err := c.awaitSnapshotAt(dir, name); err != nil {
		return Change{}, err
	}
	change, err := c.change(dir, func() error {
		if err := checkOld(dir, name); err != nil {
			return err
		}
		if c.ownsNames(dir) {
			return remove(dir, actas.AsProcess(), string(name))
		}
		return c.AsCaller(func(u actas.Thread) error { return remove(dir, u, string(name)) })
	})
	if err == nil {
		err = c.syncNames(dir)
	}
	return change, err
}

// ownsNames reports whether the caller is known to have the right to remove the names in a directory, and to
// replace one by another: it owns the directory, the mode lets the owner write to it, and so a sticky bit does not
// keep the owner from it (unlink(2), rename(2)). Everything else that the kernel checks then, it checks for root, too.
func (c *Call) ownsNames(dir *inode.File) bool {
	const mayChange = syscall.S_IWUSR | syscall.S_IXUSR
	if c.isProcess() || c.id.UID != dir.Attr.UID {
		return false // the most frequent, without a system call
	}
	a, err := dir.Stat() // the mode may have changed since
	return err == nil && a.UID == c.id.UID && a.Mode&mayChange == mayChange
}

// change locks the names of a directory while do changes one.
func (c *Call) change(dir *inode.File, do func() error) (change Change, err error) {
	names, err := c.lock(dir, dir)
	if err != nil {
		return change, err
	}
	defer c.unlock(names, dir, dir, &change, &change)
	if err := c.lookBefore(dir, dir, &change, &change); err != nil {
		return change, err
	}
	return change, do()
}

// Rename renames a file, and replaces an existing file with the new name. If both names are of one
// file nothing happens, not even to the change attributes: RFC 8881 section 18.26.3.
func (c *Call) Rename(from *inode.File, name []byte, to *inode.File, newName []byte) (inFrom, inTo Change, err error) {
	changed, err := c.rename(from, name, to, newName, &inFrom, &inTo)
	if err != nil || !changed {
		return inFrom, inTo, err
	}
	// The new name first: after a power cut the file may have both names, but never none.
	if err = c.syncNames(to); err == nil && from.ID != to.ID {
		err = c.syncNames(from)
	}
	return inFrom, inTo, err
}

func (c *Call) rename(from *inode.File, name []byte, to *inode.File, newName []byte, inFrom, inTo *Change) (changed bool, err error) {
	if err := c.awaitSnapshotAt(to, newName); err != nil {
		return false, err
	}
	names, err := c.lock(from, to)
	if err != nil {
		return false, err
	}
	defer c.unlock(names, from, to, inFrom, inTo)
	if err := cmp.Or(c.lookBefore(from, to, inFrom, inTo), checkOld(from, name), checkOld(to, newName)); err != nil {
		return false, err
	}
	do := func(u actas.Thread) (err error) {
		changed, err = from.Rename(u, string(name), to, string(newName))
		return err
	}
	// Another directory takes the right to write to what is moved, too, if that is a directory; and ext4 reserves its
	// last blocks for root.
	if from.ID == to.ID && c.ownsNames(from) && from.Volume.HasRoom(0) {
		err = do(actas.AsProcess())
	} else {
		err = c.AsCaller(do)
	}
	return changed, err
}

// Link gives a file, open with UseAttr, another name in dir.
func (c *Call) Link(f, dir *inode.File, name []byte) (Change, error) {
	if _, err := c.awaitSnapshot(f, false); err != nil {
		return Change{}, err
	}
	change, err := c.change(dir, func() error {
		switch err := checkNew(dir, name); {
		case err != nil:
			return err
		case f.Attr.IsDir():
			return syscall.EISDIR
		}
		return c.AsCaller(func(u actas.Thread) error { return f.Link(u, dir, string(name)) })
	})
	if err == nil {
		err = c.syncNames(dir)
	}
	return change, err
}
