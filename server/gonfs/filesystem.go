package gonfs

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/go-git/go-billy/v5"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
)

// filesystem gives the library access to a volume: billy.Filesystem and billy.Change. Its paths are
// those of location.go. Its changes are synced when it returns, because the library promises that to
// clients. They wait until the free space of the volume is known, its restore has ended, or the disk has given room, because the
// library can't tell a client to try again. Everything is done as podnas's user. Its methods may be called concurrently.
type filesystem struct {
	id     uint64 // first, because the library compares file systems deeply
	opener *inode.Opener
	volume *exports.Volume
	conn   *conn // of the client; nil in tests
}

// open opens the file of a path. The caller closes it.
func (f *filesystem) open(path string, use inode.Use) (*inode.File, error) {
	l, err := parseLocation(path)
	if err != nil {
		return nil, err
	}
	if l.name == "" && !l.parent {
		return f.opener.OpenIn(f.volume, l.file, use)
	}
	at, err := f.opener.OpenIn(f.volume, l.file, inode.UseAttr)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	var found *inode.File
	if l.parent {
		found, err = f.opener.Parent(at)
	} else {
		found, err = at.Lookup([]byte(l.name))
	}
	if err != nil || use == inode.UseAttr {
		return found, err
	}
	defer found.Close()
	return f.opener.OpenIn(f.volume, found.ID, use)
}

// do calls use with the open file of a path.
func (f *filesystem) do(path string, use func(*inode.File) error) error {
	file, err := f.open(path, inode.UseAttr)
	if err != nil {
		return err
	}
	defer file.Close()
	return use(file)
}

// Capabilities returns what the library checks before a change.
func (f *filesystem) Capabilities() billy.Capability {
	if f.volume.Options.ReadOnly {
		return billy.ReadCapability | billy.SeekCapability
	}
	return billy.AllCapabilities
}

// Join joins elements to a path, see location.
func (f *filesystem) Join(elems ...string) string { return join(elems) }

