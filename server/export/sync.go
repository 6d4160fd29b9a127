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
// take them together. A goroutine of its own syncs a file, but for a client that waits
// for nothing else: SyncHere saves it the way there and back.

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
}

// SyncHere brings data and metadata to the disk. It is not ok, and nothing is done, if
// another goroutine syncs the file already.
func (f *DataFile) SyncHere() (ok bool, err error) {
	return f.opener.syncHere(f.Volume, f.file, false)
}

// DataSyncHere is DataSyncThen, as SyncHere is SyncThen.
func (f *DataFile) DataSyncHere() (ok bool, err error) {
	return f.opener.syncHere(f.Volume, f.file, true)
}

// SyncThen brings data and metadata to the disk, and tells w.
func (f *DataFile) SyncThen(w Waiter) { f.opener.sync(f.Volume, f.file, w, false) }

// DataSyncThen brings to the disk what is needed to read the data back, and tells w.
func (f *DataFile) DataSyncThen(w Waiter) { f.opener.sync(f.Volume, f.file, w, true) }

// SyncHere is SyncThen on this goroutine. It is not ok if another syncs the file
// already.
func (f *File) SyncHere() (ok bool, err error) {
	if !f.canSync() {
		return true, nil
	}
	return f.opener.syncHere(f.Volume, f.openFile(), false)
}

// SyncMadeHere is SyncMadeThen on this goroutine. It is not ok if another syncs the
// directory already.
func (f *File) SyncMadeHere(dir *File) (ok bool, err error) {
	if !f.comesWithName() {
		if err := f.opener.fsync(f.Volume, f.fd, false); err != nil {
			return true, err
		}
	}
	return dir.SyncHere()
}

// SyncThen brings the file's metadata, and a directory's names, to the disk, and
// tells w. Only regular files and directories can be synced; what else is made is on
// the disk with its directory.
func (f *File) SyncThen(w Waiter) {
	if !f.canSync() {
		w.Synced(nil)
		return
	}
	f.opener.sync(f.Volume, f.openFile(), w, false)
}

// SyncMadeThen is SyncThen of what was just made in a directory, and then of the
// directory. That finds little to do as a rule, so it has no goroutine of its own.
func (f *File) SyncMadeThen(dir *File, w Waiter) {
	if f.comesWithName() {
		dir.SyncThen(w)
		return
	}
	go func() {
		if err := f.opener.fsync(f.Volume, f.fd, false); err != nil {
			w.Synced(err)
			return
		}
		if d := dir.openFile(); d.syncs.wait(w, false) {
			f.opener.syncFile(dir.Volume, d)
		}
	}()
}

// comesWithName tells whether what was made is on the disk when its name is. What was
// set after that, like times, or an ACL that the directory has for what is made in it,
// may be in another transaction.
func (f *File) comesWithName() bool {
	switch {
	case !f.canSync():
		return true
	case !f.isNew || f.changed || !f.Volume.disk.journal:
		return false
	}
	attributes, err := unix.Listxattr(f.proc(), nil)
	return err == nil && attributes == 0
}

func (f *File) canSync() bool { return f.Attr.IsDir() || f.Attr.IsRegular() }

// openFile is the descriptor, with the calls that wait for it.
func (f *File) openFile() *openFile {
	if f.kept != nil {
		return f.kept
	}
	return &openFile{fd: f.fd} // nobody else has it
}

// syncHere syncs a file, unless a goroutine does. Those who wait for it by then are for
// another.
func (o *Opener) syncHere(v *Volume, file *openFile, data bool) (ok bool, err error) {
	if !file.syncs.begin() {
		return false, nil
	}
	err = o.fsync(v, file.fd, data)
	if file.syncs.more() {
		go o.syncFile(v, file)
	}
	return true, err
}

// sync has a file synced, which is open until w is told.
func (o *Opener) sync(v *Volume, file *openFile, w Waiter, data bool) {
	if file.syncs.wait(w, data) {
		go o.syncFile(v, file)
	}
}

// wait has w wait for the next sync. It is true if nobody syncs the file: the caller
// has to.
func (s *syncs) wait(w Waiter, data bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data = data && (s.data || len(s.waiting) == 0)
	s.waiting = append(s.waiting, w)
	return s.start()
}

// begin is true if nobody syncs the file: the caller does, until more.
func (s *syncs) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.start()
}

// start is true if nobody syncs the file. The caller holds s.mu.
func (s *syncs) start() bool {
	first := !s.running
	s.running = true
	return first
}

// more tells whether there are any who wait. If not, nobody syncs the file any longer.
func (s *syncs) more() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = len(s.waiting) > 0
	return s.running
}

// next takes all who wait. If there are none, nobody syncs the file any longer. What
// was taken last is used again.
func (s *syncs) next(last []Waiter) (waiting []Waiter, data bool) {
	clear(last)
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting, data = s.waiting, s.data
	s.waiting, s.data = last[:0], false
	s.running = len(waiting) > 0
	return waiting, data
}

// syncFile syncs a file until nobody waits for it.
func (o *Opener) syncFile(v *Volume, file *openFile) {
	for waiting, data := file.syncs.next(nil); len(waiting) > 0; waiting, data = file.syncs.next(waiting) {
		err := o.fsync(v, file.fd, data)
		for _, w := range waiting {
			w.Synced(err)
		}
	}
}

// fsync is fsync(2), or fdatasync(2), of a file that may be open with O_PATH.
func (o *Opener) fsync(v *Volume, fd int, data bool) error {
	o.syncing <- struct{}{}
	defer func() { <-o.syncing }()
	sync := unix.Fsync
	if data {
		sync = unix.Fdatasync
	}
	began := time.Now()
	err := sync(fd)
	if errors.Is(err, unix.EBADF) {
		if fd, err = unix.Open(procPath(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
			err = sync(fd)
			_ = unix.Close(fd) // nothing was written through it
		}
	}
	return v.synced(began, err)
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
