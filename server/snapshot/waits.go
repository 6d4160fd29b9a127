package snapshot

import (
	"path"
	"time"
)

// slow is a capture that a person may want to know the file of.
const slow = 10 * time.Millisecond

// waits is the longest time that a change has waited for a file to be captured, and the files of long ones.
type waits struct {
	longest time.Duration
	inode   uint64               // of its file
	files   map[uint64]slowPlace // those that were slow, by the inode
}

// slowPlace is where a slow file is.
type slowPlace struct {
	dir  int    // in walk.queue
	name string // "": the walk has not found it yet
}

// waited notes that a change has waited for the capture of a file.
func (t *taking) waited(inode uint64, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if wait > t.waits.longest {
		t.waits.longest, t.waits.inode = wait, inode
	}
	if wait > slow {
		t.slowLocked(inode, slowPlace{})
	}
}

// slowLocked notes that a file was slow, and its place if that is known.
//
// +checklocks:t.mu
func (t *taking) slowLocked(inode uint64, at slowPlace) {
	if t.waits.files == nil {
		t.waits.files = map[uint64]slowPlace{}
	}
	if t.waits.files[inode].name == "" {
		t.waits.files[inode] = at
	}
}

// found says where the walk has made a file, which took some time. It is noted if that was long, or a change has waited for the
// file.
func (t *taking) found(inode uint64, took time.Duration, at slowPlace) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, isSlow := t.waits.files[inode]; isSlow || took > slow {
		t.slowLocked(inode, at)
	}
}

// longestWait returns the longest wait, and where its file is, if that is known.
func (t *taking) longestWait() (wait time.Duration, at slowPlace) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waits.longest, t.waits.files[t.waits.inode]
}

// tellWaits says in the progress how long changes have waited.
func (w *walk) tellWaits() {
	wait, at := w.longestWait()
	w.progress.Waited.Store(int64(wait))
	if at.name != "" {
		file := path.Join(w.pathOf(at.dir), at.name)[1:]
		w.progress.WaitedFor.Store(&file)
	}
}
