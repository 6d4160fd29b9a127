package export

import (
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

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
// Syncs run in their own goroutine. SyncHere saves a client that waits for nothing else
// the switch.

// Waiter waits for a sync.
type Waiter interface {
	// Synced is called when all earlier changes are on the disk, or with the reason
	// why they may not be. It is called once, as root, and delays other waiters while
	// it runs.
	Synced(error)
}

// syncsMax is how many files are synced at a time: each takes a thread.
const syncsMax = 64

// syncs has the calls that wait for the sync of one file, or for those of a volume's
// directories if they are synced together. Calls that are synced at once are a round.
type syncs struct {
	// aside: rounds run concurrently. One begins when as many calls wait as are in
	// rounds, so that none waits for long on a slow disk, and a fast one has few
	// rounds.
	aside bool

	mu      sync.Mutex
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
	waiter Waiter
}

// syncState is shared by the descriptors of one file, so that its syncs run one after
// the other.
type syncState struct {
	syncs syncs
	errs  errSeq
}

// SyncHere syncs data and metadata on this goroutine, which may be any; if dataOnly, it omits the
// metadata that is not needed to read the data back. A directory's names are synced too. If
// another goroutine already syncs the file, SyncHere does nothing, and ok is false.
//
// Only regular files and directories can be synced; other types are on the disk when
// their directory is synced.
func (f *File) SyncHere(dataOnly bool) (ok bool, err error) {
	if !f.canSync() {
		return true, nil
	}
	return f.opener.syncHere(f.openFile(), f.since, dataOnly)
}

// SyncThen is SyncHere on another goroutine, which then calls w. The file must stay open until
// then.
func (f *File) SyncThen(dataOnly bool, w Waiter) {
	if !f.canSync() {
		w.Synced(nil)
		return
	}
	f.opener.sync(waiting{f.openFile(), f.since, w}, dataOnly)
}

// ComesWithName reports whether a new file is on the disk when its directory is synced.
// Attributes set later, like times, or an ACL inherited from the directory, may be in
// another transaction.
func (f *File) ComesWithName() bool {
	switch {
	case !f.canSync():
		return true
	case !f.isNew || f.changed || !f.Volume.disk.journal:
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

// syncsOf returns the syncs that a file shares.
func syncsOf(file *openFile) *syncs {
	if file.use == UseNames && file.key.volume.disk.settled {
		return &file.key.volume.dirSyncs
	}
	return &file.state.syncs
}

// syncHere syncs a file, unless a goroutine does. Another goroutine serves the calls
// that wait by then.
func (o *Opener) syncHere(file *openFile, since uint64, data bool) (ok bool, err error) {
	s := syncsOf(file)
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
	if s := syncsOf(w.file); s.wait(w, data) {
		go o.syncRounds(s)
	}
}

// keep is fileCache.put.
func (o *Opener) keep(key fileKey, use Use, d descriptor, charge *space.Charge) *openFile {
	f, unsynced := o.files.put(key, use, d, charge)
	if unsynced != nil {
		o.syncUnused(unsynced, nil)
	}
	return f
}

// syncUnused syncs a file that the cache wants to close, and releases it. If that fails,
// the write verifier changes. done, if not nil, is closed then.
func (o *Opener) syncUnused(file *openFile, done chan struct{}) {
	o.sync(waiting{file, 0, unused{o, file, done}}, false)
}

// unused waits for the sync of an unused file.
type unused struct {
	opener *Opener
	file   *openFile
	done   chan struct{}
}

// Synced releases the file.
func (u unused) Synced(error) {
	u.opener.files.release(u.file)
	if u.done != nil {
		close(u.done)
	}
}

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
	done := map[*openFile]bool{} // of the round
	for round, data := s.next(nil); len(round) > 0; round, data = s.next(round) {
		began := time.Now()
		// What changed last is likely to be the last in the journal.
		for _, w := range slices.Backward(round) {
			if !done[w.file] {
				done[w.file] = true
				o.fsync(w.file, data, began)
			}
		}
		for _, w := range round {
			w.waiter.Synced(w.file.state.errs.since(w.since))
		}
		clear(done)
	}
}

// fsync syncs a file, and records a failure. began is when its clients started to wait.
func (o *Opener) fsync(file *openFile, data bool, began time.Time) {
	o.syncing.take(file.key.volume)
	defer o.syncing.give(file.key.volume)
	if file.unsynced.Load() { // what is written from here on may not be covered
		file.unsynced.Store(false)
	}
	v := file.key.volume
	sync := func() error {
		err := v.disk.sync(file.fd, data)
		if errors.Is(err, unix.EACCES) && v.table.Only != nil {
			err = o.syncOwn(file)
		}
		return err
	}
	var err error
	if v.disk.fs == unix.BTRFS_SUPER_MAGIC {
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
