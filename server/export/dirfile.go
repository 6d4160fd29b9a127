package export

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// DirFile is a regular file opened by a Dir, which must stay open longer. It is read as an
// os.File. One goroutine at a time uses it.
type DirFile struct {
	*os.File
	dir  *Dir
	file *File // the same file, with the descriptor of os.File
}

// OpenFile opens a regular file, with O_RDONLY, O_WRONLY or O_RDWR, and creates it with O_CREAT.
// It refuses other types before opening them, because opening a fifo or
// a device has side effects.
func (d *Dir) OpenFile(name string, flags int, mode os.FileMode) (*DirFile, error) {
	a, err := d.Lstat(name)
	switch {
	case err == nil && !a.IsRegular():
		return nil, pathError("openat", name, unix.EINVAL)
	case errors.Is(err, os.ErrNotExist) && flags&unix.O_CREAT != 0:
		f, err := d.create("openat", name, func() (*File, error) { return d.dir.Create(name, uint32(mode.Perm())) })
		if err == nil {
			f.created = false // no call will find its descriptor by a handle
			return d.newDirFile(f, name), nil
		}
		if !errors.Is(err, os.ErrExist) { // it does if it was made meanwhile
			return nil, err
		}
	}
	f, err := d.dir.openAt([]byte(name), flags&unix.O_ACCMODE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0, within)
	if err != nil {
		return nil, pathError("openat", name, err)
	}
	if err = unix.EINVAL; f.Attr.IsRegular() {
		err = f.hold()
	}
	if err != nil {
		f.Close()
		return nil, pathError("openat", name, err)
	}
	return d.newDirFile(f, name), nil
}

// newDirFile makes the descriptor of f that of an os.File.
func (d *Dir) newDirFile(f *File, name string) *DirFile {
	own := f.own.take()
	return &DirFile{os.NewFile(uintptr(own.fd()), name), d, f}
}

// Write writes at the position that Seek has set.
func (f *DirFile) Write(p []byte) (int, error) {
	if f.file.charge == nil {
		return f.File.Write(p)
	}
	offset, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	done := 0
	for {
		var st unix.Stat_t
		n, err := f.file.charge.Write(f.file.fd, p[done:], offset+int64(done), &st)
		if done += n; !f.file.Volume.await(err) { // as in Dir.change
			_, seekErr := f.Seek(offset+int64(done), io.SeekStart)
			return done, errors.Join(err, seekErr)
		}
	}
}

// Truncate sets the size.
func (f *DirFile) Truncate(size int64) error {
	for {
		err := f.file.charge.Resize(f.file.fd, size, func() error { return f.File.Truncate(size) })
		if !f.file.Volume.await(err) {
			return err
		}
	}
}

// Sync syncs data and metadata.
func (f *DirFile) Sync() error { return f.file.syncAlone() }

// Close closes the file; some file systems then free its preallocated blocks. Call it once.
func (f *DirFile) Close() error {
	err := f.File.Close()
	if c := f.file.charge; c != nil {
		c.LookAt(int(f.dir.Fd()), f.Name())
	}
	f.file.Close()
	return err
}
