package export

import (
	"os"
	"slices"
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
//
// On XFS all directories of a volume wait together: what brings one of them to the disk brings all
// that stands before it in the journal. One goroutine syncs one after the other, and
// the first waits for the disk; the others find nothing to do, and no thread of theirs
// has to wake. Each is synced nevertheless: if that is not so, it takes longer, and
// nothing is lost.
//
// A goroutine of its own syncs, but for a client that waits for nothing else: SyncHere
// saves it the way there and back.

// Waiter waits for a sync.
type Waiter interface {
	// Synced is called when all earlier changes are on the disk, or with the reason
	// why they may not be. It is called once, as root, and delays other waiters while
	// it runs.
	Synced(error)
}

// syncsMax is how many files are synced at a time: each takes a thread.
const syncsMax = 64

// syncs are the calls that wait for one file to be synced, or for any of a volume's
// directories, where those are synced together. Who are synced at once are a round.
type syncs struct {
	// aside: rounds go on beside each other. One begins when as many calls wait as
	// are in rounds, so that none waits for long on a disk that is slow, and they are
	// few on one that is quick.
	aside bool

	mu      sync.Mutex
	waiting []waiting // for the next round
	data    bool      // to read the data back is enough for all who wait
	begun   bool      // the next round: a goroutine is on its way
	rounds  int       // with that one
	inRound int       // calls in all rounds
}

// waiting is a call that waits.
type waiting struct {
	file  *openFile
	since uint64 // of the file's errSeq
	who   Waiter
}

// syncState is what the descriptors of one file share, so that its syncs come one after
// the other.
type syncState struct {
	syncs syncs
	errs  errSeq
}

// SyncHere syncs data and metadata. If another goroutine already syncs the file, it
// does nothing, and ok is false.
func (f *DataFile) SyncHere() (ok bool, err error) {
	return f.opener.syncHere(f.file, f.since, false)
}

// DataSyncHere is DataSyncThen on this goroutine, like SyncHere.
func (f *DataFile) DataSyncHere() (ok bool, err error) {
	return f.opener.syncHere(f.file, f.since, true)
}

// SyncThen syncs data and metadata, and then calls w.
func (f *DataFile) SyncThen(w Waiter) { f.opener.sync(waiting{f.file, f.since, w}, false) }

// DataSyncThen syncs data and the metadata needed to read it back, and then calls w.
func (f *DataFile) DataSyncThen(w Waiter) { f.opener.sync(waiting{f.file, f.since, w}, true) }

// SyncHere is SyncThen on this goroutine. ok is false if another already syncs the
// file.
func (f *File) SyncHere() (ok bool, err error) {
	if !f.canSync() {
		return true, nil
	}
	return f.opener.syncHere(f.openFile(), f.since, false)
}

// SyncMadeHere is SyncMadeThen on this goroutine. ok is false if another already
// syncs the directory.
func (f *File) SyncMadeHere(dir *File) (ok bool, err error) {
	if !f.comesWithName() {
		if ok, err := f.SyncHere(); !ok || err != nil {
			return ok, err
		}
	}
	return dir.SyncHere()
}

// SyncThen syncs the file's metadata, and a directory's names, and then calls w.
// Only regular files and directories can be synced; other types are on the disk when
// their directory is synced.
func (f *File) SyncThen(w Waiter) {
	if !f.canSync() {
		w.Synced(nil)
		return
	}
	f.opener.sync(waiting{f.openFile(), f.since, w}, false)
}

// SyncMadeThen is SyncThen of a new file, and then of its directory.
func (f *File) SyncMadeThen(dir *File, w Waiter) {
	if f.comesWithName() {
		dir.SyncThen(w)
		return
	}
	f.SyncThen(thenDir{dir, w})
}

// thenDir waits for what was made in a directory.
type thenDir struct {
	dir *File
	who Waiter
}

// Synced has the directory synced.
func (t thenDir) Synced(err error) {
	if err != nil {
		t.who.Synced(err)
		return
	}
	t.dir.SyncThen(t.who)
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
	var attributes int
	var err error
	if f.created {
		attributes, err = unix.Flistxattr(f.fd, nil)
	} else { // it is open with O_PATH
		attributes, err = unix.Listxattr(f.proc(), nil)
	}
	return err == nil && attributes == 0
}

func (f *File) canSync() bool { return f.Attr.IsDir() || f.Attr.IsRegular() }

// openFile is the descriptor, with the calls that wait for it.
func (f *File) openFile() *openFile {
	if f.kept != nil {
		return f.kept
	}
	return &openFile{key: fileKey{f.Volume, f.ID}, fd: f.fd, state: &syncState{}} // nobody else has it
}

// syncsOf are the calls that wait with those for a file.
func syncsOf(file *openFile) *syncs {
	if file.use == useNames && file.key.volume.disk.settled {
		return &file.key.volume.names
	}
	return &file.state.syncs
}

// syncHere syncs a file, unless a goroutine does. Those who wait for it by then are for
// another.
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

// sync has a file synced, which is open until w is told.
func (o *Opener) sync(w waiting, data bool) {
	if s := syncsOf(w.file); s.wait(w, data) {
		go o.syncRounds(s)
	}
}

// keep is fileCache.put.
func (o *Opener) keep(key fileKey, use use, fd int, charge *charge) *openFile {
	f, unsynced := o.files.put(key, use, fd, charge)
	if unsynced != nil {
		o.syncUnused(unsynced, nil)
	}
	return f
}

// syncUnused syncs a file that the cache wants to close, and gives it back. If that fails,
// the write verifier tells the clients. done is closed then, if it is not nil.
func (o *Opener) syncUnused(file *openFile, done chan struct{}) {
	o.sync(waiting{file, 0, unused{o, file, done}}, false)
}

// unused waits for the sync of a file that nobody uses.
type unused struct {
	opener *Opener
	file   *openFile
	done   chan struct{}
}

// Synced gives the file back.
func (u unused) Synced(error) {
	u.opener.files.release(u.file)
	if u.done != nil {
		close(u.done)
	}
}

// wait has a call wait for the next round. If it is true, that begins now: the caller
// has to see to it.
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

// begin is true if nobody syncs: the caller is a round of its own, until more.
func (s *syncs) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rounds > 0 {
		return false
	}
	s.rounds, s.inRound = 1, 1
	return true
}

