package export

import (
	"cmp"
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
	// filesSweep is how often it is looked for those.
	filesSweep = time.Second
)

// fileCache keeps files open between calls.
type fileCache struct {
	limit int

	mu    sync.Mutex
	files map[fileKey][uses]*openFile // nil: not open for that
	open  int                         // in files
	used  list.List                   // of the *openFile in files, roughly the longest unused first
	count FileCounts
	sweep int // how often it was looked for idle files
}

type fileKey struct {
	volume *Volume
	id     FileID
}

// use is what a descriptor was opened for.
type use uint8

const (
	useAttr  use = iota // with O_PATH: attributes, and names to look up
	useNames            // a directory's names, to change and sync them
	useRead             // a regular file's data
	useWrite
	uses // how many there are
)

// flags are those of open(2).
func (u use) flags() int {
	return [uses]int{
		useAttr:  unix.O_PATH | unix.O_NOFOLLOW,
		useNames: unix.O_RDONLY | unix.O_DIRECTORY,
		useRead:  unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK,
		useWrite: unix.O_RDWR | unix.O_NOFOLLOW | unix.O_NONBLOCK,
	}[u]
}

// openFile is a descriptor. It is in use, idle and in the cache, or closed.
type openFile struct {
	key     fileKey
	use     use
	fd      int
	users   int
	dropped bool          // to be closed by its last user
	since   int           // the sweep after which nobody has used it, if users is 0
	elem    *list.Element // in fileCache.used

	charge   *charge // where the server counts
	written  atomic.Bool
	unsynced atomic.Bool   // it was written and not synced since; it stays open until it is
	state    *syncState    // shared with what the file is open for otherwise
	names    sync.Mutex    // of a directory, see LockNames
	changes  atomic.Uint64 // of its names, so far
}

func newFileCache() *fileCache {
	c := &fileCache{limit: filesMax, files: map[fileKey][uses]*openFile{}}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil {
		// The rest is for connections and for files in use.
		c.limit = int(min(filesMax, limit.Cur/2))
	}
	return c
}

// Kept counts what an Opener keeps between calls.
type Kept struct {
	Files   FileCounts
	Handles HandleCounts
}

// FileCounts are of the files that are kept open.
type FileCounts struct {
	Open, Limit           int
	Hits, Misses, Evicted uint64 // Evicted: closed to make room, though they were used lately
}

func (c *fileCache) counts() FileCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.count
	n.Open, n.Limit = c.open, c.limit
	return n
}

// get takes a file, nil if it is not there.
func (c *fileCache) get(key fileKey, use use) *openFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	files := c.files[key]
	f := files[use]
	if f == nil && (use == useAttr || use == useRead) { // what is open for more will do
		f = cmp.Or(files[useWrite], files[useRead])
	}
	if f != nil {
		f.users++
		c.count.Hits++
	}
	return f
}

// missed notes that a file was not there, and has to be opened.
func (c *fileCache) missed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count.Misses++
}

// put adds a file that was just opened and takes it. If another call was
// faster, its file is taken and this one closed. To make room, another file is closed.
// If there are only such that have to be synced before, one of them is taken too, for the
// caller to sync and release it.
func (c *fileCache) put(key fileKey, use use, fd int, charge *charge) (f, unsynced *openFile) {
	f = &openFile{key: key, use: use, fd: fd, users: 1, charge: charge, state: &syncState{}}
	c.mu.Lock()
	files := c.files[key]
	if first := files[use]; first != nil {
		first.users++
		c.mu.Unlock()
		f.close() // nothing was written through it
		return first, nil
	}
	for _, other := range files {
		if other != nil {
			f.state = other.state
		}
	}
	files[use] = f
	c.files[key] = files
	var evicted *openFile
	if c.open++; c.open > c.limit {
		evicted, unsynced = c.longestUnused()
	}
	f.elem = c.used.PushBack(f)
	c.mu.Unlock()
	evicted.close()
	return f, unsynced
}

