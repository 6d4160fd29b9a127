package vfs

import (
	"cmp"
	"encoding/binary"
	"errors"
	"syscall"
	"time"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/inode"
)

// Made is a new file and its directory. Object is nil if it was not made; the call closes it.
type Made struct {
	Object *inode.File
	Attr   Attrs
	Dir    Change
	Found  *inode.File // the file that has the name already, if the mode is Finding or Unchecked

	unsynced bool // it is not on the disk with its directory
}

// maker makes a file in a directory as the caller. It returns the file also with an error: if that is
// a new one, it is removed again.
type maker func(u actas.Thread, name string) (*inode.File, error)

// make makes a file and syncs it, unless the volume is async.
func (c *Call) make(dir *inode.File, name []byte, attr *SetAttr, do maker) (Made, error) {
	made, err := c.makeUnsynced(dir, name, attr, do)
	if err == nil {
		err = c.SyncMade(dir, &made)
	}
	return made, err
}

// makeUnsynced makes a file. One that fails leaves nothing.
func (c *Call) makeUnsynced(dir *inode.File, name []byte, attr *SetAttr, do maker) (made Made, err error) {
	removed := false
	made.Dir, err = c.change(dir, func() error {
		if err := checkNew(dir, name); err != nil {
			return err
		}
		err := c.AsCaller(func(u actas.Thread) error {
			if c.cantOwn(attr) && dir.Lacks(string(name)) { // else what is there decides
				return syscall.EPERM
			}
			if err := attr.applyUmask(dir); err != nil {
				return err
			}
			return c.together.Do(dir, nil, func() error {
				object, err := do(u, string(name))
				if err != nil && object != nil {
					removed = unmake(u, dir, object, name)
					object.Close()
					return err
				}
				made.Object = object
				return err
			})
		})
		if err != nil {
			return err
		}
		c.Closes(made.Object)
		latest, err := made.Object.Latest(c.WantChange)
		made.Attr = Attrs{Attr: latest, Known: err == nil}
		made.unsynced = !dir.Volume.Options.Async && !made.Object.ComesWithName()
		return nil
	})
	if removed {
		_ = c.syncNames(dir) // the call has failed already
	}
	return made, err
}

// SyncMade syncs what CreateUnsynced has made, unless the volume is async.
func (c *Call) SyncMade(dir *inode.File, made *Made) error {
	if made.unsynced {
		if err := c.Sync(made.Object, false); err != nil {
			return err
		}
	}
	return c.syncNames(dir)
}

// youngFor is for how long a file may have a name that is not on the disk yet.
const youngFor = time.Minute

// SyncFound syncs what CreateUnsynced has found, if that is so new that the call that makes it may not have synced it yet, unless the
// volume is async. Else the one that has found it could lose it with the disk, as if it had never been there.
func (c *Call) SyncFound(dir, found *inode.File) error {
	if dir.Volume.Options.Async {
		return nil
	}
	born := found.Attr.Ctime
	if ns := found.Birth(); ns != 0 {
		born = time.Unix(0, ns)
	}
	if time.Since(born) > youngFor {
		return nil
	}
	return c.SyncMade(dir, &Made{Object: found, unsynced: !found.ComesWithName()})
}

// cantOwn reports whether it is known that the caller may not give a new file, which is its own, the owner of
// attr: only root may give files away. Of groups only the kernel knows.
func (c *Call) cantOwn(attr *SetAttr) bool {
	return attr.UID != nil && *attr.UID != c.id.UID && c.id.UID != 0 && !c.service.users.Only()
}

// Unmake removes a file that this call has made in a directory, for a call that fails after all. A file
// stays if somebody has begun to use it.
func (c *Call) Unmake(dir, made *inode.File, name []byte) {
	removed := false
	_, _ = c.change(dir, func() error {
		return c.AsCaller(func(u actas.Thread) error {
			removed = unmake(u, dir, made, name)
			return nil
		})
	})
	if removed {
		_ = c.syncNames(dir) // there is nobody to tell
	}
}

// unmake is Unmake where the names are locked. If it fails, so has the call: there is nobody to tell.
func unmake(u actas.Thread, dir, made *inode.File, name []byte) (removed bool) {
	removed, _ = dir.Unmake(u, made, string(name))
	return removed
}

// CreateMode is what Create does if the name exists.
type CreateMode uint8

