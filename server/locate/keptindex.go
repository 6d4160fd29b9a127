package locate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/statedir"
	"github.com/podnas/podnas/server/inodeindex"
)

// keptIndex is the file of an index: with it the next process finds files before its walk has come to
// them. It says nothing about what does not exist, so it may be old, as after a crash, and the walk is
// made nevertheless.
//
// What is new is appended, each minute and at the end, and is not synced: it is for the next process,
// and what a power cut takes a walk finds. When too much of the file is of no use any more, another
// replaces it.
type keptIndex struct {
	path string     // empty: the index is not kept
	mu   sync.Mutex // held while the file is read or written, and guards the rest
	// +checklocks:mu
	file *inodeindex.Saved
	// +checklocks:mu
	changes uint64 // of the index, when it was written
	// +checklocks:mu
	failed bool
	// +checklocks:mu
	retry time.Time // not before that
}

const (
	// keptMin is how many names are worth a file: a walk of fewer takes less than 50 ms.
	keptMin = 1000
	// keptRetry is the time after an error, such as a full disk.
	keptRetry = 10 * time.Minute
	// keptRoom is the part of the disk's free space that a new file may take.
	keptRoom = 8
	// keptNameSize is about what a name takes in it.
	keptNameSize = 40
	// keptStep is how many bytes are synced at once, so that other syncs need not wait for all.
	keptStep = 1 << 20
)

var errExportEnded = errors.New("the export has ended")