// Lstat returns the attributes of a file. If it fails in a SETATTR with an error that
// the library does not know, the library reports success; it knows permission.
func (f *filesystem) Lstat(name string) (os.FileInfo, error) {
	info := &fileInfo{}
	err := f.do(name, func(file *inode.File) error {
		info.attr = file.Attr
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = errors.Join(fs.ErrPermission, err)
	}
	if err != nil {
		return nil, err
	}
	return info, nil
}

// Stat is Lstat: symbolic links are for the client to follow.
func (f *filesystem) Stat(name string) (os.FileInfo, error) { return f.Lstat(name) }

// listingSize is how many bytes of a directory are read at once.
const listingSize = 32 << 10

// ReadDir lists a directory.
func (f *filesystem) ReadDir(name string) (infos []os.FileInfo, err error) {
	err = f.do(name, func(dir *inode.File) error {
		if err := dir.Access(actas.AsProcess(), inode.MayExec); err != nil { // or no entry can be looked up
			return err
		}
		listing, err := dir.List(actas.AsProcess(), 0, listingSize)
		if err != nil {
			return err
		}
		defer listing.Close()
		for {
			entry, ok, err := listing.Next()
			if err != nil || !ok {
				return err
			}
			if !disk.ValidName(entry.Name) {
				continue // "." and ".."
			}
			attr, _, err := dir.Describe(entry.Name, nil)
			switch {
			case errors.Is(err, syscall.ENOENT): // removed since it was listed
			case errors.Is(err, syscall.EACCES): // a mount, which is not part of the volume
			case err != nil:
				return err
			default:
				infos = append(infos, &fileInfo{name: string(entry.Name), attr: attr})
			}
		}
	})
	return infos, err
}

// Readlink returns the target of a symbolic link.
func (f *filesystem) Readlink(name string) (target string, err error) {
	err = f.do(name, func(link *inode.File) error {
		b, err := link.Readlink()
		target = string(b)
		return err
	})
	return target, err
}

// names opens the directory of a client's name to change that.
func (f *filesystem) names(path string) (dir *inode.File, name string, err error) {
	l, err := parseLocation(path)
	if err == nil && l.name == "" {
		err = errBadName
	}
	if err != nil {
		return nil, "", err
	}
	dir, err = f.opener.OpenIn(f.volume, l.file, inode.UseNames)
	return dir, l.name, err
}

// locked calls change, which changes the names in one or two directories, while they are locked.
func (f *filesystem) locked(a, b *inode.File, change func() error) error {
	return f.awaited(func() error {
		defer inode.LockNames(a, b).Unlock()
		for _, dir := range []*inode.File{a, b} {
			if _, err := dir.StatLocked(); err != nil {
				return err
			}
		}
		defer func() { // charges what the directories have grown by
			_, _ = a.Stat()
			_, _ = b.Stat()
		}()
		return change()
	})
}

const (
	// againAfter is the pause before a change is tried again.
	againAfter = 50 * time.Millisecond
	// awaitedMost is how long it is tried: the library does the calls of a connection one after the other, and a node has one connection
	// for all of its mounts.
	awaitedMost = 30 * time.Second
)

// awaited calls change until it need not be tried again. It ends with the connection, whose client gets no answer then, and with the
// volume. After a while it closes the connection by itself: the client sends its calls again, and others get a turn.
func (f *filesystem) awaited(change func() error) error {
	for began := time.Now(); ; {
		err := change()
		if !errors.Is(err, syscall.EAGAIN) {
			return err
		}
		select {
		case <-time.After(againAfter):
		case <-f.volume.Ending():
			return errStale
		}
		if f.conn == nil {
			continue
		}
		if time.Since(began) > awaitedMost {
			_ = f.conn.Close() // there is no answer to write
		}
		if f.conn.gone() {
			return err
		}
	}
}

// make makes a file with a client's name: in does, in a directory.
func (f *filesystem) make(path string, in func(dir *inode.File, name string) (*inode.File, error)) (disk.FileID, error) {
	dir, name, err := f.names(path)
	if err != nil {
		return disk.FileID{}, err
	}
	defer dir.Close()
	var made *inode.File
	if err := f.locked(dir, dir, func() (err error) {
		made, err = in(dir, name)
		return err
	}); err != nil {
		return disk.FileID{}, err
	}
	defer made.Close()
	if !made.ComesWithName() {
		err = made.Sync(false)
	}
	return made.ID, cmp.Or(err, dir.Sync(false))
}

// Create makes a file if needed. It does not truncate: a CREATE that wants that has it in the
// attributes, RFC 1813 section 3.3.8, and the library sets them next.
func (f *filesystem) Create(path string) (billy.File, error) {
	id, err := f.make(path, func(dir *inode.File, name string) (*inode.File, error) {
		made, err := dir.Create(actas.AsProcess(), name, 0o644, false)
		if !errors.Is(err, syscall.EEXIST) {
			return made, err
		}
		made, err = dir.Lookup([]byte(name))
		if err == nil && !made.Attr.IsRegular() {
			made.Close()
			err = syscall.EEXIST
		}
		return made, err
	})
	if err != nil {
		return nil, err
	}
	return &madeFile{name: nameOf(id)}, nil
}

// MkdirAll creates one directory; the library checked its parent.
func (f *filesystem) MkdirAll(path string, mode os.FileMode) error {
	if mode == 755 {
		mode = 0o755 // the library's default lacks the 0o
	}
	_, err := f.make(path, func(dir *inode.File, name string) (*inode.File, error) {
		return dir.Mkdir(actas.AsProcess(), name, uint32(mode.Perm()))
	})
	return err
}

// Symlink creates a symbolic link.
func (f *filesystem) Symlink(target, path string) error {
	_, err := f.make(path, func(dir *inode.File, name string) (*inode.File, error) {
		return dir.Symlink(actas.AsProcess(), target, name)
	})
	return err
}

// Remove removes a file or an empty directory: the library does not distinguish
// REMOVE and RMDIR.
func (f *filesystem) Remove(path string) error {
	dir, name, err := f.names(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := f.locked(dir, dir, func() error {
		err := dir.Remove(actas.AsProcess(), name)
		if errors.Is(err, syscall.EISDIR) {
			err = dir.Rmdir(actas.AsProcess(), name)
		}
		return err
	}); err != nil {
		return err
	}
	return dir.Sync(false)
}

// Rename moves a file.
func (f *filesystem) Rename(from, to string) error {
	a, name, err := f.names(from)
	if err != nil {
		return err
	}
	defer a.Close()
	b, newName, err := f.names(to)
	if err != nil {
		return err
	}
	defer b.Close()
	err = f.locked(a, b, func() error {
		_, err := a.Rename(actas.AsProcess(), name, b, newName)
		return err
	})
	if errors.Is(err, syscall.EDQUOT) {
		// The library would reply EIO, which means a failing disk; for a new name
		// it replies that this is not permitted.
		return fs.ErrPermission
	}
	if err != nil {
		return err
	}
	// The new name first: after a power cut the file may have both names, but never none.
	return cmp.Or(b.Sync(false), a.Sync(false))
}

// set sets attributes and syncs them.
func (f *filesystem) set(path string, set func(*inode.File) error) error {
	return f.do(path, func(file *inode.File) error {
		return cmp.Or(f.awaited(func() error { return set(file) }), file.Sync(false))
	})
}

// Chmod sets the permission bits. It ignores a symbolic link, which has none.
func (f *filesystem) Chmod(path string, mode os.FileMode) error {
	return f.set(path, func(file *inode.File) error {
		if file.Attr.IsSymlink() {
			return nil
		}
		return file.Chmod(actas.AsProcess(), uint32(mode.Perm()))
	})
}

// Lchown sets the owner and the group.
func (f *filesystem) Lchown(path string, uid, gid int) error {
	return f.set(path, func(file *inode.File) error { return file.Chown(actas.AsProcess(), uid, gid) })
}

// Chown is Lchown.
func (f *filesystem) Chown(path string, uid, gid int) error { return f.Lchown(path, uid, gid) }

// Chtimes sets the times.
func (f *filesystem) Chtimes(path string, atime, mtime time.Time) error {
	return f.set(path, func(file *inode.File) error {
		return file.Chtimes(actas.AsProcess(), inode.SetTime{Set: true, Time: atime}, inode.SetTime{Set: true, Time: mtime})
	})
}

// TempFile, Chroot and Root belong to billy's interface; the library calls none.
func (f *filesystem) TempFile(string, string) (billy.File, error) {
	return nil, billy.ErrNotSupported
}

// Chroot is not supported.
func (f *filesystem) Chroot(string) (billy.Filesystem, error) { return nil, billy.ErrNotSupported }

// Root is the volume's export path.
func (f *filesystem) Root() string { return f.volume.Path }
