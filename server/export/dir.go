package export

import (
	"cmp"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Dir is an open directory of a volume for an engine that knows paths and no handles. It is read
// and synced as an os.File; File does the rest. Names passed to its methods are one
// component. Its methods never follow a symbolic link. Its errors contain the
// errno of the system call. They act as the process's user. Those that change names lock
// them, and wait until the free space of the volume is known, because go-nfs
// can't tell a client to try again. One goroutine at a time uses a Dir.
//
// The export does not end while a Dir is open.
type Dir struct {
	*os.File
	dir *File // the same directory, with the descriptor of os.File
}

// OpenDir opens a directory of a volume by its path below the volume's root; "."
// is the root itself. The path must not contain a symbolic link or enter another
// file system. After the export has ended the error is os.ErrClosed.
func (o *Opener) OpenDir(v *Volume, name string) (*Dir, error) {
	if !v.begin() {
		return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrClosed}
	}
	fd, err := unix.Openat2(int(v.root.Fd()), name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		v.calls.Done()
		return nil, &os.PathError{Op: "openat2", Path: name, Err: err}
	}
	f := o.newFile(v, descriptor{})
	f.use, f.fd = UseNames, fd
	return &Dir{os.NewFile(uintptr(fd), name), f}, nil
}

// Close releases the directory. Call it once.
func (d *Dir) Close() error {
	defer d.dir.Close()
	return d.File.Close()
}

// ValidName reports whether a client may use a name: one component that is not "."
// or "..". The file system limits its length.
func ValidName[T string | []byte](name T) bool {
	switch string(name) {
	case "", ".", "..":
		return false
	}
	for i := range len(name) {
		if name[i] == '/' || name[i] == 0 {
			return false
		}
	}
	return true
}

// Lstat returns the attributes of a file.
func (d *Dir) Lstat(name string) (Attr, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Attr{}, &os.PathError{Op: "fstatat", Path: name, Err: err}
	}
	return attrOf(&st), nil
}

// Identify returns the ID of a file, or of the directory itself if name is empty. It is that of
// go-nfs's handles.
func (d *Dir) Identify(name string) (FileID, error) {
	return inodes{}.identify(int(d.Fd()), []byte(name))
}

// change calls do, which changes the names of the directory and of another, which may be the
// same, by methods of File.
func (d *Dir) change(op, name string, other *Dir, do func() error) error {
	for {
		err := d.changeNow(other, do)
		if !d.dir.Volume.await(err) {
			return pathError(op, name, err)
		}
	}
}

func (d *Dir) changeNow(other *Dir, do func() error) error {
	if err := cmp.Or(d.dir.toChange(), other.dir.toChange()); err != nil {
		return err
	}
	defer LockNames(d.dir, other.dir).Unlock()
	defer other.dir.settle()
	defer d.dir.settle()
	return do()
}

// toChange gets the lock and the charge of the directory's names: most directories are opened
// only to find a file.
func (f *File) toChange() (err error) {
	if f.names != nil {
		return nil
	}
	if f.ID, err = f.Volume.finder.identify(f.fd, nil); err != nil {
		return err
	}
	if f.Attr, err = f.Stat(); err != nil {
		return err
	}
	f.enterNames()
	return f.hold()
}

// create calls do, which makes a file.
func (d *Dir) create(op, name string, do func() (*File, error)) (made *File, err error) {
	err = d.change(op, name, d, func() (err error) {
		made, err = do()
		return err
	})
	return made, err
}

// Mkdir makes a directory.
func (d *Dir) Mkdir(name string, mode os.FileMode) error {
	return closed(d.create("mkdirat", name, func() (*File, error) { return d.dir.Mkdir(name, uint32(mode.Perm())) }))
}

// Symlink makes a symbolic link.
func (d *Dir) Symlink(target, name string) error {
	return closed(d.create("symlinkat", name, func() (*File, error) { return d.dir.Symlink(target, name) }))
}

func closed(f *File, err error) error {
	if err == nil {
		f.Close()
	}
	return err
}

// Remove removes a file or an empty directory.
func (d *Dir) Remove(name string) error {
	return d.change("unlinkat", name, d, func() error {
		err := d.dir.Remove(name)
		if errors.Is(err, unix.EISDIR) {
			err = d.dir.Rmdir(name)
		}
		return err
	})
}

// Rename renames a file within the volume, and replaces an existing file like
// rename(2).
func (d *Dir) Rename(name string, to *Dir, newName string) error {
	return d.change("renameat", name, to, func() error { return d.dir.Rename(name, to.dir, newName) })
}

// entry calls do with a file.
func (d *Dir) entry(op, name string, do func(f *File) error) error {
	f, err := d.dir.Lookup([]byte(name))
	if err == nil {
		err = do(f)
		f.Close()
	}
	return pathError(op, name, err)
}

// Readlink returns the target of a symbolic link.
func (d *Dir) Readlink(name string) (target string, err error) {
	err = d.entry("readlinkat", name, func(f *File) error {
		b, err := f.Readlink()
		target = string(b)
		return err
	})
	return target, err
}

// Chmod sets the permission bits of a file. It ignores a symbolic link, which has none.
func (d *Dir) Chmod(name string, mode os.FileMode) error {
	return d.entry("chmod", name, func(f *File) error {
		if f.Attr.IsSymlink() {
			return nil
		}
		return f.Chmod(uint32(mode.Perm()))
	})
}

// Lchown sets the owner and the group of a file.
func (d *Dir) Lchown(name string, uid, gid int) error {
	return d.entry("fchownat", name, func(f *File) error { return f.Chown(uid, gid) })
}

// Chtimes sets the times of a file.
func (d *Dir) Chtimes(name string, atime, mtime time.Time) error {
	return d.entry("utimensat", name, func(f *File) error {
		return f.Chtimes(SetTime{Set: true, Time: atime}, SetTime{Set: true, Time: mtime})
	})
}

// Sync syncs the directory's names.
func (d *Dir) Sync() error { return d.dir.syncAlone() }

func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Path: name, Err: err}
}
