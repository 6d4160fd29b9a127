package durable

import (
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/shares"
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
// Syncs that are shared run in their own goroutine. Syncer.Here saves a client that waits for
// nothing else the switch.

// Told is told what became of a sync.
type Told interface {
	// Synced is called when all earlier changes are on the disk, or with the reason
	// why they may not be. It is called once, and delays other calls while it runs.
	Synced(error)
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
	// +checklocks:mu
	aside bool
	// +checklocks:mu
	waiting []waiting // for the next round
	// +checklocks:mu
	data bool // data is enough for all waiting calls
	// +checklocks:mu
	begun bool // the next round's goroutine is starting
	// +checklocks:mu
	rounds int // with that one
	// +checklocks:mu
	inRound int // calls in all rounds
}

// waiting is a waiting call.
type waiting struct {
	file  *File
	since uint64 // of the file's errSeq
	told  Told
	by    Waiter // nil: nobody
}

// Waiter is told that the wait for a sync ends. Those who wait for the same one are told before
// any of them goes on.
type Waiter interface{ Woken() }

// Begin has another goroutine sync a file for all calls that wait. since is File.Sample from before the call's change.
// Wait must be called, once. by is who will; nil: nobody is told.
func (s *Syncer) Begin(f *File, since uint64, dataOnly bool, by Waiter) Syncing {
	w := s.spare.Get().(syncWait)
	s.sync(waiting{f, since, w, by}, dataOnly)
	return Syncing{s, w}
}

// Syncing is a sync by another goroutine.
type Syncing struct {
	syncer *Syncer
	result syncWait // nil: there is nothing to wait for
}

// Wait waits for the sync.
func (s Syncing) Wait() error {
	if s.result == nil {
		return nil
	}
	err := <-s.result
	s.syncer.spare.Put(s.result)
	return err
}

// syncWait is a call that waits in Syncing. It has room for the result, so that no call delays others.
type syncWait chan error

func (w syncWait) Synced(err error) { w <- err }

// syncsOf returns the syncs that a file shares. alone is whether it shares none with other files. They would wait for
// one with much to write, or that is being synced.
func syncsOf(file *File, alone bool) *syncs {
	v := file.volume
	switch {
	case file.kind == Names && v.fs.Settled:
		return &v.dirs
	case file.kind == Write && v.fs.Journal && !alone && file.unsynced.Load() <= littleBytes && file.state.syncs.idle():
		return &v.files
	}
	return &file.state.syncs
}

// Here syncs a file on this goroutine, which shares the sync with no other file. since is File.Sample from before the
// call's change. If another goroutine already syncs the file, Here does nothing, and ok is false.
func (s *Syncer) Here(f *File, since uint64, dataOnly bool) (ok bool, err error) {
	of := syncsOf(f, true)
	if !of.begin() {
		return false, nil
	}
	s.fsync(f, dataOnly, time.Now())
	err = f.state.errs.since(since)
	if of.more() { // another goroutine serves the calls that wait by then
		go s.rounds(of)
	}
	return true, err
}

// Now syncs a file on this goroutine, whoever else does.
func (s *Syncer) Now(f *File) { s.fsync(f, false, time.Now()) }

// Then has another goroutine sync a file, which stays open until w is told.
func (s *Syncer) Then(f *File, w Told) { s.sync(waiting{f, 0, w, nil}, false) }

// sync starts the sync of a file, which stays open until w is told.
func (s *Syncer) sync(w waiting, data bool) {
	if of := syncsOf(w.file, false); of.wait(w, data) {
		go s.rounds(of)
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

// rounds syncs until no calls wait.
func (s *Syncer) rounds(of *syncs) {
	var files []*File // of the round, each once
	for round, data := of.next(nil); len(round) > 0; round, data = of.next(round) {
		began := time.Now()
		for _, w := range slices.Backward(round) {
			if !slices.Contains(files, w.file) {
				files = append(files, w.file)
			}
		}
		slow := s.syncFiles(files, data, began)
		// A single call is no reason to change: on a slow disk some rounds have no more.
		if len(round) > 1 && of == &files[0].volume.files {
			of.setAside(slow)
		}
		for _, w := range round {
			if w.by != nil {
				w.by.Woken()
			}
		}
		for _, w := range round {
			w.told.Synced(w.file.state.errs.since(w.since))
		}
		clear(files)
		files = files[:0]
	}
}

// syncFiles syncs files of which the first has changed last: that is likely to be the last in the journal. slow is
// whether others had to wait, too; then the rest of them did so side by side.
func (s *Syncer) syncFiles(files []*File, data bool, began time.Time) (slow bool) {
	if len(files) > 1 && files[0].kind == Write {
		for _, file := range files {
			// The kernel may do so at any time by itself, so an error comes again from the sync.
			_ = unix.SyncFileRange(file.fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE)
		}
	}
	var beside sync.WaitGroup
	defer beside.Wait()
	for i, file := range files {
		if slow {
			beside.Go(func() { s.fsync(file, data, began) })
			continue
		}
		start := time.Now()
		s.fsync(file, data, began)
		slow = i > 0 && time.Since(start) > slowSync
	}
	return slow
}

// fsync syncs a file, and records a failure. began is when its clients started to wait. Not checked: checklocks
// can't follow a mutex that is locked for some files only.
//
// +checklocksignore
func (s *Syncer) fsync(file *File, data bool, began time.Time) {
	if file.kind.isData() {
		file.state.syncing.Lock()
		defer file.state.syncing.Unlock()
	}
	v := file.volume
	s.slots.take(v.id)
	defer s.slots.give(v.id)
	if file.unsynced.Load() > 0 { // what is written from here on may not be covered
		file.unsynced.Store(0)
	}
	sync := func() error {
		err := v.fs.Sync(file.fd, data)
		if errors.Is(err, unix.EACCES) && file.owner != nil {
			err = syncAsOwner(file)
		}
		return err
	}
	var err error
	if v.fs.Type == unix.BTRFS_SUPER_MAGIC {
		err = s.onBtrfs.sync(v.fs, file.fd, sync)
	} else {
		err = sync()
	}
	v.counts.Add(time.Since(began), err)
	if err != nil {
		v.NewVerifier() // before any reply can depend on this sync
		file.state.errs.failed(err)
		s.log.Error("nfs: a sync failed; clients will send again what they have not committed", "volume", v.path, "err", err)
	}
}

// syncAsOwner syncs a file whose mode does not let the process open it.
func syncAsOwner(file *File) error {
	d, err := file.owner.OpenToSync()
	if err != nil {
		return err
	}
	defer d.Close()
	return file.volume.fs.Sync(d.FD(), false)
}

// slots bounds the syncs at a time, and shares them out between volumes.
type slots struct {
	mu sync.Mutex
	// +checklocks:mu
	semaphore *shares.Semaphore[chan struct{}]
}

// take waits until a volume may sync.
func (s *slots) take(volume uint64) {
	s.mu.Lock()
	now := make(chan struct{})
	taken := s.semaphore.Enter(shares.Owner{Volume: volume}, now)
	s.mu.Unlock()
	if !taken {
		<-now
	}
}

// give ends it.
func (s *slots) give(volume uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.semaphore.Leave(shares.Owner{Volume: volume})
	for next, ok := s.semaphore.Next(); ok; next, ok = s.semaphore.Next() {
		close(next)
	}
}
