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
	mu sync.RWMutex
	// replaced is whether a CLONE is putting something in place of the data, in several steps. No READ begins then.
	replaced atomic.Bool
}

// settled waits until no CLONE is replacing the data.
func (c *content) settled() {
	if c.replaced.Load() {
		c.mu.RLock()
		c.mu.RUnlock() //nolint:staticcheck,gocritic // it is locked for as long as that takes
	}
}

// lockBoth locks the data of two files, or of one, until the function that it returns is called. Not checked: which of
// the two is locked first is not known before.
//
// +checklocksignore
func lockBoth(a, b *File) (unlock func()) {
	first, second := &a.kept.inode.content, &b.kept.inode.content
	if first == second {
		first.mu.Lock()
		return first.mu.Unlock
	}
	// Every call locks in this order, so none waits for the other.
	if cmp.Or(cmp.Compare(a.Volume.ID, b.Volume.ID), bytes.Compare(a.ID.Bytes(), b.ID.Bytes())) > 0 {
		first, second = second, first
	}
	first.mu.Lock()
	second.mu.Lock()
	return func() {
		second.mu.Unlock()
		first.mu.Unlock()
	}
}
