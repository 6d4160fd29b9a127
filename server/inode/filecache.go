package inode

import (
	"cmp"
	"container/list"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/durable"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/space"
)

const (
	// filesMax limits the cached descriptors, even if the limit of the process is
	// higher. It is a power of 2.
	filesMax = 4096
	// filesIdle is how long an unused descriptor is kept: as long as the pauses
	// between two calls of a program that reads or writes.
	filesIdle = 5 * time.Second
	// filesSweep is the time between two sweeps for idle descriptors.
	filesSweep = time.Second
)

// fileCache keeps files open between calls.
type fileCache struct {
	limit int

	seed maphash.Seed
	mu   sync.Mutex
	// +checklocks:mu
	files map[fileNumber]*openFile // the first with a number; others follow it
	// +checklocks:mu
	total int // in files
	// +checklocks:mu
	used list.List // of the *openFile in files, roughly least recently used first
	// +checklocks:mu
	count FileCounts
	// +checklocks:mu
	sweep int // number of sweeps for idle files
	// +checklocks:mu
	rest bool          // no sweep is to come
	idle chan struct{} // there is an idle file, and no sweep was to come
}

type fileKey struct {
	volume *exports.Volume
	id     disk.FileID
}

// fileNumber is the number of an inode, by which an open file is found faster than by its fileKey. A file is open for several uses, and hashes may be alike, so several may have one number.
type fileNumber struct {
	volume *exports.Volume
	ino    uint64 // a hash if the FileID has no number
}

func (c *fileCache) number(key *fileKey) fileNumber {
	n := fileNumber{key.volume, key.volume.FS.NumberIn(&key.id)}
	if n.ino == 0 {
		n.ino = key.id.Hash(c.seed)
	}
	return n
}

// Use is the purpose of an open file.
type Use uint8

// What a file can be opened for.
const (
	UseAttr  Use = iota // its attributes, and names to look up: no effect on a fifo or a device
	UseNames            // a directory's names, to change and sync them
	UseRead             // a regular file's data
	UseWrite
	uses // how many there are
)

func (u Use) isData() bool { return u == UseRead || u == UseWrite }

// kind is how a descriptor for it is synced.
func (u Use) kind() durable.Kind {
	return [uses]durable.Kind{UseAttr: durable.Other, UseNames: durable.Names, UseRead: durable.Read, UseWrite: durable.Write}[u]
}

// flags are the flags for open(2).
func (u Use) flags() int {
	return [uses]int{
		UseAttr:  disk.PathOnly,
		UseNames: unix.O_RDONLY | unix.O_DIRECTORY,
		UseRead:  unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK,
		UseWrite: unix.O_RDWR | unix.O_NOFOLLOW | unix.O_NONBLOCK,
	}[u]
}

// openFile is a descriptor. It is in use, idle and in the cache, or closed.
type openFile struct {
	durable.File // stays open until it is synced

	opener  *Opener
	key     fileKey
	use     Use
	own     disk.Descriptor
	fd      int // of own
	users   int
	dropped bool          // to be closed by its last user, and found by nobody else
	since   int           // the sweep after which nobody has used it, if users is 0
	elem    *list.Element // in fileCache.used; nil: it is not in the cache
	next    *openFile     // with the same number, in fileCache.files

	charge  *space.Charge // where the server counts
	content *content      // of a regular file that is open with UseRead or UseWrite
	written atomic.Bool
	looked  atomic.Bool // by an ACCESS or READ, whose next one may find its attributes remembered
}

// newOpenFile returns a descriptor that is in use, and not in the cache.
func (o *Opener) newOpenFile(key fileKey, use Use, fd int, charge *space.Charge) *openFile {
	return &openFile{opener: o, key: key, use: use, fd: fd, users: 1, charge: charge}
}

// init has the descriptor be synced with what it shares with the file's others.
func (f *openFile) init(state *durable.State) {
	var owner durable.Owner
	if f.opener.table.Only != nil {
		owner = f
	}
	f.Init(&f.key.volume.Durable, f.fd, f.use.kind(), state, owner)
}

