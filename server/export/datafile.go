package export

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// DataFile is a regular file that is open for reading or writing by a call in its
// volume.
type DataFile struct {
	opener *Opener
	Volume *Volume
	file   *openFile
	since  uint64 // the sample of its errSeq
}

// OpenData opens a regular file as root; the caller must check the permissions
// with Access. The error is EISDIR or EINVAL for other types, which it checks
// before opening, because opening a fifo or a device has side effects, and EROFS
// if the volume is read-only.
func (o *Opener) OpenData(client netip.Addr, handle []byte, write bool) (*DataFile, error) {
	v, id, err := o.volumeOf(client, handle)
	if err != nil {
		return nil, err
	}
	if write && v.Options.ReadOnly {
		v.calls.Done()
		return nil, unix.EROFS
	}
	key, use := fileKey{v, id}, useRead
	if write {
		use = useWrite
	}
	f := o.files.get(key, use)
	if f == nil {
		o.files.missed()
		fd, charge, err := v.openData(&id, use)
		if err != nil {
			v.calls.Done()
			return nil, err
		}
		var unsynced *openFile
		if f, unsynced = o.files.put(key, use, fd, charge); unsynced != nil {
			// Writers wait here, otherwise they would open files faster than those can be
			// synced and closed, and descriptors would run out.
			synced := make(chan struct{})
			o.syncUnused(unsynced, synced)
			<-synced
		}
	}
	return o.newDataFile(v, f), nil
}

// OpenDataAtOnce is OpenData for reading without blocking. It returns nil, without
// an error, if it would block.
func (o *Opener) OpenDataAtOnce(client netip.Addr, handle []byte) (*DataFile, error) {
	v, id, err := o.volumeOf(client, handle)
	if err != nil {
		return nil, err
	}
	if v.disk.quick {
		if f := o.files.get(fileKey{v, id}, useRead); f != nil {
			return o.newDataFile(v, f), nil
		}
	}
	v.calls.Done()
	return nil, nil
}

func (o *Opener) newDataFile(v *Volume, file *openFile) *DataFile {
	f := o.spareData.Get().(*DataFile)
	*f = DataFile{opener: o, Volume: v, file: file, since: file.state.errs.sample()}
	return f
}

func (v *Volume) openData(id *FileID, use use) (int, *charge, error) {
	path, err := v.openByHandle(id, useAttr.flags())
	if err != nil {
		return -1, nil, err
	}
	attr, err := v.stat(path, nil)
	_ = unix.Close(path) // O_PATH
	switch {
	case err != nil:
		return -1, nil, err
	case attr.IsDir():
		return -1, nil, unix.EISDIR
	case !attr.IsRegular():
		return -1, nil, unix.EINVAL
	}
	fd, err := v.openByHandle(id, use.flags())
	if err != nil || v.account == nil {
		return fd, nil, err
	}
	c := v.account.enter(attr.inode())
	_, _ = v.stat(fd, c) // from what it is charged; the next look meets the error
	return fd, c, nil
}

// Close releases the file and f, which is reused.
func (f *DataFile) Close() {
	opener, volume := f.opener, f.Volume
	opener.files.release(f.file)
	*f = DataFile{}
	opener.spareData.Put(f)
	volume.calls.Done()
}

// Stat tells the attributes. ESTALE of a file that has been removed; it is not
// kept open any longer.
func (f *DataFile) Stat() (Attr, error) {
	a, err := f.Volume.stat(f.file.fd, f.file.charge)
	if errors.Is(err, unix.ESTALE) {
		f.opener.files.drop(f.Volume, f.file.key.id)
	}
	return a, err
}

// Access asks the kernel whether this thread may do something with the file.
func (f *DataFile) Access(mode uint32) error { return access(f.file.fd, mode) }

// ReadAt reads until p is full or the file ends.
func (f *DataFile) ReadAt(p []byte, offset int64) (int, error) {
	return pread(f.file.fd, p, offset)
}

// ReadCached is ReadAt without waiting for the disk. The error is EAGAIN if it
// would wait, or if the file system does not support that; at the end of the file
// it reads less.
func (f *DataFile) ReadCached(p []byte, offset int64) (int, error) {
	n, err := preadNow(f.file.fd, p, offset)
	if err != nil {
		return 0, unix.EAGAIN
	}
	return n, nil
}

// WriteAt writes all of p, or less with an error. It returns the attributes
// afterwards, which are zero if the file was removed.
func (f *DataFile) WriteAt(p []byte, offset int64) (int, Attr, error) {
	f.file.written.Store(true)
	var st unix.Stat_t
	n, err := f.file.charge.write(f.file.fd, p, offset, &st)
	f.file.changed()
	if st.Nlink == 0 {
		return n, Attr{}, err
	}
	return n, attrOf(&st), err
}

// Truncate sets the size.
func (f *DataFile) Truncate(size int64) error {
	f.file.written.Store(true)
	err := f.file.charge.resize(f.file.fd, size, func() error {
		for {
			if err := unix.Ftruncate(f.file.fd, size); !errors.Is(err, unix.EINTR) {
				return err
			}
		}
	})
	f.file.changed()
	return err
}
