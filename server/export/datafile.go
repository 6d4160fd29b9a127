package export

import (
	"errors"

	"golang.org/x/sys/unix"
)

// DataFile is a regular file that is open for reading or writing, and the call
// in its volume that uses it.
type DataFile struct {
	opener *Opener
	Volume *Volume
	file   *openFile
}

// OpenData opens the data of a regular file as root; who may read or write it,
// the caller asks Access. EISDIR or EINVAL of what is no regular file, which is
// found out before it is opened: opening a fifo or a device has effects.
func (o *Opener) OpenData(handle []byte, write bool) (*DataFile, error) {
	v, id, err := o.volumeOf(handle)
	if err != nil {
		return nil, err
	}
	key := fileKey{v, id, write}
	f := o.files.get(key)
	if f == nil {
		fd, err := v.openData(id, write)
		if err != nil {
			v.calls.Done()
			return nil, err
		}
		f = o.files.put(key, fd)
	}
	return &DataFile{opener: o, Volume: v, file: f}, nil
}

func (v *Volume) openData(id FileID, write bool) (int, error) {
	path, err := v.openByHandle(id, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return -1, err
	}
	attr, err := fstat(path)
	_ = unix.Close(path) // O_PATH
	switch {
	case err != nil:
		return -1, err
	case attr.IsDir():
		return -1, unix.EISDIR
	case !attr.IsRegular():
		return -1, unix.EINVAL
	}
	flags := unix.O_RDONLY
	if write {
		flags = unix.O_RDWR
	}
	return v.openByHandle(id, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK)
}

// Close gives the file back.
func (f *DataFile) Close() {
	f.opener.files.release(f.file)
	f.Volume.calls.Done()
}

// Stat tells the attributes. ESTALE of a file that has been removed; it is not
// kept open any longer.
func (f *DataFile) Stat() (Attr, error) {
	a, err := fstat(f.file.fd)
	if errors.Is(err, unix.ESTALE) {
		f.opener.files.drop(f.Volume, f.file.key.id)
	}
	return a, err
}

// Access asks the kernel whether this thread may do something with the file.
func (f *DataFile) Access(mode uint32) error { return access(f.file.fd, mode) }

// ReadAt reads until p is full or the file ends.
func (f *DataFile) ReadAt(p []byte, offset int64) (int, error) {
	return f.full(p, offset, unix.Pread)
}

// WriteAt writes all of p, or less with an error.
func (f *DataFile) WriteAt(p []byte, offset int64) (int, error) {
	return f.full(p, offset, unix.Pwrite)
}

func (f *DataFile) full(p []byte, offset int64, call func(int, []byte, int64) (int, error)) (int, error) {
	done := 0
	for done < len(p) {
		n, err := call(f.file.fd, p[done:], offset+int64(done))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n <= 0 || err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// Truncate sets the size.
func (f *DataFile) Truncate(size int64) error {
	for {
		if err := unix.Ftruncate(f.file.fd, size); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Sync brings data and metadata to the disk.
func (f *DataFile) Sync() error { return unix.Fsync(f.file.fd) }

// DataSync brings to the disk what is needed to read the data back.
func (f *DataFile) DataSync() error { return unix.Fdatasync(f.file.fd) }