// OpenToSync implements durable.Owner.
func (f *openFile) OpenToSync() (disk.Descriptor, error) {
	return f.opener.openOwn(f.key.volume, f.key.id, f.fd, UseRead)
}

// Synced implements durable.Told, for a file that nobody uses.
func (f *openFile) Synced(error) { f.opener.files.release(f) }

// keep is fileCache.put. If a file must be synced before there is room, it does so: otherwise writers would open
// files, and directories between them, faster than those can be synced and closed, and descriptors would run out.
func (o *Opener) keep(key fileKey, use Use, d disk.Descriptor, charge *space.Charge) *openFile {
	opened := o.newOpenFile(key, use, d.FD(), charge)
	opened.own = d
	f, unsynced := o.files.put(opened)
	if unsynced != nil {
		o.syncer.Now(&unsynced.File)
		o.files.release(unsynced)
	}
	return f
}

// syncUnused syncs a file that the cache wants to close, and releases it. If that fails,
// the write verifier changes.
func (o *Opener) syncUnused(f *openFile) { o.syncer.Then(&f.File, f) }

func newFileCache() *fileCache {
	c := &fileCache{limit: filesMax, seed: maphash.MakeSeed(), files: map[fileNumber]*openFile{}, idle: make(chan struct{}, 1)}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil {
		// The other half is for connections and for files in use.
		c.limit = int(min(filesMax, limit.Cur/2))
	}
	return c
}

// Kept counts what an Opener keeps between calls.
type Kept struct {
	Files   FileCounts
	Handles locate.HandleCounts
	Index   locate.IndexCounts
}

// FileCounts counts the cached open files.
type FileCounts struct {
	Open, Limit           int
	Hits, Misses, Evicted uint64 // Evicted: closed for others although not idle
}

func (c *fileCache) counts() FileCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.count
	n.Open, n.Limit = c.total, c.limit
	return n
}

// get returns a file for use, or nil if it is not cached.
func (c *fileCache) get(key fileKey, use Use) *openFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	files := c.openLocked(&key)
	f := files[use]
	if f == nil && (use == UseAttr || use == UseRead) { // a descriptor for more is good enough
		f = cmp.Or(files[UseWrite], files[UseRead])
	}
	if f != nil {
		f.users++
		c.count.Hits++
	}
	return f
}

// openLocked returns the descriptors of a file, nil: it is not open for that.
//
// +checklocks:c.mu
func (c *fileCache) openLocked(key *fileKey) (files [uses]*openFile) {
	for f := c.files[c.number(key)]; f != nil; f = f.next {
		if f.key == *key && !f.dropped {
			files[f.use] = f
		}
	}
	return files
}

// missed counts a file that was not cached.
func (c *fileCache) missed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count.Misses++
}

// put adds an opened file to the cache and returns it for use. If another call has added
// the file already, put returns that one and closes this one. If the cache is full, it
// closes another file. If all others must be synced before, it also returns one of them,
// for the caller to sync and release.
func (c *fileCache) put(f *openFile) (_, unsynced *openFile) {
	use := f.use
	c.mu.Lock()
	files := c.openLocked(&f.key)
	if first := files[use]; first != nil {
		first.users++
		c.mu.Unlock()
		f.close()
		return first, nil
	}
	state, content := new(durable.State), f.content
	for _, other := range files {
		if other != nil {
			state, content = other.State(), cmp.Or(other.content, content)
		}
	}
	f.init(state)
	if f.content = content; use.isData() && content == nil {
		f.content = newContent()
	}
	number := c.number(&f.key)
	f.next, c.files[number] = c.files[number], f
	var evicted *openFile
	if c.total++; c.total > c.limit {
		evicted, unsynced = c.longestUnusedLocked()
	}
	f.elem = c.used.PushBack(f)
	c.mu.Unlock()
	evicted.close()
	return f, unsynced
}