// The modes of Create.
const (
	Unchecked CreateMode = iota // the file is opened, and its size set; not of CreateUnsynced
	Guarded                     // EEXIST
	Finding                     // EEXIST, and the file is opened
	Exclusive                   // EEXIST, unless it was created with the same verifier
)

// ErrFileType means that files of a type can't be created.
var ErrFileType = errors.New("not a type that can be made")

// Create, Mkdir, Symlink and Mknod create a file in a directory that is open with UseNames, and
// lock its names meanwhile: the caller must hold no such lock. If the error is that of a sync, the file was made.

// createAgain is how often Create looks at a name again whose file others remove.
const createAgain = 20

// Create creates a regular file. With Exclusive, attr must have neither a size nor times, and is set also if the
// file was there.
func (c *Call) Create(dir *inode.File, name []byte, mode CreateMode, attr *SetAttr, verifier [8]byte) (made Made, err error) {
	finds := mode
	if mode == Unchecked {
		finds = Finding
	}
	for range createAgain {
		made, err = c.CreateUnsynced(dir, name, finds, attr, verifier)
		if mode != Unchecked || made.Found == nil {
			break
		}
		if err = c.openExisting(&made, attr); !errors.Is(err, syscall.ESTALE) {
			break
		}
	}
	if err == nil {
		err = c.SyncMade(dir, &made)
	}
	return made, err
}

// openExisting is Create of an existing name. Of the attributes only the size is for an existing file. It is set
// when the names are free: that waits for a CLONE of the file. The error is ESTALE if the file was removed meanwhile.
func (c *Call) openExisting(made *Made, attr *SetAttr) error {
	f := made.Found
	if !f.Attr.IsRegular() {
		return syscall.EEXIST
	}
	if attr.Size != nil {
		data, err := c.Open(f.Handle(), inode.UseWrite)
		if err != nil {
			return err
		}
		if err := c.denied(data, true); err != nil {
			return err
		}
		if err := c.settleToResize(data); err != nil {
			return err
		}
		err = c.AsCaller(func(u actas.Thread) error {
			if err := f.Access(u, inode.MayWrite); err != nil { // also of the owner, as open(2)
				return err
			}
			return data.Truncate(u, *attr.Size)
		})
		if err != nil {
			return err
		}
	}
	made.Object, made.Attr, made.unsynced = f, AttrsOf(f), !f.Volume.Options.Async
	return nil
}

// CreateUnsynced is Create, but the file must be synced with SyncMade before the call is answered.
func (c *Call) CreateUnsynced(dir *inode.File, name []byte, mode CreateMode, attr *SetAttr, verifier [8]byte) (Made, error) {
	var found *inode.File
	made, err := c.makeUnsynced(dir, name, attr, func(u actas.Thread, name string) (*inode.File, error) {
		if attr.Size != nil && *attr.Size > MaxOffset {
			return nil, syscall.EFBIG // before there is a file
		}
		if mode == Exclusive {
			return c.createExclusive(u, dir, name, attr, verifier)
		}
		bits, later := attr.mode(), uint32(0)
		if attr.Size != nil && *attr.Size != 0 { // truncate(2) takes setuid and setgid off
			later = bits & (syscall.S_ISUID | syscall.S_ISGID)
		}
		made, err := dir.Create(u, name, bits&^later, c.WantChange)
		switch {
		case mode == Finding && errors.Is(err, syscall.EEXIST):
			var lookupErr error
			found, lookupErr = dir.Lookup([]byte(name))
			return nil, cmp.Or(lookupErr, err)
		case err != nil:
			return nil, err
		}
		if attr.Size != nil && *attr.Size != 0 {
			if err := made.Truncate(u, *attr.Size); err != nil {
				return made, err
			}
		}
		if later != 0 {
			if err := made.Chmod(u, later|made.Attr.Mode&0o7777); err != nil {
				return made, err
			}
		}
		return made, setRest(u, made, attr)
	})
	if found != nil {
		c.Closes(found)
		made.Found = found
	} else if mode == Finding && errors.Is(err, syscall.EEXIST) {
		made.Found, _ = c.Snapshots(dir, name) // else err says why
	}
	return made, err
}

