package gonfs

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"

	"github.com/go-git/go-billy/v5"

	"github.com/podnas/podnas/server/export"
)

// filesystem gives the library access to a volume: billy.Filesystem and
// billy.Change. Its paths are those of location.go. Its changes are synced when
// it returns, because the library promises that to clients. Its methods may be called
// concurrently.
type filesystem struct {
	id     uint64 // first, because the library compares file systems deeply
	opener *export.Opener
	volume *export.Volume
	tree   *tree
}

// place is a resolved path: a name in an open directory.
type place struct {
	*export.Dir
	name string
	// path of the directory; the file's own is joined.
	dirPath string
	// file is the file that the name must have, empty for any.
	file export.FileID
}

func (p *place) path() string { return path.Join(p.dirPath, p.name) }

// verify fails unless the place's name still leads to its file.
func (p *place) verify() error {
	if p.file.IsZero() {
		return nil
	}
	id, err := p.Identify(p.name)
	if err != nil {
		return err
	}
	if id != p.file {
		return errStale
	}
	return nil
}

// findRetries is how often a file that was renamed between FromHandle and its use
// is looked up again.
const findRetries = 3

// place opens the directory of a path and checks that it is the one that the
// library got. The caller closes it.
func (f *filesystem) place(s string) (*place, error) {
	l, err := parseLocation(s)
	if err != nil {
		return nil, err
	}
	for range findRetries {
		var p *place
		if p, err = f.open(l); err == nil || l.file.IsZero() {
			return p, err
		}
		var found error
		if l.path, found = f.tree.find(l.file); found != nil {
			return nil, found
		}
	}
	return nil, err
}

func (f *filesystem) open(l location) (*place, error) {
	p := &place{dirPath: l.path, name: l.name}
	if !l.named {
		p.dirPath, p.name, p.file = path.Dir(l.path), path.Base(l.path), l.file
	}
	dir, err := f.opener.OpenDir(f.volume, p.dirPath)
	if err != nil {
		return nil, err
	}
	p.Dir = dir
	if l.named {
		// The handle's file is the directory itself.
		id, err := dir.Identify("")
		if err == nil && id != l.file {
			err = errStale
		}
		if err != nil {
			return nil, errors.Join(err, dir.Close())
		}
		return p, nil
	}
	if err := p.verify(); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return p, nil
}

