package export

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// All syncs are here, where they are counted: on most disks they are what clients
// wait for.

// synced counts a sync.
func (v *Volume) synced(began time.Time, err error) error {
	v.syncs.Add(time.Since(began), err)
	return err
}

// Sync brings data and metadata to the disk.
func (f *DataFile) Sync() error { return f.Volume.synced(time.Now(), unix.Fsync(f.file.fd)) }

// DataSync brings to the disk what is needed to read the data back.
func (f *DataFile) DataSync() error { return f.Volume.synced(time.Now(), unix.Fdatasync(f.file.fd)) }

// Sync brings the file's metadata, and a directory's names, to the disk. Only
// what OpenDir and Create have opened can be synced; nothing else needs to be.
func (f *File) Sync() error {
	began := time.Now()
	err := unix.Fsync(f.fd)
	if errors.Is(err, unix.EBADF) { // O_PATH
		return nil
	}
	return f.Volume.synced(began, err)
}

// Sync brings the directory's names to the disk.
func (d *Dir) Sync() error { return d.volume.synced(time.Now(), d.File.Sync()) }

// Sync brings data and metadata to the disk.
func (f *DirFile) Sync() error { return f.dir.volume.synced(time.Now(), f.File.Sync()) }