// more tells whether there are any who wait. If not, the round was the last.
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

// next makes a round of all who wait, in place of the last. If there are none, that was
// the last. Its memory is used again.
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

// syncRounds syncs until nobody waits.
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
			w.who.Synced(w.file.state.errs.since(w.since))
		}
		clear(done)
	}
}

// fsync syncs a file, and notes it if that fails. Its clients have waited since it began.
func (o *Opener) fsync(file *openFile, data bool, began time.Time) {
	o.syncing.take(file.key.volume)
	defer o.syncing.give(file.key.volume)
	if file.unsynced.Load() { // what is written from here on may not be covered
		file.unsynced.Store(false)
	}
	v := file.key.volume
	if err := v.synced(began, v.disk.sync(file.fd, data)); err != nil {
		v.newVerifier() // before anybody can be told anything
		file.state.errs.failed(err)
		o.log.Error("nfs: a sync failed; clients are told to send again what is not committed", "volume", v.Path, "err", err)
	}
}

// synced counts a sync.
func (v *Volume) synced(began time.Time, err error) error {
	v.syncs.Add(time.Since(began), err)
	return err
}

// Sync syncs the directory's names.
func (d *Dir) Sync() error { return d.volume.syncFile(d.File) }

// Sync syncs data and metadata.
func (f *DirFile) Sync() error { return f.dir.volume.syncFile(f.File) }

func (v *Volume) syncFile(f *os.File) error {
	began := time.Now()
	return v.synced(began, v.disk.sync(int(f.Fd()), false))
}
