package export

import (
	"container/list"
	"sync"
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
	idle  list.List // of *openFile that nobody uses, the longest idle first

	stop chan struct{}
	done sync.WaitGroup
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
	dropped bool // to be closed by its last user
	since   time.Time
	elem    *list.Element // in fileCache.idle
}

func newFileCache() *fileCache {
	c := &fileCache{limit: filesMax, files: map[fileKey]*openFile{}, stop: make(chan struct{})}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil {
		// The rest is for connections and for files in use.
		c.limit = int(min(filesMax, limit.Cur/2))
	}
	c.done.Go(c.sweep)
	return c
}

// get takes a file, nil if it is not there.
func (c *fileCache) get(key fileKey) *openFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.files[key]
	if f != nil {
		c.use(f)
	}
	return f
}

// use counts a user. The caller holds c.mu.
func (c *fileCache) use(f *openFile) {
	if f.users++; f.elem != nil {
		c.idle.Remove(f.elem)
		f.elem = nil
	}
}

// put adds a file that was just opened and takes it. If another call was
// faster, its file is taken and this one closed.
func (c *fileCache) put(key fileKey, fd int) *openFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.files[key]; f != nil {
		_ = unix.Close(fd) // nothing was written through it
		c.use(f)
		return f
	}
	for len(c.files) >= c.limit && c.idle.Len() > 0 {
		c.remove(c.idle.Front().Value.(*openFile))
	}
	f := &openFile{key: key, fd: fd, users: 1}
	c.files[key] = f
	return f
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
	f.elem = c.idle.PushBack(f)
}

// remove closes a file that nobody uses. The caller holds c.mu.
func (c *fileCache) remove(f *openFile) {
	if f.elem != nil {
		c.idle.Remove(f.elem)
		f.elem = nil
	}
	if c.files[f.key] == f {
		delete(c.files, f.key)
	}
	_ = unix.Close(f.fd) // what a client was told is stable was synced before
}

// drop closes a file that was removed, so that its space is given back.
func (c *fileCache) drop(v *Volume, id FileID) {
	if id == "" {
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
		delete(c.files, f.key)
	}
}

// sweep closes what has been idle.
func (c *fileCache) sweep() {
	tick := time.NewTicker(filesIdle / 5)
	defer tick.Stop()
	for {
		select {
		case <-c.stop:
			return
		case <-tick.C:
		}
		c.mu.Lock()
		for c.idle.Len() > 0 && time.Since(c.idle.Front().Value.(*openFile).since) > filesIdle {
			c.remove(c.idle.Front().Value.(*openFile))
		}
		c.mu.Unlock()
	}
}

func (c *fileCache) close() {
	close(c.stop)
	c.done.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.files {
		c.dropFile(f)
	}
}
