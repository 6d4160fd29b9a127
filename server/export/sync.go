package export

import (
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/space"
)

// All syncs are here, where they are counted: on most disks clients mostly wait for
// them.
//
// A sync writes all changes from before its start to the disk. So calls for a file that
// arrive while it is being synced share its next sync. Files are synced concurrently,
// so that the file system's journal can combine them.
//
// On XFS all directories of a volume wait together: the sync of one writes everything
// before it in the journal, too. One goroutine syncs one after the other; the first
// waits for the disk, the others have nothing left to do and wake no threads. Each is
// synced nevertheless: if the first did not write all, it takes longer, and nothing is
// lost.
//
// Files with little to write wait together, too, where a journal has what all of them need. The kernel begins to
// write all of them before the first is waited for, and the others take little more than a system call, instead of
// a thread that waits for each. A disk that is slow to empty its cache does so for each of them: then they wait side
// by side, so that it can do it once for many.
//
// Syncs that are shared run in their own goroutine. SyncHere saves a client that waits for
// nothing else the switch.

// waiter waits for a sync.
type waiter interface {
	// synced is called when all earlier changes are on the disk, or with the reason
	// why they may not be. It is called once, and delays other waiters while it runs.
	synced(error)
}

// syncsMax is how many files are synced at a time: each takes a thread.
const syncsMax = 64

// littleBytes is how much may have been written to a file that is synced with others, which wait for it.
const littleBytes = 256 << 10

// slowSync is how long the sync of a file takes at most if another's has left nothing to wait for, see
// docs/internals/tried.md.
const slowSync = 200 * time.Microsecond

// syncs has the calls that wait for the sync of one file, or for those of a volume's
// files or directories that are synced together. Calls that are synced at once are a round.
type syncs struct {
	mu sync.Mutex
	// aside: rounds run concurrently. One begins when as many calls wait as are in
	// rounds, so that none waits for long on a slow disk, and a fast one has few
	// rounds.
	aside   bool
	waiting []waiting // for the next round
	data    bool      // data is enough for all waiting calls
	begun   bool      // the next round's goroutine is starting
	rounds  int       // with that one
	inRound int       // calls in all rounds
}

// waiting is a waiting call.
type waiting struct {
	file   *openFile
	since  uint64 // of the file's errSeq
	waiter waiter
	by     Waiter // nil: nobody
}

// syncState is shared by the descriptors of one file.
type syncState struct {
	syncs syncs // that are not together with other files'
	errs  errSeq
	// syncing is locked while a regular file is synced, and a failure recorded.
	syncing sync.Mutex
}

// Sync syncs data and metadata; if dataOnly, it omits the metadata that is not needed to read
// the data back. A directory's names are synced too. The error is also that of an earlier
// sync since the file was opened.
//
// Only regular files and directories can be synced; other types are on the disk when
// their directory is synced.
func (f *File) Sync(dataOnly bool) error {
	if ok, err := f.SyncHere(dataOnly); ok {
		return err
	}
	s := f.BeginSync(dataOnly, nil)
	return s.Wait()
}

// SyncHere is Sync on this goroutine, which shares the sync with no other file. If another goroutine
// already syncs the file, SyncHere does nothing, and ok is false.
func (f *File) SyncHere(dataOnly bool) (ok bool, err error) {
	if !f.canSync() {
		return true, nil
	}
	return f.opener.syncHere(f.openFile(), f.since, dataOnly)
}

// Waiter is told that the wait for a sync ends. Those who wait for the same one are told before
// any of them goes on.
type Waiter interface{ Woken() }

// BeginSync has another goroutine sync the file for all calls that wait. Wait must be called, once. by
// is who will; nil: nobody is told.
func (f *File) BeginSync(dataOnly bool, by Waiter) Syncing {
	if !f.canSync() {
		return Syncing{}
	}
	w := f.opener.spareWait.Get().(syncWait)
	f.opener.sync(waiting{f.openFile(), f.since, w, by}, dataOnly)
	return Syncing{f.opener, w}
}

