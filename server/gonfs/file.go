package gonfs

import (
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/go-git/go-billy/v5"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/inode"
)

// The library opens a file to read or write once, to set its size, and to make it. It calls no other
// methods of billy.File than those that are here.

// Open opens a regular file for reading.
func (f *filesystem) Open(path string) (billy.File, error) {
	return f.OpenFile(path, os.O_RDONLY, 0)
}

// OpenFile opens a regular file.
func (f *filesystem) OpenFile(path string, flags int, _ os.FileMode) (billy.File, error) {
	if flags == os.O_WRONLY|os.O_EXCL { // the library opens it to set its size
		return &resizer{fs: f, path: path}, nil
	}
	use := inode.UseRead
	if flags&(os.O_WRONLY|os.O_RDWR) != 0 {
		use = inode.UseWrite
	}
	open, err := f.open(path, use)
	if err != nil {
		return nil, err
	}
	return &file{fs: f, open: open, write: use == inode.UseWrite}, nil
}

// file is an open file.
//
// The library forgets to close a file when one of its operations fails, so the
// file then closes itself.
type file struct {
	billy.File
	fs     *filesystem
	open   *inode.File // nil: closed
	write  bool
	offset int64 // of the next write
}

// ReadAt implements io.ReaderAt.
func (f *file) ReadAt(p []byte, offset int64) (int, error) {
	n, err := f.open.ReadAt(p, offset)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// Seek sets the position. The library passes on a client's 64 bits unchecked; Write
// returns the error of an invalid offset.
func (f *file) Seek(offset int64, _ int) (int64, error) {
	f.offset = offset
	return offset, nil
}

// Write writes at the position that Seek has set.
func (f *file) Write(p []byte) (done int, err error) {
	if f.offset < 0 {
		return 0, errors.Join(syscall.EFBIG, f.Close())
	}
	err = f.fs.awaited(func() error {
		n, _, err := f.open.WriteAt(p[done:], f.offset+int64(done))
		done += n
		return err
	})
	if err != nil {
		err = errors.Join(err, f.Close())
	}
	return done, err
}

// Close syncs what was written, as the library promises. If the library calls it,
// then from the goroutine that used the file.
func (f *file) Close() (err error) {
	if f.open == nil {
		return nil
	}
	if f.write {
		err = f.open.Sync(false)
	}
	f.open.Close()
	f.open = nil
	return err
}

// resizer is a file whose size the library sets. The library may forget to close
// it, so it is open only within Truncate.
type resizer struct {
	billy.File
	fs   *filesystem
	path string
}

// Truncate sets the size.
func (r *resizer) Truncate(size int64) error {
	open, err := r.fs.open(r.path, inode.UseWrite)
	if err != nil {
		return err
	}
	defer open.Close()
	if err := r.fs.awaited(func() error { return open.Truncate(actas.AsProcess(), uint64(size)) }); err != nil {
		return err
	}
	return open.Sync(false)
}

// Close does nothing.
func (r *resizer) Close() error { return nil }

// madeFile is a file that Create has made. Of it the library wants the name, for its attributes.
type madeFile struct {
	billy.File
	name string
}

// Name is an element of a path, see location.
func (m *madeFile) Name() string { return m.name }

// Close does nothing.
func (m *madeFile) Close() error { return nil }