// longestUnused takes the file that was unused for longest out, of those that can be
// closed. If there is none it takes the first to be synced. Both are nil if all are in
// use. The caller holds c.mu.
func (c *fileCache) longestUnused() (evicted, unsynced *openFile) {
	for e := c.used.Front(); e != nil; e = e.Next() {
		f := e.Value.(*openFile)
		switch {
		case f.users > 0:
		case !f.unsynced.Load():
			c.count.Evicted++
			c.forget(f)
			return f, nil
		case unsynced == nil:
			unsynced = f
		}
	}
	if unsynced != nil {
		unsynced.users++
	}
	return nil, unsynced
}

// release gives a file back.
func (c *fileCache) release(f *openFile) {
	c.mu.Lock()
	f.users--
	last := f.users == 0 && (f.dropped || c.open > c.limit && !f.unsynced.Load())
	switch {
	case last:
		c.forget(f)
	case f.users == 0:
		f.since = c.sweep
		c.used.MoveToBack(f.elem)
	}
	c.mu.Unlock()
	if last {
		f.close()
	}
}

// close closes a file that is out of the cache and that nobody uses. That can take
// its time, so nobody holds the cache meanwhile.
func (f *openFile) close() {
	if f == nil {
		return
	}
	_ = unix.Close(f.fd) // what was written was synced, or the file has been removed
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
	files := c.files[f.key]
	if files[f.use] != f {
		return
	}
	files[f.use] = nil
	if c.files[f.key] = files; files == ([uses]*openFile{}) {
		delete(c.files, f.key)
	}
	c.open--
	c.used.Remove(f.elem)
}

// drop closes a file that was removed, so that its space is given back.
func (c *fileCache) drop(v *Volume, id FileID) {
	if id.IsZero() {
		return
	}
	var unused [uses]*openFile
	c.mu.Lock()
	for use, f := range c.files[fileKey{v, id}] {
		unused[use] = c.dropFile(f)
	}
	c.mu.Unlock()
	for _, f := range unused {
		f.close()
	}
}

// dropFile takes a file out, to be closed by the caller, or if there is a user by
// the last one: then it is nil. The caller holds c.mu.
func (c *fileCache) dropFile(f *openFile) *openFile {
	if f == nil {
		return nil
	}
	c.forget(f)
	f.dropped = true
	if f.users > 0 {
		return nil
	}
	return f
}

// removeIdle closes what has been idle for too long. It is called every filesSweep. What
// has to be synced before is taken, for the caller to sync and release it.
func (c *fileCache) removeIdle() (unsynced []*openFile) {
	var idle []*openFile
	c.mu.Lock()
	c.sweep++
	for e := c.used.Front(); e != nil; {
		f := e.Value.(*openFile)
		e = e.Next()
		if f.users > 0 {
			continue
		}
		if c.sweep-f.since <= int(filesIdle/filesSweep) {
			break // who comes after was used later
		}
		if f.unsynced.Load() && !f.key.volume.hasEnded() {
			f.users++
			unsynced = append(unsynced, f)
			continue
		}
		c.forget(f)
		idle = append(idle, f)
	}
	if len(idle) > 0 && len(c.files) == 0 {
		c.files = map[fileKey][uses]*openFile{} // a map keeps the memory of its largest size
	}
	c.mu.Unlock()
	for _, f := range idle {
		f.close()
	}
	return unsynced
}

// changed notes that the file was written.
func (f *openFile) changed() {
	if !f.unsynced.Load() { // most often it is, and then this is all that a WRITE pays
		f.unsynced.Store(true)
	}
}

func (c *fileCache) close() {
	var unused []*openFile
	c.mu.Lock()
	for _, files := range c.files {
		for _, f := range files {
			unused = append(unused, c.dropFile(f))
		}
	}
	c.mu.Unlock()
	for _, f := range unused {
		f.close()
	}
}
