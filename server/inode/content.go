package inode

import (
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
