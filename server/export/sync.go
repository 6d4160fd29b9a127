package export

import (
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// All syncs are here, where they are counted: on most disks they are what clients
// wait for.
//
// A sync brings to the disk all that was done before it began. So of the calls that
// wait for the same file, those that come while it is being synced wait together for
// its next sync. Files are synced side by side, which lets the file system's journal
// take them together.

// Waiter waits for a sync.
type Waiter interface {
	// Synced tells that what was done before is on the disk, or why it may not be. It
	// is called once, as root, and holds up others that wait for the file.
	Synced(error)
}

// syncsMax is how many files are synced at a time: each takes a thread.
const syncsMax = 64

// syncs are the calls that wait for one file's syncs.
type syncs struct {
	mu      sync.Mutex
	waiting []Waiter // for the next
	data    bool     // to read the data back is enough for all who wait
	running bool     // a goroutine syncs until none waits
	synced  []Waiter // empty: the memory for the next waiting
}

// SyncThen brings data and metadata to the disk, and tells w.
func (f *DataFile) SyncThen(w Waiter) { f.opener.sync(f.Volume, f.file, w, false) }

// DataSyncThen brings to the disk what is needed to read the data back, and tells w.
func (f *DataFile) DataSyncThen(w Waiter) { f.opener.sync(f.Volume, f.file, w, true) }

// SyncThen brings the file's metadata, and a directory's names, to the disk, and
// tells w. Only regular files and directories can be synced; what else is made is on
// the disk with its directory.
func (f *File) SyncThen(w Waiter) {
	if !f.Attr.IsDir() && !f.Attr.IsRegular() {
		w.Synced(nil)
		return
	}
	file := f.kept
	if file == nil {
		file = &openFile{fd: f.fd}
	}
	f.opener.sync(f.Volume, file, w, false)
}

// sync has a file synced, which is open until w is told.
func (o *Opener) sync(v *Volume, file *openFile, w Waiter, data bool) {
	s := &file.syncs
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data = data && (s.data || len(s.waiting) == 0)
	s.waiting = append(s.waiting, w)
	if !s.running {
		s.running = true
		go o.syncFile(v, file)
	}
}

// syncFile syncs a file until nobody waits for it.
func (o *Opener) syncFile(v *Volume, file *openFile) {
	s := &file.syncs
	for {
		o.syncing <- struct{}{}
		s.mu.Lock()
		if len(s.waiting) == 0 {
			s.running = false
			s.mu.Unlock()
			<-o.syncing
			return
		}
		waiting, data := s.waiting, s.data
		s.waiting, s.data = s.synced[:0], false
		s.mu.Unlock()
		began := time.Now()
		err := fsync(file.fd, data)
		<-o.syncing
		v.syncs.Add(time.Since(began), err)
		for _, w := range waiting {
			w.Synced(err)
		}
		clear(waiting)
		s.synced = waiting
	}
}

// fsync is fsync(2), or fdatasync(2), of a file that may be open with O_PATH.
func fsync(fd int, data bool) error {
	sync := unix.Fsync
	if data {
		sync = unix.Fdatasync
	}
	err := sync(fd)
	if !errors.Is(err, unix.EBADF) {
		return err
	}
	open, err := unix.Open(procPath(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = sync(open)
	_ = unix.Close(open) // nothing was written through it
	return err
}

// synced counts a sync.
func (v *Volume) synced(began time.Time, err error) error {
	v.syncs.Add(time.Since(began), err)
	return err
}

// Sync brings the directory's names to the disk.
func (d *Dir) Sync() error { return d.volume.synced(time.Now(), d.File.Sync()) }

// Sync brings data and metadata to the disk.
func (f *DirFile) Sync() error { return f.dir.volume.synced(time.Now(), f.File.Sync()) }