// Syncing is a sync by another goroutine.
type Syncing struct {
	opener *Opener
	result syncWait // nil: there is nothing to wait for
}

// Wait waits for the sync.
func (s Syncing) Wait() error {
	if s.result == nil {
		return nil
	}
	err := <-s.result
	s.opener.spareWait.Put(s.result)
	return err
}

// syncWait is a call that waits in Syncing. It has room for the result, so that no call delays others.
type syncWait chan error

func (w syncWait) synced(err error) { w <- err }

// ComesWithName reports whether a new file is on the disk when its directory is synced.
// Attributes set later, like times, or an ACL inherited from the directory, may be in
// another transaction.
func (f *File) ComesWithName() bool {
	switch {
	case !f.canSync():
		return true
	case !f.isNew || f.changed || !f.Volume.disk.Journal:
		return false
	}
	var attributes int
	var err error
	if f.created {
		attributes, err = unix.Flistxattr(f.fd, nil)
	} else { // it is open with O_PATH
		attributes, err = unix.Listxattr(f.proc(), nil)
	}
	return err == nil && attributes == 0
}

func (f *File) canSync() bool { return f.use != UseAttr || f.Attr.IsDir() || f.Attr.IsRegular() }

// openFile returns the descriptor with the calls that wait for it.
func (f *File) openFile() *openFile {
	if f.kept != nil {
		return f.kept
	}
	return &openFile{key: fileKey{f.Volume, f.ID}, fd: f.fd, state: &syncState{}} // not shared, of f's descriptor
}

// syncsOf returns the syncs that a file shares. alone is whether it shares none with other files. They would wait for
// one with much to write, or that is being synced.
func syncsOf(file *openFile, alone bool) *syncs {
	v := file.key.volume
	switch {
	case file.use == UseNames && v.disk.Settled:
		return &v.dirSyncs
	case file.use == UseWrite && v.disk.Journal && !alone && file.unsynced.Load() <= littleBytes && file.state.syncs.idle():
		return &v.fileSyncs
	}
	return &file.state.syncs
}

// syncHere syncs a file, unless a goroutine does. Another goroutine serves the calls
// that wait by then.
func (o *Opener) syncHere(file *openFile, since uint64, data bool) (ok bool, err error) {
	s := syncsOf(file, true)
	if !s.begin() {
		return false, nil
	}
	o.fsync(file, data, time.Now())
	err = file.state.errs.since(since)
	if s.more() {
		go o.syncRounds(s)
	}
	return true, err
}

// sync starts the sync of a file, which stays open until it calls w.
func (o *Opener) sync(w waiting, data bool) {
	if s := syncsOf(w.file, false); s.wait(w, data) {
		go o.syncRounds(s)
	}
}

// keep is fileCache.put. If a file must be synced before there is room, it does so: otherwise writers would open
// files, and directories between them, faster than those can be synced and closed, and descriptors would run out.
func (o *Opener) keep(key fileKey, use Use, d disk.Descriptor, charge *space.Charge) *openFile {
	f, unsynced := o.files.put(key, use, d, charge)
	if unsynced != nil {
		o.fsync(unsynced, false, time.Now())
		o.files.release(unsynced)
	}
	return f
}

// syncUnused syncs a file that the cache wants to close, and releases it. If that fails,
// the write verifier changes.
func (o *Opener) syncUnused(file *openFile) {
	o.sync(waiting{file, 0, unused{o, file}, nil}, false)
}

// unused waits for the sync of an unused file.
type unused struct {
	opener *Opener
	file   *openFile
}

func (u unused) synced(error) { u.opener.files.release(u.file) }

// wait adds a call to the next round. If it returns true, the caller must start the
// round.
func (s *syncs) wait(w waiting, data bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data = data && (s.data || len(s.waiting) == 0)
	s.waiting = append(s.waiting, w)
	due := s.rounds == 0 || s.aside && len(s.waiting) >= s.inRound
	if s.begun || !due {
		return false
	}
	s.begun = true
	s.rounds++
	return true
}