// longestUnusedLocked removes the least recently used file that can be closed from the
// cache. If there is none, it returns the first one that must be synced. Both are nil
// if all are in use.
//
// +checklocks:c.mu
func (c *fileCache) longestUnusedLocked() (evicted, unsynced *openFile) {
	for e := c.used.Front(); e != nil; e = e.Next() {
		f := e.Value.(*openFile)
		switch {
		case f.users > 0:
		case !f.Unsynced():
			c.count.Evicted++
			c.forgetLocked(f)
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

// hold is another use of a file that is in use.
func (c *fileCache) hold(f *openFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.users++
}

// release ends the use of a file.
func (c *fileCache) release(f *openFile) {
	c.mu.Lock()
	f.users--
	last := f.users == 0 && (f.dropped || c.total > c.limit && !f.Unsynced())
	if last {
		c.forgetLocked(f)
	} else {
		c.unusedLocked(f)
	}
	c.mu.Unlock()
	if last {
		f.close()
	}
}

// unusedLocked begins the time that a file is idle, if nobody uses it now.
//
// +checklocks:c.mu
func (c *fileCache) unusedLocked(f *openFile) {
	if f.users > 0 {
		return
	}
	f.since = c.sweep
	c.used.MoveToBack(f.elem)
	if c.rest {
		c.rest = false
		select {
		case c.idle <- struct{}{}:
		default: // sweep is told already
		}
	}
}

// close closes an unused file that is not in the cache. It may take long, so the
// caller must not hold the cache's lock.
func (f *openFile) close() {
	if f == nil {
		return
	}
	f.own.Close()
	if f.charge != nil {
		var written string
		if f.written.Load() {
			written = f.key.id.AsString()
		}
		f.charge.Leave(written)
	}
}

// forgetLocked removes a file from the cache.
//
// +checklocks:c.mu
func (c *fileCache) forgetLocked(f *openFile) {
	if f.elem == nil {
		return
	}
	c.used.Remove(f.elem)
	f.elem = nil
	c.total--
	number := c.number(&f.key)
	first := c.files[number]
	if first == f {
		if c.files[number] = f.next; f.next == nil {
			delete(c.files, number)
		}
		return
	}
	for ; first.next != f; first = first.next {
	}
	first.next = f.next
}

// drop closes a removed file, so that its space is freed.
func (c *fileCache) drop(v *exports.Volume, id disk.FileID) {
	if id.IsZero() {
		return
	}
	var unused [uses]*openFile
	c.mu.Lock()
	for use, f := range c.openLocked(&fileKey{v, id}) {
		unused[use] = c.dropFileLocked(f)
	}
	c.mu.Unlock()
	for _, f := range unused {
		f.close()
	}
}

// dropFileLocked removes an unused file from the cache and returns it, for the caller to close. One
// that is in use is not found any more, and its last user closes it: dropFile returns nil. The caller
//
// +checklocks:c.mu
func (c *fileCache) dropFileLocked(f *openFile) *openFile {
	if f == nil {
		return nil
	}
	f.dropped = true
	if f.users > 0 {
		return nil
	}
	c.forgetLocked(f)
	return f
}

// removeIdle closes files that were idle for too long. It is called every filesSweep while there are
// more idle ones. It returns those that must be synced before, for the caller to sync and release.
func (c *fileCache) removeIdle() (unsynced []*openFile, more bool) {
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
			more = true
			break // the following ones were used later
		}
		if f.Unsynced() && !f.key.volume.HasEnded() {
			f.users++
			unsynced = append(unsynced, f)
			continue
		}
		c.forgetLocked(f)
		idle = append(idle, f)
	}
	c.rest = !more
	if len(idle) > 0 && len(c.files) == 0 {
		c.files = map[fileNumber]*openFile{} // a map keeps the memory of its largest size
	}
	c.mu.Unlock()
	for _, f := range idle {
		f.close()
	}
	return unsynced, more
}

func (c *fileCache) close() {
	var unused []*openFile
	c.mu.Lock()
	for e := c.used.Front(); e != nil; {
		f := e.Value.(*openFile)
		e = e.Next()
		unused = append(unused, c.dropFileLocked(f))
	}
	c.mu.Unlock()
	for _, f := range unused {
		f.close()
	}
}