// applyUmask takes the umask from the mode of what is made in a directory, unless that has a default ACL, as the kernel does
// by the umask of a process. Threads have none of their own. Who removes the default ACL at the same moment owns the
// directory, and could as well have set one that gives more.
func (a *SetAttr) applyUmask(dir *inode.File) error {
	if a.Umask == 0 || a.Mode == nil {
		return nil
	}
	inherits, err := dir.HasDefaultACL()
	if err != nil || inherits {
		return err
	}
	mode := *a.Mode &^ a.Umask
	a.Mode = &mode
	return nil
}

// mode is what a new file is made with. One that gets ACLs has no rights before.
func (a *SetAttr) mode() uint32 {
	switch {
	case a.Mode == nil:
		return 0
	case a.ACLs != nil:
		return *a.Mode & special
	}
	return *a.Mode & (0o777 | special)
}

// createExclusive keeps the verifier in the new file's times, where a repeated
// call finds it.
func (c *Call) createExclusive(u actas.Thread, dir *inode.File, name string, attr *SetAttr, verifier [8]byte) (*inode.File, error) {
	// As signed numbers and without nanoseconds: every disk keeps those.
	atime := time.Unix(int64(int32(binary.BigEndian.Uint32(verifier[:4]))), 0)
	mtime := time.Unix(int64(int32(binary.BigEndian.Uint32(verifier[4:]))), 0)
	made, err := dir.Create(u, name, attr.mode(), c.WantChange)
	attr.Mode = nil // it has that already, and chmod(2) would go beyond the directory's default ACL
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
		if err := made.Chtimes(u, inode.SetTime{Set: true, Time: atime}, inode.SetTime{Set: true, Time: mtime}); err != nil {
			return made, err
		}
	}
	return made, c.setAttr(u, made, nil, attr)
}

// setRest sets the owner, the ACLs and the times of a new file.
func setRest(u actas.Thread, f *inode.File, attr *SetAttr) error {
	err := setOwner(u, f, attr)
	if err == nil && attr.ACLs != nil {
		err = setACLs(u, f, *attr.ACLs, true, true)
	}
	return errors.Join(err, setTimes(u, f, attr))
}

// Mkdir creates a directory.
func (c *Call) Mkdir(dir *inode.File, name []byte, attr *SetAttr) (Made, error) {
	return c.make(dir, name, attr, func(u actas.Thread, name string) (*inode.File, error) {
		const ignored = syscall.S_ISUID | syscall.S_ISGID
		mode := attr.mode()
		made, err := dir.Mkdir(u, name, mode&^ignored)
		if err != nil {
			return nil, err
		}
		// mkdir(2) ignores setuid and setgid. A setgid that the directory has inherited chmod(2) would take from it, if
		// the caller is not in its group.
		if mode&ignored != 0 && made.Attr.Mode&syscall.S_ISGID == 0 {
			if err := made.Chmod(u, mode&ignored|made.Attr.Mode&0o7777); err != nil {
				return made, err
			}
		}
		return made, setRest(u, made, attr)
	})
}

// Symlink creates a symbolic link. It has no mode.
func (c *Call) Symlink(dir *inode.File, name, target []byte, attr *SetAttr) (Made, error) {
	return c.make(dir, name, attr, func(u actas.Thread, name string) (*inode.File, error) {
		made, err := dir.Symlink(u, string(target), name)
		if err != nil {
			return nil, err
		}
		return made, setRest(u, made, attr)
	})
}

// Mknod creates a fifo, a socket, or a device with two numbers. Only root may create devices,
// and only if podnas has CAP_MKNOD. The character device 0:0 is for everybody, as on a local disk since Linux 5.8: it leads
// to no device, and overlayfs marks with it what a layer removes.
func (c *Call) Mknod(dir *inode.File, name []byte, fileType, major, minor uint32, attr *SetAttr) (Made, error) {
	return c.make(dir, name, attr, func(u actas.Thread, name string) (*inode.File, error) {
		switch fileType {
		case inode.TypeFIFO, inode.TypeSocket:
		case inode.TypeChar, inode.TypeBlock:
			whiteout := fileType == inode.TypeChar && major == 0 && minor == 0
			if c.id.UID != 0 && !whiteout {
				return nil, syscall.EPERM
			}
			if major >= 1<<12 || minor >= 1<<20 { // mknod(2) would make another one
				return nil, syscall.EINVAL
			}
		default:
			return nil, ErrFileType
		}
		made, err := dir.Mknod(u, name, fileType, attr.mode(), major, minor)
		if err != nil {
			return nil, err
		}
		return made, setRest(u, made, attr)
	})
}