func removeKeptIndex(path string) error {
	for _, path := range []string{path, path + newIndexSuffix} {
		if err := statedir.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

const newIndexSuffix = ".new"

// load adds the names that were kept. Clients that wait for a walk look again then.
func (x *Index) load() {
	k, v := &x.kept, x.volume
	if k.path == "" {
		return
	}
	select {
	case v.indexes.loads <- struct{}{}:
		defer func() { <-v.indexes.loads }()
	case <-v.calls.Ending():
		return
	}
	if !v.calls.Begin() {
		return
	}
	defer v.calls.Done()
	k.mu.Lock()
	defer k.mu.Unlock()
	began := time.Now()
	saved, err := x.loadFile(k.path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errExportEnded):
		return
	case err != nil:
		x.log.Warn("nfs: the index that was kept of a volume can't be used: a walk makes another", "volume", v.Path, "names", saved.Names, "err", err)
		x.clear(err)
	default:
		k.file = &saved
	}
	if saved.Names == 0 {
		return
	}
	x.loaded.Store(true)
	x.log.Info("nfs: loaded the index of a volume", "volume", v.Path, "names", saved.Names, "took", time.Since(began).Round(time.Millisecond))
	x.walks.lookAgain(x.names)
}

func (x *Index) loadFile(path string) (inodeindex.Saved, error) {
	if _, err := os.Lstat(path); err != nil { // the folder may not be there either
		return inodeindex.Saved{}, err
	}
	dir, err := statedir.Open(filepath.Dir(path), nil, x.log)
	if err != nil {
		return inodeindex.Saved{}, err
	}
	defer dir.Close()
	f, err := dir.OpenFile(filepath.Base(path), os.O_RDONLY, 0)
	if err != nil {
		return inodeindex.Saved{}, err
	}
	defer f.Close()
	return x.names.Load(untilEnded{f, x.volume}, x.volume.ID, x.volume.rootIno)
}

// clear removes a file that is of no use, so that the next one can replace it. What is no file is put aside.
func (x *Index) clear(why error) {
	dir, err := statedir.Open(filepath.Dir(x.kept.path), nil, x.log)
	if err == nil {
		name := filepath.Base(x.kept.path)
		if errors.Is(why, statedir.ErrIrregular) {
			err = dir.SetAside(name, why)
		} else {
			err = dir.Remove(name)
		}
		err = errors.Join(err, dir.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		x.log.Warn("nfs: a file is in the way of an index", "err", err)
	}
}

// lookAgain has those look again who wait for a walk, as the index has more names.
func (w *walks) lookAgain(names *inodeindex.Index) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var buf [256]byte
	for ino := range w.asked {
		if _, _, found := names.Name(ino, 0, &buf); found {
			delete(w.asked, ino)
		}
	}
	close(w.done)
	w.done = make(chan struct{})
}

// save brings the file up to date.
func (x *Index) save() {
	k, v := &x.kept, x.volume
	if k.path == "" || !v.calls.Begin() {
		return
	}
	defer v.calls.Done()
	k.mu.Lock()
	defer k.mu.Unlock()
	changes := x.names.Changes()
	if changes == k.changes || time.Now().Before(k.retry) {
		return
	}
	names, _ := x.names.Size()
	var err error
	switch {
	case names < keptMin:
		k.file, err = nil, removeKeptIndex(k.path)
	case k.file != nil && k.file.Names <= names*3/2:
		err = x.appendFileLocked()
	case x.hasWalked():
		err = x.writeFileLocked(names)
	default: // what it has is little
		return
	}
	switch {
	case err == nil:
		k.changes, k.failed = changes, false
	case errors.Is(err, errExportEnded):
		k.file = nil
	default:
		k.file, k.retry = nil, time.Now().Add(keptRetry)
		if !k.failed {
			k.failed = true
			x.log.Warn("nfs: the index of a volume can't be kept on the disk: after a restart, clients wait for a walk", "volume", v.Path, "err", err)
		}
	}
}

func (x *Index) hasWalked() bool {
	x.walks.mu.Lock()
	defer x.walks.mu.Unlock()
	return x.walks.ended > 0
}

// appendFileLocked appends the names that are not in the file.
//
// +checklocks:x.kept.mu
func (x *Index) appendFileLocked() error {
	k := &x.kept
	dir, err := statedir.Open(filepath.Dir(k.path), nil, x.log)
	if err != nil {
		return err
	}
	defer dir.Close()
	f, err := dir.OpenFile(filepath.Base(k.path), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err != nil || size != k.file.Size {
		return errors.Join(err, fmt.Errorf("%s was changed by others", k.path))
	}
	saved, err := x.names.Append(untilEnded{f, x.volume}, *k.file)
	if err == nil {
		k.file = &saved
	}
	return err
}

// writeFileLocked writes another file, and puts it in the place of the old one.
//
// +checklocks:x.kept.mu
func (x *Index) writeFileLocked(names int) error {
	k, v := &x.kept, x.volume
	k.file = nil
	dir, err := statedir.Open(filepath.Dir(k.path), nil, x.log)
	if err != nil {
		return err
	}
	defer dir.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(dir.Fd(), &st); err != nil {
		return err
	}
	if free := int64(st.Bavail) * st.Bsize; free/keptRoom < int64(names)*keptNameSize {
		return fmt.Errorf("only %d MiB are free on the disk: %w", free>>20, unix.ENOSPC)
	}
	name := filepath.Base(k.path)
	f, err := dir.MakeFile(name+newIndexSuffix, os.O_WRONLY|os.O_TRUNC)
	if err != nil {
		return err
	}
	saved, err := x.names.Save(&paced{untilEnded: untilEnded{f, v}, began: time.Now()}, v.ID, v.rootIno)
	if err == nil {
		err = unix.Fdatasync(int(f.Fd()))
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = dir.Rename(name+newIndexSuffix, name)
	}
	if err != nil {
		return errors.Join(err, dir.Remove(name+newIndexSuffix))
	}
	k.file = &saved
	return nil
}

// untilEnded is a file that is read or written until the export of its volume ends.
type untilEnded struct {
	file   *os.File
	volume *Volume
}

func (u untilEnded) Read(b []byte) (int, error) {
	if u.volume.hasEnded() {
		return 0, errExportEnded
	}
	return u.file.Read(b)
}

func (u untilEnded) Write(b []byte) (int, error) {
	if u.volume.hasEnded() {
		return 0, errExportEnded
	}
	return u.file.Write(b)
}

// paced syncs what it writes step by step, and pauses as long as each step took, unless the process
// ends.
type paced struct {
	untilEnded
	unsynced int
	began    time.Time
}

func (p *paced) Write(b []byte) (int, error) {
	n, err := p.untilEnded.Write(b)
	if p.unsynced += n; err != nil || p.unsynced < keptStep || p.volume.indexes.stopping.Load() {
		return n, err
	}
	if err := unix.Fdatasync(int(p.file.Fd())); err != nil {
		return n, err
	}
	time.Sleep(min(time.Since(p.began), 100*time.Millisecond))
	p.unsynced, p.began = 0, time.Now()
	return n, nil
}