// identify returns the file at a path, and remembers it.
func (f *filesystem) identify(s string) (export.FileID, error) {
	p, err := f.place(s)
	if err != nil {
		return export.FileID{}, err
	}
	defer p.Close()
	id, err := p.Identify(p.name)
	if err == nil {
		f.tree.remember(id, p.path())
	}
	return id, err
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
	err := f.inPlace(name, func(p *place) (err error) {
		info.name = p.name
		info.attr, err = p.Lstat(p.name)
		return err
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

// ReadDir lists a directory.
func (f *filesystem) ReadDir(name string) ([]os.FileInfo, error) {
	p, err := f.place(name)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	dir, err := f.opener.OpenDir(f.volume, p.path())
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if id, err := dir.Identify(""); err != nil || !p.file.IsZero() && id != p.file {
		return nil, errors.Join(errStale, err)
	}
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	infos := make([]os.FileInfo, 0, len(names))
	for _, name := range names {
		attr, err := dir.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since it was listed
		}
		if err != nil {
			return nil, err
		}
		infos = append(infos, &fileInfo{name: name, attr: attr})
	}
	return infos, nil
}

// Open opens a file for reading.
func (f *filesystem) Open(name string) (billy.File, error) {
	return f.OpenFile(name, os.O_RDONLY, 0)
}

// Create opens a file and creates it if needed. It does not truncate: a CREATE that
// wants that has it in the attributes, RFC 1813 section 3.3.8, and the library sets
// them next.
func (f *filesystem) Create(name string) (billy.File, error) {
	return f.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
}

// OpenFile opens a regular file.
func (f *filesystem) OpenFile(name string, flags int, mode os.FileMode) (billy.File, error) {
	if flags == os.O_WRONLY|os.O_EXCL { // the library opens it to set its size
		return &resizer{fs: f, name: name}, nil
	}
	return f.openFile(name, flags, mode)
}

func (f *filesystem) openFile(name string, flags int, mode os.FileMode) (*file, error) {
	p, err := f.place(name)
	if err != nil {
		return nil, err
	}
	opened, err := p.OpenFile(p.name, flags, mode)
	if errors.Is(err, fs.ErrPermission) {
		opened, err = p.openOwn(flags)
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	file := &file{DirFile: opened, place: p, write: flags&(os.O_WRONLY|os.O_RDWR) != 0}
	id, err := export.Identify(opened.File)
	if err == nil && !p.file.IsZero() && id != p.file {
		err = errStale // replaced since the place was checked
	}
	if err == nil && flags&os.O_CREATE != 0 {
		err = p.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, opened.Close(), p.Close())
	}
	file.location = join(location{path: p.path(), file: id}.elements())
	f.tree.remember(id, p.path())
	return file, nil
}

// openOwn opens a file whose mode denies access to its owner, this process's user:
// as an ordinary user podnas can't bypass modes. A client may have made the file
// read-only and still have it open for writing, and NFS has no open: the owner may
// always read and write.
func (p *place) openOwn(flags int) (*export.DirFile, error) {
	attr, err := p.Lstat(p.name)
	if err != nil {
		return nil, err
	}
	mode := os.FileMode(attr.Mode) & os.ModePerm
	if !attr.IsRegular() || attr.UID != uint32(os.Geteuid()) {
		return nil, fs.ErrPermission
	}
	if err := p.Dir.Chmod(p.name, mode|0o600); err != nil {
		return nil, err
	}
	opened, err := p.OpenFile(p.name, flags, 0)
	if restored := p.Dir.Chmod(p.name, mode); restored != nil && err == nil {
		return nil, errors.Join(restored, opened.Close())
	}
	return opened, err
}

// MkdirAll creates one directory; the library checked its parent.
func (f *filesystem) MkdirAll(name string, mode os.FileMode) error {
	if mode == 755 {
		mode = 0o755 // the library's default lacks the 0o
	}
	return f.inPlace(name, func(p *place) error {
		return errors.Join(p.Mkdir(p.name, mode), p.Sync())
	})
}

// Symlink creates a symbolic link.
func (f *filesystem) Symlink(target, name string) error {
	return f.inPlace(name, func(p *place) error {
		return errors.Join(p.Symlink(target, p.name), p.Sync())
	})
}

// Readlink returns the target of a symbolic link.
func (f *filesystem) Readlink(name string) (target string, err error) {
	err = f.inPlace(name, func(p *place) error {
		target, err = p.Readlink(p.name)
		return err
	})
	return target, err
}

// Remove removes a file or an empty directory: the library does not distinguish
// REMOVE and RMDIR.
func (f *filesystem) Remove(name string) error {
	return f.inPlace(name, func(p *place) error {
		id, err := p.Identify(p.name)
		if err != nil {
			return err
		}
		if err := p.Dir.Remove(p.name); err != nil {
			return err
		}
		f.tree.forget(id, p.path())
		return p.Sync()
	})
}

// Rename moves a file.
func (f *filesystem) Rename(from, to string) error {
	return f.inPlace(from, func(p *place) error {
		return f.inPlace(to, func(q *place) error {
			id, err := p.Identify(p.name)
			if err != nil {
				return err
			}
			attr, err := p.Lstat(p.name)
			if err != nil {
				return err
			}
			replaced, replacedErr := q.Identify(q.name)
			err = p.Dir.Rename(p.name, q.Dir, q.name)
			if errors.Is(err, syscall.EDQUOT) {
				// The library would reply EIO, which means a failing disk; for a new name
				// it replies that this is not permitted.
				return fs.ErrPermission
			}
			if err != nil {
				return err
			}
			if replacedErr == nil && replaced != id {
				f.tree.forget(replaced, q.path())
			}
			f.tree.moved(id, p.path(), q.path(), attr.IsDir())
			return errors.Join(p.Sync(), q.Sync())
		})
	})
}

// Chmod sets the permission bits.
func (f *filesystem) Chmod(name string, mode os.FileMode) error {
	return f.change(name, func(p *place) error { return p.Dir.Chmod(p.name, mode) })
}

// Lchown sets the owner and the group.
func (f *filesystem) Lchown(name string, uid, gid int) error {
	return f.change(name, func(p *place) error { return p.Dir.Lchown(p.name, uid, gid) })
}

// Chown is Lchown.
func (f *filesystem) Chown(name string, uid, gid int) error { return f.Lchown(name, uid, gid) }

// Chtimes sets the times.
func (f *filesystem) Chtimes(name string, atime, mtime time.Time) error {
	return f.change(name, func(p *place) error { return p.Dir.Chtimes(p.name, atime, mtime) })
}

// inPlace calls do with the place of a path.
func (f *filesystem) inPlace(name string, do func(*place) error) error {
	p, err := f.place(name)
	if err != nil {
		return err
	}
	defer p.Close()
	return do(p)
}

// change sets attributes and syncs them.
func (f *filesystem) change(name string, do func(*place) error) error {
	return f.inPlace(name, func(p *place) error {
		if err := do(p); err != nil {
			return err
		}
		attr, err := p.Lstat(p.name)
		if err != nil || !attr.IsRegular() {
			// Anything else can only be synced with its directory; an ordinary
			// user may not be able to open the file any more.
			return errors.Join(err, p.Sync())
		}
		opened, err := p.OpenFile(p.name, os.O_RDONLY, 0)
		if errors.Is(err, fs.ErrPermission) {
			return p.Sync()
		}
		if err != nil {
			return err
		}
		return errors.Join(opened.Sync(), opened.Close())
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

// resizer is a file whose size the library sets. The library may forget to close
// it, so it is open only within Truncate; the library calls no other method of
// billy.File.
type resizer struct {
	billy.File
	fs   *filesystem
	name string
}

// Truncate sets the size.
func (r *resizer) Truncate(size int64) error {
	opened, err := r.fs.openFile(r.name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(opened.Truncate(size), opened.Close())
}

// Close does nothing.
func (r *resizer) Close() error { return nil }

// file is an open file. Its place stays open with it, so that the export does not
// end before it.
//
// The library forgets to close a file when one of its operations fails, so the
// file then closes itself.
type file struct {
	*export.DirFile
	place    *place
	location string
	write    bool
	past     bool // the position is beyond any file's maximum
	closed   bool
}

// Name is a path for the file system's own methods.
func (f *file) Name() string { return f.location }

// Write writes at the position that Seek has set.
func (f *file) Write(p []byte) (int, error) {
	if f.past {
		return 0, f.closeAfter(syscall.EFBIG)
	}
	n, err := f.DirFile.Write(p)
	return n, f.closeAfter(err)
}

// Seek sets the position. The library passes on a client's 64 bits unchecked; Write
// returns the error of an invalid offset.
func (f *file) Seek(offset int64, whence int) (int64, error) {
	n, err := f.DirFile.Seek(offset, whence)
	if f.past = f.write && errors.Is(err, syscall.EINVAL); f.past {
		return 0, nil
	}
	return n, f.closeAfter(err)
}

func (f *file) closeAfter(err error) error {
	if err != nil {
		err = errors.Join(err, f.Close())
	}
	return err
}

// Close syncs the written data, as the library promises. If the library calls it,
// then from the goroutine that used the file.
func (f *file) Close() error {
	if f.closed {
		return nil
	}
	f.closed = true
	var err error
	if f.write {
		err = f.Sync()
	}
	return errors.Join(err, f.DirFile.Close(), f.place.Close())
}

// Lock is not supported: NFSv3 has no locks.
func (f *file) Lock() error { return syscall.ENOTSUP }

// Unlock is not supported.
func (f *file) Unlock() error { return syscall.ENOTSUP }
