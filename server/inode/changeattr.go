package inode

import (
	"bytes"
	"sync"
	"sync/atomic"
	"time"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/locate"
)

// The change attribute of NFSv4 (RFC 8881 section 5.8.1.4) must move at each change, or
// clients keep data that another has changed. The ctime alone does not: before Linux 6.13
// it has the time of the kernel's last tick, and a file can change often within one. So as
// long as a file's ctime is that recent, its changes are counted, and the change attribute
// is the ctime in nanoseconds and the count.
//
// It never comes back to what it was for other data: where the count of a file is no longer
// remembered, because of others or of a restart, it is the ctime and countLost.

const (
	// tickMax is longer than a tick of any kernel, 10 ms at most, and than a change and its
	// count are apart.
	tickMax = 100 * time.Millisecond
	// countLost is more than all counts, and countAgain more than those of files that are
	// remembered for the first time; a tick is longer than either.
	countLost  = 999_999
	countAgain = 400_000
	// changesKept is how many files are remembered, a power of 2.
	changesKept = 1 << 14
)

// changeAttrs counts the changeAttrs of files.
type changeAttrs struct {
	counts [changesKept]atomic.Uint32 // of all files with one index together
	files  [changesKept]changedFile
	// lost is the latest ctime, in nanoseconds, of files whose counts may be lost.
	lost atomic.Int64
}

// changedFile remembers a file that was looked at soon after it had changed.
type changedFile struct {
	mu sync.Mutex
	// +checklocks:mu
	key fileKey
	// +checklocks:mu
	ctime int64 // in nanoseconds
	// +checklocks:mu
	seen uint32 // of changeAttrs.counts, when it was last looked at
	// +checklocks:mu
	count uint64 // in the ctime
	// +checklocks:mu
	final bool // it can't change in this ctime any more, and was looked at since
}

func newChanges() *changeAttrs {
	c := &changeAttrs{}
	c.lost.Store(time.Now().UnixNano())
	return c
}

func (*changeAttrs) index(key *fileKey) uint64 {
	return (key.id.Fold() + key.volume) % changesKept
}

// changed counts a change, after it was made and before anybody is told.
func (c *changeAttrs) changed(key *fileKey) { c.counts[c.index(key)].Add(1) }

// old returns the change attribute of a file that has a ctime in which it can't change any
// more.
func (c *changeAttrs) old(key fileKey, ctime int64) uint64 {
	i := c.index(&key)
	f := &c.files[i]
	f.mu.Lock()
	defer f.mu.Unlock()
	return c.oldLocked(f, i, key, ctime)
}

// oldLocked is old for what the caller has locked.
//
// +checklocks:f.mu
func (c *changeAttrs) oldLocked(f *changedFile, i uint64, key fileKey, ctime int64) uint64 {
	if f.key != key || f.ctime != ctime {
		if ctime <= c.lost.Load() {
			return uint64(ctime) + countLost
		}
		return uint64(ctime)
	}
	if !f.final { // the last changes may not have been looked at
		f.lookLocked(c.counts[i].Load())
		f.final = true
	}
	return uint64(ctime) + f.count
}

// lookLocked counts the changes since it was looked at last as one.
//
// +checklocks:f.mu
func (f *changedFile) lookLocked(counts uint32) {
	if f.seen != counts {
		f.seen, f.count = counts, f.count+1
	}
}

// recent is old for a file that may still change in its ctime, or has just been changed. stat returns
// its attributes, which go with the change attribute.
func (c *changeAttrs) recent(key fileKey, stat func() (disk.Attr, error)) (uint64, disk.Attr, error) {
	i := c.index(&key)
	f := &c.files[i]
	f.mu.Lock()
	defer f.mu.Unlock()
	counts, began := c.counts[i].Load(), time.Now() // before the attributes: what changes in between moves it later
	a, err := stat()
	if err != nil {
		return 0, a, err
	}
	ctime := a.Ctime.UnixNano()
	if began.Sub(a.Ctime) >= tickMax {
		return c.oldLocked(f, i, key, ctime), a, nil
	}
	if f.key != key || f.ctime != ctime {
		if f.key != key && (f.count > 0 || !f.final) {
			c.lose(f.ctime)
		}
		f.key, f.ctime, f.seen, f.count, f.final = key, ctime, counts, 0, false
		if ctime <= c.lost.Load() { // it may have been remembered in this ctime before
			// stat may have taken long: the count stays below countLost.
			f.count = countAgain + uint64(min(max(0, time.Since(a.Ctime)), tickMax)/200)
		}
	}
	f.lookLocked(counts)
	return uint64(ctime) + f.count, a, nil
}

func (c *changeAttrs) lose(ctime int64) {
	for {
		lost := c.lost.Load()
		if ctime <= lost || c.lost.CompareAndSwap(lost, ctime) {
			return
		}
	}
}

// Change returns the change attribute of the file, and the attributes that go with it. a is
// what is known of them.
func (f *File) Change(a disk.Attr) (uint64, disk.Attr, error) {
	if a.Change != 0 {
		return a.Change, a, nil
	}
	return f.opener.changeAttr(f.key(), a, f.Stat)
}

// StatChange is Stat and Change of a file that this call has just changed: Change would need another
// Stat.
func (f *File) StatChange() (uint64, disk.Attr, error) {
	return f.opener.changes.recent(f.key(), f.Stat)
}

// ChangeOf is Change for a name in the directory, whose handle and attributes Describe has
// found. If the name is another file's by now, all that it returns is of that one. It may
// write to the capacity of handle.
func (f *File) ChangeOf(name, handle []byte, a disk.Attr) (uint64, disk.Attr, []byte, error) {
	for {
		if a.Change != 0 {
			return a.Change, a, handle, nil
		}
		again := handle
		change, now, err := f.opener.changeAttr(fileKey{f.Volume.ID, locate.IDIn(handle)}, a, func() (now disk.Attr, err error) {
			now, again, err = f.Describe(name, handle[len(handle):])
			return now, err
		})
		if err != nil || bytes.Equal(again, handle) {
			return change, now, handle, err
		}
		handle, a = again, now
	}
}

func (o *Opener) changeAttr(key fileKey, a disk.Attr, stat func() (disk.Attr, error)) (uint64, disk.Attr, error) {
	if time.Since(a.Ctime) < tickMax {
		return o.changes.recent(key, stat)
	}
	return o.changes.old(key, a.Ctime.UnixNano()), a, nil
}
