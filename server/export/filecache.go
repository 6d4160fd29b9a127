package export

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// filesMax bounds the descriptors that are kept, whatever the limit of the
	// process allows.
	filesMax = 4096
	// filesIdle is how long one is kept that nobody uses: as long as a client
	// takes between two calls of one reading or writing program.
	filesIdle = 5 * time.Second
)

// fileCache keeps regular files open between calls.
type fileCache struct {
	limit int

	mu    sync.Mutex
	files map[fileKey]*openFile
	used  list.List // of the *openFile in files, roughly the longest unused first
	count FileCounts
}

type fileKey struct {
	volume *Volume
	id     FileID
	write  bool
}

// openFile is a descriptor. It is in use, idle and in the cache, or closed.
type openFile struct {
	key     fileKey
	fd      int
	users   int
	dropped bool          // to be closed by its last user
	since   time.Time     // nobody has used it, if users is 0
	elem    *list.Element // in fileCache.used

	charge  *charge // where the server counts
	written atomic.Bool
}

func newFileCache() *fileCache {
	c := &fileCache{limit: filesMax, files: map[fileKey]*openFile{}}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil {
		// The rest is for connections and for files in use.
		c.limit = int(min(filesMax, limit.Cur/2))
	}
	return c
}

// FileCounts are of the files that an Opener keeps open between calls.
type FileCounts struct {
	Open, Limit           int
	Hits, Misses, Evicted uint64 // Evicted: closed to make room, though they were used lately
}

func (c *fileCache) counts() FileCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.count
	n.Open, n.Limit = len(c.files), c.limit
	return n
}

// get takes a file, nil if it is not there.
func (c *fileCache) get(key fileKey) *openFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.files[key]
	if f != nil {
		f.users++
		c.count.Hits++
	} else {
		c.count.Misses++
	}
	return f
}

// put adds a file that was just opened and takes it. If another call was
// faster, its file is taken and this one closed.
func (c *fileCache) put(key fileKey, fd int, charge *charge) *openFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.files[key]; f != nil {
		_ = unix.Close(fd) // nothing was written through it
		if charge != nil {
			charge.leave(FileID{})
		}
		f.users++
		return f
	}
	for len(c.files) >= c.limit && c.removeUnused() {
		c.count.Evicted++
	}
	f := &openFile{key: key, fd: fd, users: 1, charge: charge}
	f.elem = c.used.PushBack(f)
	c.files[key] = f
	return f
}

// removeUnused removes the file that was unused for longest. It is false if all
// are in use. The caller holds c.mu.
func (c *fileCache) removeUnused() bool {
	for e := c.used.Front(); e != nil; e = e.Next() {
		if f := e.Value.(*openFile); f.users == 0 {
			c.remove(f)
			return true
		}
	}
	return false
}

// release gives a file back.
func (c *fileCache) release(f *openFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.users--; f.users > 0 {
		return
	}
	if f.dropped || len(c.files) > c.limit {
		c.remove(f)
		return
	}
	f.since = time.Now()
	c.used.MoveToBack(f.elem)
}

// remove closes a file that nobody uses. The caller holds c.mu.
func (c *fileCache) remove(f *openFile) {
	c.forget(f)
	_ = unix.Close(f.fd) // what a client was told is stable was synced before
	if f.charge != nil {
		var written FileID
		if f.written.Load() {
			written = f.key.id
		}
		f.charge.leave(written)
	}
}

// forget takes a file out of the cache. The caller holds c.mu.
func (c *fileCache) forget(f *openFile) {
	if c.files[f.key] == f {
		delete(c.files, f.key)
		c.used.Remove(f.elem)
	}
}

// drop closes a file that was removed, so that its space is given back.
func (c *fileCache) drop(v *Volume, id FileID) {
	if id.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, write := range []bool{false, true} {
		c.dropFile(c.files[fileKey{v, id, write}])
	}
}

// dropFile closes a file now, or when its last user is done. The caller holds
// c.mu.
func (c *fileCache) dropFile(f *openFile) {
	switch {
	case f == nil:
	case f.users == 0:
		c.remove(f)
	default:
		f.dropped = true
		c.forget(f)
	}
}

// removeIdle removes what has been idle for too long.
func (c *fileCache) removeIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.used.Front(); e != nil; {
		f := e.Value.(*openFile)
		e = e.Next()
		switch {
		case f.users > 0:
		case time.Since(f.since) > filesIdle:
			c.remove(f)
		default:
			return // who comes after was used later
		}
	}
}

func (c *fileCache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.files {
		c.dropFile(f)
	}
}
