package inode

import (
	"cmp"
	"errors"
	"math"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/space"
)

// Names change in one function for each kind: create, Link, remove and Rename. Each reserves what it may take, has
// File.change know of it, and tells the volume's index and its account of the names.
//
// The methods that make, remove or rename something are for a directory that is open with
// UseNames and whose names the caller has locked, LockNames.
//
// Those that create something return EEXIST if the name exists. Only the directory's
// default ACL restricts the mode: the process's umask is 0.

// Create makes a regular file. It stays open, because its creator will write to it next. withChange is whether its Attr are
// to have the change attribute: a caller that asks for that later has to look at the file again.
func (f *File) Create(as actas.Thread, name string, mode uint32, withChange bool) (*File, error) {
	made, err := f.create(as, name, func() (*File, error) {
		return f.openAt([]byte(name), unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, mode, disk.Within, withChange)
	})
	if err != nil {
		return nil, err
	}
	cached, unsynced := f.opener.cacheUnsynced(made.Volume, made.ID, UseWrite, made.own.Take(), made.charge)
	made.useCached(cached)
	if unsynced != nil {
		f.unsynced = append(f.unsynced, unsynced)
	}
	made.created, made.ownsCharge = true, false // the charge is the cached descriptor's
	return made, nil
}

// create makes a file with a name by do, in reserved space, and charges the volume for it.
func (f *File) create(as actas.Thread, name string, do func() (*File, error)) (child *File, err error) {
	as.MustAct()
	if err := component(name); err != nil {
		return nil, err
	}
	err = f.changeIt(func() error {
		room, err := f.roomFor(name, f.Volume.Account.ForNew())
		if err != nil {
			return err
		}
		defer room.Release()
		if child, err = do(); err != nil {
			return err
		}
		if child.Attr.Device == f.Volume.FS.Device {
			f.Volume.Snapshots.Made(child.Attr.Ino)
		}
		if a := f.Volume.Account; a != nil {
			st := child.Volume.FS.StatOfNew(&child.Attr)
			child.charge, child.ownsCharge = a.EnterNew(child.fd, &st), true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	child.isNew = true
	return child, nil
}

// createNode is create of what is opened after it was made.
func (f *File) createNode(as actas.Thread, name string, do func() error) (*File, error) {
	return f.create(as, name, func() (*File, error) {
		if err := do(); err != nil {
			return nil, err
		}
		return f.Lookup([]byte(name))
	})
}

// roomFor reserves space for a new file. If there is none, but the name exists, it
// returns no error, because the kernel will return EEXIST.
func (f *File) roomFor(name string, n space.Amount) (space.Reservation, error) {
	room, err := f.Volume.Account.Reserve(n)
	if err != nil {
		if _, taken := f.Volume.Files.Identify(f.fd, []byte(name)); taken == nil {
			return space.Reservation{}, nil
		}
	}
	return room, err
}

// Lacks reports whether it is certain that the directory has no such name.
func (f *File) Lacks(name string) bool {
	_, err := f.Volume.Files.Identify(f.fd, []byte(name))
	return errors.Is(err, unix.ENOENT)
}

// IDOf returns the FileID of what has a name in the directory.
func (f *File) IDOf(name []byte) (disk.FileID, error) { return f.Volume.Files.Identify(f.fd, name) }

// Unmake removes a name that this call has made, as far as it is still that of the file that was made, and
// nobody else uses that: no client has it open, it has no data, and no other name.
func (f *File) Unmake(as actas.Thread, made *File, name string) (removed bool, err error) {
	held := false
	f.opener.inodes.with(made.key(), func(i *inode) { held = i.isHeldLocked() })
	if !made.isNew || held {
		return false, nil
	}
	a, err := made.Stat()
	switch {
	case err != nil:
		return false, err
	case a.IsRegular() && a.Used > 0, !a.IsDir() && a.Nlink > 1:
		return false, nil
	}
	switch is, err := f.Volume.Files.Identify(f.fd, []byte(name)); {
	case err != nil:
		return false, err
	case is != made.ID:
		return false, nil
	}
	if a.IsDir() {
		err = f.Rmdir(as, name)
	} else {
		err = f.Remove(as, name)
	}
	return err == nil, err
}

// Mkdir makes a directory.
func (f *File) Mkdir(as actas.Thread, name string, mode uint32) (*File, error) {
	return f.createNode(as, name, func() error { return unix.Mkdirat(f.fd, name, mode) })
}

// Symlink makes a symbolic link.
func (f *File) Symlink(as actas.Thread, target, name string) (*File, error) {
	return f.createNode(as, name, func() error { return unix.Symlinkat(target, f.fd, name) })
}

// Types of Mknod, inode(7).
const (
	TypeFIFO   = unix.S_IFIFO
	TypeSocket = unix.S_IFSOCK
	TypeChar   = unix.S_IFCHR
	TypeBlock  = unix.S_IFBLK
)

// Mknod creates a fifo, a socket or a device. The error is EPERM for a device other than the character device 0:0,
// unless the thread is root and has CAP_MKNOD.
func (f *File) Mknod(as actas.Thread, name string, fileType, mode, major, minor uint32) (*File, error) {
	return f.createNode(as, name, func() error {
		return unix.Mknodat(f.fd, name, fileType|mode, int(unix.Mkdev(major, minor)))
	})
}

// Link gives the file another name, in a directory whose names the caller has locked. The
// error is EXDEV for another volume.
func (f *File) Link(as actas.Thread, dir *File, name string) error {
	as.MustAct()
	if err := component(name); err != nil {
		return err
	}
	if f.Volume != dir.Volume {
		return unix.EXDEV
	}
	if err := f.enterCharge(); err != nil {
		return err
	}
	held := f.opener.removing(f.key())
	if held != nil {
		defer f.opener.release(held)
	}
	return f.change(func() error { return f.link(as, held, dir, name) }, &f.ID, &dir.ID)
}

// link is Link within the change. held is the file if it stays when it loses its last name, or nil.
func (f *File) link(as actas.Thread, held *inode, dir *File, name string) error {
	if held != nil {
		held.lastName.Lock()
		defer held.lastName.Unlock()
		a, err := f.Stat()
		if err == nil && a.Nlink == 0 {
			err = unix.ENOENT // as the kernel has it: what is removed does not come back
		}
		if err != nil {
			return err
		}
	}
	room, err := dir.roomFor(name, space.ForName())
	if err != nil {
		return err
	}
	defer room.Release()
	index := f.Volume.Files.Observe()
	if err := f.linkAt(as, dir, name); err != nil {
		return err
	}
	f.settle() // names have their price on some disks, and the call may not look at the file again
	index.Saw(dir.fd, dir.Attr.Ino, []byte(name), f.Attr.Ino, false)
	return nil
}

// linkAt is linkat(2) with the caller's rights to the directory. With fs.protected_hardlinks, proc_sys_fs(5), the kernel wants the
// file's owner, too, where RFC 1813 section 3.3.15 does not. Whatever else it refuses with EPERM, it refuses again.
func (f *File) linkAt(as actas.Thread, dir *File, name string) error {
	do := func() error {
		// Without a path it needs CAP_DAC_READ_SEARCH, linkat(2).
		return unix.Linkat(unix.AT_FDCWD, f.proc(), dir.fd, name, unix.AT_SYMLINK_FOLLOW)
	}
	err := do()
	if errors.Is(err, unix.EPERM) {
		err = as.AsOwner(do)
	}
	return err
}

// settle charges the file's current usage, where the server counts.
func (f *File) settle() {
	if f.charge != nil {
		_, _ = f.Stat() // what can't be looked at stays as it was
	}
}

// Remove removes a name that is no directory.
func (f *File) Remove(as actas.Thread, name string) error { return f.remove(as, name, 0) }

// Rmdir removes an empty directory.
func (f *File) Rmdir(as actas.Thread, name string) error {
	return f.remove(as, name, unix.AT_REMOVEDIR)
}

func (f *File) remove(as actas.Thread, name string, flags int) error {
	as.MustAct()
	if err := component(name); err != nil {
		return err
	}
	v := f.victim(name)
	return f.change(func() error {
		index := f.Volume.Files.ChangeNames()
		defer index.End()
		v.take()
		v.makeOrphan(as, name)
		err := unix.Unlinkat(f.fd, name, flags)
		if err == nil {
			index.Unlinked(f.Attr.Ino, name, &v.id)
		}
		return v.taken(err)
	}, &f.ID, &v.id)
}

// Rename renames a file, and replaces an existing one like rename(2). If both names are of
// the same file nothing happens, and changed is false. The error is EXDEV for another volume.
func (f *File) Rename(as actas.Thread, name string, to *File, newName string) (changed bool, err error) {
	as.MustAct()
	if f.Volume != to.Volume {
		return false, unix.EXDEV
	}
	if err := errors.Join(component(name), component(newName)); err != nil {
		return false, unix.EINVAL
	}
	moved, err := f.Volume.Files.Identify(f.fd, []byte(name)) // its ctime changes
	unknown := err != nil
	entered, err := f.enterChange()
	if err != nil {
		return false, err
	}
	defer f.leaveChange(entered)
	if f.Volume.Snapshots.IsTaking() {
		replaced, _ := to.Volume.Files.Identify(to.fd, []byte(newName))
		f.Volume.Snapshots.Before(&f.ID, &to.ID, &replaced)
		f.Volume.Snapshots.Moves(&moved)
	}
	err = f.opener.changeInside(f.Volume, func() error {
		index := f.Volume.Files.ChangeNames()
		defer index.End()
		err := error(unix.EEXIST)
		if !unknown { // without asking before whether the new name is free
			err = f.renameTo(name, to, newName)
		}
		if err != nil {
			err = f.replace(as, name, to, newName, &moved, index)
		}
		if err == nil {
			index.Renamed(f.Attr.Ino, name, to.fd, to.Attr.Ino, newName, &moved)
			if a := f.Volume.Account; a != nil {
				a.Renamed(to.fd, newName)
			}
		}
		return err
	}, &f.ID, &to.ID, &moved)
	if errors.Is(err, errUnchanged) {
		return false, nil
	}
	return err == nil, err
}

// renameTo renames a file to a name that is free.
func (f *File) renameTo(name string, to *File, newName string) error {
	return f.Volume.Account.Rename(to.charge, false, to.settle, func() error {
		return unix.Renameat2(f.fd, name, to.fd, newName, unix.RENAME_NOREPLACE)
	})
}

// replace renames a file to the name of another one, unless it fails. The error is errUnchanged if both are the same.
func (f *File) replace(as actas.Thread, name string, to *File, newName string, moved *disk.FileID, index locate.NameChange) error {
	v := to.victim(newName)
	v.same = v.id == *moved && !moved.IsZero()
	return f.opener.changeInside(f.Volume, func() error {
		v.take()
		v.taking.Renamed(f.fd, name)
		if f.ID != to.ID || name != newName {
			v.makeOrphan(as, newName)
		}
		err := f.Volume.Account.Rename(to.charge, !v.id.IsZero(), to.settle, func() error {
			return unix.Renameat(f.fd, name, to.fd, newName)
		})
		switch {
		case err != nil:
		case v.same:
			err = errUnchanged
		default:
			index.Unlinked(to.Attr.Ino, newName, &v.id)
		}
		return v.taken(err)
	}, &v.id)
}

// victim is a file that is about to lose a name. If that is its last name, its
// cached descriptors must be closed to free its space, and its charge ends.
type victim struct {
	dir    *File
	name   string
	id     disk.FileID     // zero: nothing there, or nothing that is open or could be
	cached *descriptor     // of the file, nil: none
	own    disk.Descriptor // of the file if cached is nil, or none
	taking space.Taking
	held   *inode // nil: no client has it open
	linked bool   // held got its name for this
	same   bool   // it does not lose the name, because a rename gives it the same
	small  bool   // the kernel frees it in a moment, as is known before the change
}

// removed is what is still open of a file that has lost a name. The kernel frees a file with its last descriptor, and that
// takes as long as the file has extents, or data in memory: TestRemoveOfManyExtents. So nobody else may wait for it:
// LockedNames.Unlock closes this, and no change is under way then, which a snapshot would wait for. The call itself waits:
// its client finds the space free.
type removed struct {
	descriptors [uses]*descriptor // from the cache, where nobody finds them any more
	cached      *descriptor       // a use of one that is among these, or that others use, too
	left        *descriptor       // as cached
	own         disk.Descriptor
	held        *inode
	next        *removed // from the same directory
}

// victim begins it, before the name is removed.
func (f *File) victim(name string) victim {
	v := victim{dir: f, name: name}
	v.id, _ = f.Volume.Files.Identify(f.fd, []byte(name))
	v.small = f.Volume.Account == nil && f.opener.remembersSmall(f.Volume, &v.id)
	return v
}

// take opens the file, if it may take long to free or the server counts, and looks at it where the server counts.
func (v *victim) take() {
	if v.id.IsZero() || v.small {
		return
	}
	a := v.dir.Volume.Account
	if v.cached = v.dir.opener.inodes.get(v.dir.Volume, &v.id, UseAttr); v.cached == nil {
		if a == nil && v.isSmall() {
			return
		}
		var err error
		if v.own, err = disk.OpenEntry(v.dir.fd, v.name); err != nil {
			return
		}
	}
	switch {
	case a == nil:
	case v.cached == nil:
		v.taking = a.Take(v.own.FD())
	case v.cached.charge != nil:
		v.taking = v.cached.charge.Take(v.cached.fd)
	default:
		v.taking = a.Take(v.cached.fd)
	}
}

// smallMost is the size of a file that the kernel frees in a moment.
const smallMost = 64 << 10

// remembersSmall reports whether a file is known to be small. What somebody has changed directly on the disk does not matter.
func (o *Opener) remembersSmall(v *exports.Volume, id *disk.FileID) bool {
	ino := o.numberOf(v, id)
	if ino == 0 {
		return false
	}
	a, r := o.handles.AttrsOf(&v.Files, ino, o.versions.at(ino).Load(), 0, math.MaxInt64)
	return a != nil && locate.IDIn(r.Handle()) == *id && a.Size <= smallMost && a.Used <= smallMost
}

// isSmall looks whether the file is small, where that is not remembered. That costs a removal 1 us; to open and close each file,
// as if it were not, costs 3.
func (v *victim) isSmall() bool {
	var path [unix.NAME_MAX + 1]byte // ends with 0
	var st unix.Statx_t
	if copy(path[:unix.NAME_MAX], v.name) < len(v.name) {
		return false
	}
	err := disk.Statx(v.dir.fd, &path[0], unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_SIZE|unix.STATX_BLOCKS, &st)
	return err == nil && st.Size <= smallMost && st.Blocks*512 <= smallMost
}

// makeOrphan gives a file that clients hold open another name, if it is about to lose its last one. It
// does nothing where that fails, as on a full disk: then the file stays as long as this process has it
// open. Not checked: taken unlocks the names, if there are any.
//
// +checklocksignore
func (v *victim) makeOrphan(as actas.Thread, name string) {
	dir := v.dir
	if v.id.IsZero() {
		return
	}
	if v.held = dir.opener.removing(fileKey{dir.Volume.ID, v.id}); v.held == nil {
		return
	}
	v.held.lastName.Lock()
	if dir.Access(as, MayWrite|MayExec) == nil { // else it will not be removed
		v.linked = dir.opener.linkOrphan(v.held, dir, name)
	}
}

// taken ends it. err is the result of removing the name. Not checked: makeOrphan has locked the names, if there are any.
//
// +checklocksignore
func (v *victim) taken(err error) error {
	o := v.dir.opener
	if v.linked && err != nil {
		o.unlinkOrphan(v.held)
	}
	v.taking.Done(err)
	r := removed{cached: v.cached, own: v.own, held: v.held, next: v.dir.removed}
	if err == nil {
		r.descriptors, r.left = o.inodes.takeOutIdle(v.dir.Volume, v.id)
		if r.left != nil && !r.left.hasName() {
			for use, f := range o.inodes.takeOut(v.dir.Volume, v.id) {
				r.descriptors[use] = cmp.Or(f, r.descriptors[use])
			}
		}
	}
	if v.held != nil {
		v.held.lastName.Unlock()
	}
	if r != (removed{next: r.next}) {
		v.dir.removed = r.onHeap()
	}
	return err
}

// onHeap is a copy: only what has something open takes memory.
func (r removed) onHeap() *removed { return &r }

// close closes what is open of all of them; nil is nothing. No lock is held, and no change is under way.
func (r *removed) close(o *Opener) {
	for ; r != nil; r = r.next {
		if r.held != nil {
			o.release(r.held)
		}
		for _, f := range r.descriptors {
			f.close()
		}
		for _, f := range [...]*descriptor{r.cached, r.left} {
			if f != nil {
				o.inodes.release(f)
			}
		}
		r.own.Close()
	}
}