// begin returns true if no one syncs: the caller is then a round, until more.
func (s *syncs) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rounds > 0 {
		return false
	}
	s.rounds, s.inRound = 1, 1
	return true
}

// idle reports whether no one syncs.
func (s *syncs) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rounds == 0
}

func (s *syncs) setAside(aside bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aside = aside
}

// more reports whether any calls wait. If not, the round was the last.
func (s *syncs) more() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inRound--
	s.begun = len(s.waiting) > 0
	if !s.begun {
		s.rounds--
	}
	return s.begun
}

// next returns a round of all waiting calls. If there are none, last was the last. It
// reuses last's memory.
func (s *syncs) next(last []waiting) (round []waiting, data bool) {
	clear(last)
	s.mu.Lock()
	defer s.mu.Unlock()
	round, data = s.waiting, s.data
	s.waiting, s.data, s.begun = last[:0], false, false
	s.inRound += len(round) - len(last)
	if len(round) == 0 {
		s.rounds--
	}
	return round, data
}

// syncRounds syncs until no calls wait.
func (o *Opener) syncRounds(s *syncs) {
	var files []*openFile // of the round, each once
	for round, data := s.next(nil); len(round) > 0; round, data = s.next(round) {
		began := time.Now()
		for _, w := range slices.Backward(round) {
			if !slices.Contains(files, w.file) {
				files = append(files, w.file)
			}
		}
		slow := o.syncFiles(files, data, began)
		// A single call is no reason to change: on a slow disk some rounds have no more.
		if len(round) > 1 && s == &files[0].key.volume.fileSyncs {
			s.setAside(slow)
		}
		for _, w := range round {
			if w.by != nil {
				w.by.Woken()
			}
		}
		for _, w := range round {
			w.waiter.synced(w.file.state.errs.since(w.since))
		}
		clear(files)
		files = files[:0]
	}
}

// syncFiles syncs files of which the first has changed last: that is likely to be the last in the journal. slow is
// whether others had to wait, too; then the rest of them did so side by side.
func (o *Opener) syncFiles(files []*openFile, data bool, began time.Time) (slow bool) {
	if len(files) > 1 && files[0].use == UseWrite {
		for _, file := range files {
			// The kernel may do so at any time by itself, so an error comes again from the sync.
			_ = unix.SyncFileRange(file.fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE)
		}
	}
	var beside sync.WaitGroup
	defer beside.Wait()
	for i, file := range files {
		if slow {
			beside.Go(func() { o.fsync(file, data, began) })
			continue
		}
		start := time.Now()
		o.fsync(file, data, began)
		slow = i > 0 && time.Since(start) > slowSync
	}
	return slow
}

// fsync syncs a file, and records a failure. began is when its clients started to wait.
func (o *Opener) fsync(file *openFile, data bool, began time.Time) {
	if file.use.isData() {
		file.state.syncing.Lock()
		defer file.state.syncing.Unlock()
	}
	o.syncing.take(file.key.volume)
	defer o.syncing.give(file.key.volume)
	if file.unsynced.Load() > 0 { // what is written from here on may not be covered
		file.unsynced.Store(0)
	}
	v := file.key.volume
	sync := func() error {
		err := v.disk.Sync(file.fd, data)
		if errors.Is(err, unix.EACCES) && v.table.Only != nil {
			err = o.syncOwn(file)
		}
		return err
	}
	var err error
	if v.disk.Type == unix.BTRFS_SUPER_MAGIC {
		err = o.onBtrfs.sync(&v.disk, file.fd, sync)
	} else {
		err = sync()
	}
	if err := v.synced(began, err); err != nil {
		v.newVerifier() // before any reply can depend on this sync
		file.state.errs.failed(err)
		o.log.Error("nfs: a sync failed; clients will send again what they have not committed", "volume", v.Path, "err", err)
	}
}

// synced counts a sync.
func (v *Volume) synced(began time.Time, err error) error {
	v.syncs.Add(time.Since(began), err)
	return err
}
