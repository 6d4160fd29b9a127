package inode

import (
	"bytes"
	"cmp"
	"sync"
	"sync/atomic"
)

// content is the lock of a file's data. The kernel has such a lock, too, and holds it for as
// long as one system call: then also who removes the file waits for it, and with that call the directory.
// So what takes as long as the file has extents is done by several system calls, and this lock makes one change of them.
type content struct {
	// mu is read-locked by each WRITE, and locked by what sets the size, gives blocks to a range, takes some away, or
	// shares them. Nothing that has the names of a directory locked waits for it.
	mu      sync.RWMutex
	waiting atomic.Int32 // calls that wait for mu, but those in WaitForData
	// replaced is whether a CLONE is putting something in place of the data, or a new size takes it away, in several steps.
	// No READ begins then.
	replaced atomic.Bool
}

// settled waits until nobody is replacing the data.
func (c *content) settled() {
	if c.replaced.Load() {
		c.rlock()
		c.mu.RUnlock()
	}
}

// lock locks mu. Not checked: it tries first.
//
// +checklocksacquire:c.mu
// +checklocksignore
func (c *content) lock() {
	if !c.mu.TryLock() {
		c.waiting.Add(1)
		c.mu.Lock()
		c.waiting.Add(-1)
	}
}

// rlock read-locks mu. Not checked: it tries first.
//
// +checklocksacquireread:c.mu
// +checklocksignore
func (c *content) rlock() {
	if !c.mu.TryRLock() {
		c.waiting.Add(1)
		c.mu.RLock()
		c.waiting.Add(-1)
	}
}

// fewWait is how many calls may wait for the data of a file, or for the names of a directory, with a permit to block, of which
// there are few.
const fewWait = 8

// IsAwaited reports whether so many calls wait for the data of a file that another one must call WaitForData first.
func (f *File) IsAwaited() bool {
	return f.cached != nil && f.cached.inode.content.waiting.Load() >= fewWait
}

// WaitForData waits while the data of an awaited file is changed. The caller must hold no lock, and no permit to block.
func (f *File) WaitForData() {
	f.cached.inode.content.mu.RLock()
	f.cached.inode.content.mu.RUnlock() //nolint:staticcheck,gocritic // it is locked for as long as that takes
}

// lockBoth locks the data of two files, or of one, until the function that it returns is called. Not checked: which of
// the two is locked first is not known before.
//
// +checklocksignore
func lockBoth(a, b *File) (unlock func()) {
	first, second := &a.cached.inode.content, &b.cached.inode.content
	if first == second {
		first.lock()
		return first.mu.Unlock
	}
	// Every call locks in this order, so none waits for the other.
	if cmp.Or(cmp.Compare(a.Volume.ID, b.Volume.ID), bytes.Compare(a.ID.Bytes(), b.ID.Bytes())) > 0 {
		first, second = second, first
	}
	first.lock()
	second.lock()
	return func() {
		second.mu.Unlock()
		first.mu.Unlock()
	}
}
