package inode

import (
	"cmp"
	"container/list"
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

// Use is the purpose of an open file. In Open it also says how to open it.
type Use uint8

// What a file can be opened for.
const (
	UseAttr  Use = iota // its attributes, and names to look up: no effect on a fifo or a device
	UseNames            // a directory's names, to change and sync them
	UseRead             // a regular file's data
	UseWrite
	uses // how many there are
)

// How Open opens a file, besides what for.
const (
	// AtOnce does not block, with UseAttr or UseRead: Open returns nil, without an error, if it would.
	AtOnce Use = 1 << (iota + 4)
	// Recent, with UseAttr, has Attr be remembered attributes, if they are. The kernel decides all the same what callers
	// may do, except for a file's owner: for the owner a change of the mode that somebody makes directly on the disk
	// counts after attrsKept. With AtOnce, too, the file may have no descriptor: only Attr, Volume and ID can be used.
	Recent
	// Orphan opens an orphan, and nothing else, with UseRead or UseWrite. The caller knows that somebody holds it, or may
	// reclaim it.
	Orphan
	how = AtOnce | Recent | Orphan
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

	opener *Opener
	volume *exports.Volume
	inode  *inode
	use    Use
	own    disk.Descriptor
	fd     int // of own

	// The mu of the inode's shard guards these.
	users   int
	dropped bool          // to be closed by its last user, and found by nobody else
	since   int64         // the sweep after which nobody has used it, if users is 0
	elem    *list.Element // in shard.used; nil: it is not in the cache

	charge  *space.Charge // where the server counts
	written atomic.Bool
	born    atomic.Int64 // File.Birth; 0: nobody has asked
	looked  atomic.Bool  // by an ACCESS or READ, whose next one may find its attributes remembered
}

// init has the descriptor be synced with what it shares with the file's others.
func (f *openFile) init() {
	var owner durable.Owner
	if f.opener.table.Only != nil {
		owner = f
	}
	f.Init(&f.volume.Durable, f.fd, f.use.kind(), &f.inode.state, owner)
}

// OpenToSync implements durable.Owner.
func (f *openFile) OpenToSync() (disk.Descriptor, error) {
	return f.opener.openOwn(f.volume, f.inode.key.id, f.fd, UseRead)
}

// Synced implements durable.Told, for a file that the cache wants to close.
func (f *openFile) Synced(error) { f.opener.inodes.release(f) }

// keep caches a descriptor of a file and returns it for use. If another call has cached one already, keep returns that
// one and closes this one. If the cache is full, it closes another descriptor. If all others must be synced before, it
// syncs one of them: otherwise writers would open files, and directories between them, faster than those can be synced
// and closed, and descriptors would run out.
func (o *Opener) keep(v *exports.Volume, id disk.FileID, use Use, d disk.Descriptor, charge *space.Charge) *openFile {
	t, key := &o.inodes, fileKey{v.ID, id}
	s, number := t.shardOf(&key)
	s.mu.Lock()
	i := s.enterLocked(&key, number)
	f := &openFile{opener: o, volume: v, inode: i, use: use, fd: d.FD(), users: 1, charge: charge, own: d}
	first := i.open[use]
	if first != nil && first.volume == v {
		first.users++
		s.leaveLocked(i)
		s.mu.Unlock()
		f.close()
		return first
	}
	ended := t.dropLocked(s, first) // of an export that has ended
	i.open[use] = f
	f.init()
	f.elem = s.used.PushBack(f)
	s.mu.Unlock()
	ended.close()
	if t.cached.Add(1) > t.limit.Load() {
		if unsynced := t.evict(number); unsynced != nil {
			o.syncer.Now(&unsynced.File)
			t.release(unsynced)
		}
	}
	return f
}

// descriptorsMax returns how many descriptors the process may have, 0 if that is not known.
func descriptorsMax() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return limit.Cur
}

func (t *inodes) init() {
	t.idle = make(chan struct{}, 1)
	t.limit.Store(filesMax)
	if most := descriptorsMax(); most > 0 { // the other half is for connections and for files in use
		t.limit.Store(int64(min(filesMax, most/2)))
	}
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

func (t *inodes) counts() FileCounts {
	n := FileCounts{Open: int(t.cached.Load()), Limit: int(t.limit.Load()), Misses: t.misses.Load(), Evicted: t.evicted.Load()}
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		n.Hits += s.hits
		s.mu.Unlock()
	}
	return n
}

// get returns a cached descriptor for use, or nil if there is none.
func (t *inodes) get(v *exports.Volume, id *disk.FileID, use Use) *openFile {
	key := fileKey{v.ID, *id}
	s, number := t.shardOf(&key)
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.findLocked(&key, number)
	if i == nil {
		return nil
	}
	f := i.open[use]
	if f == nil && (use == UseAttr || use == UseRead) { // a descriptor for more is good enough
		f = cmp.Or(i.open[UseWrite], i.open[UseRead])
	}
	if f == nil || f.volume != v { // of an export that has ended
		return nil
	}
	if use == UseNames {
		i.withNamesLocked()
	}
	f.users++
	s.hits++
	return f
}

// evict closes the least recently used descriptor of a shard, or of others where that has none. If all must be synced
// before, it returns one of them, for the caller to sync and release; nil if all are in use.
func (t *inodes) evict(from uint64) (unsynced *openFile) {
	for n := range uint64(shardsMax) {
		s := &t.shards[(from+n)%shardsMax]
		s.mu.Lock()
		evicted := t.evictLocked(s, &unsynced)
		s.mu.Unlock()
		if evicted == nil {
			continue
		}
		evicted.close()
		if unsynced != nil {
			t.release(unsynced)
		}
		return nil
	}
	return unsynced
}

// evictLocked takes the least recently used descriptor that can be closed from the cache. If there is none, unsynced
// becomes the first that must be synced, unless it is one already.
//
// +checklocks:s.mu
func (t *inodes) evictLocked(s *shard, unsynced **openFile) *openFile {
	for e := s.used.Front(); e != nil; e = e.Next() {
		f := e.Value.(*openFile)
		switch {
		case f.users > 0:
		case !f.Unsynced():
			t.evicted.Add(1)
			t.forgetLocked(s, f)
			return f
		case *unsynced == nil:
			f.users++
			*unsynced = f
		}
	}
	return nil
}

// retain is another use of a descriptor that is in use.
func (f *openFile) retain() {
	f.inode.shard.mu.Lock()
	defer f.inode.shard.mu.Unlock()
	f.users++
}

// release ends the use of a descriptor.
func (t *inodes) release(f *openFile) {
	s := f.inode.shard
	s.mu.Lock()
	f.users--
	last := f.users == 0 && (f.dropped || t.cached.Load() > t.limit.Load() && !f.Unsynced())
	if last {
		t.forgetLocked(s, f)
	} else if f.users == 0 {
		t.unusedLocked(s, f)
	}
	s.mu.Unlock()
	if last {
		f.close()
	}
}

// unusedLocked begins the time that a descriptor is idle.
//
// +checklocks:s.mu
func (t *inodes) unusedLocked(s *shard, f *openFile) {
	f.since = t.sweeps.Load()
	s.used.MoveToBack(f.elem)
	if t.rest.Load() && t.rest.CompareAndSwap(true, false) {
		select {
		case t.idle <- struct{}{}:
		default: // sweep is told already
		}
	}
}

// close closes an unused descriptor that is not in the cache; nil is nothing. It may take long, so the
// caller must not hold the shard's lock.
func (f *openFile) close() {
	if f == nil {
		return
	}
	f.own.Close()
	if f.charge != nil {
		var written string
		if f.written.Load() {
			written = f.inode.key.id.AsString()
		}
		f.charge.Leave(written)
	}
}

// forgetLocked removes a descriptor from the cache.
//
// +checklocks:s.mu
func (t *inodes) forgetLocked(s *shard, f *openFile) {
	if f.elem == nil {
		return
	}
	s.used.Remove(f.elem)
	f.elem = nil
	t.cached.Add(-1)
	if f.inode.open[f.use] == f {
		f.inode.open[f.use] = nil
	}
	s.leaveLocked(f.inode)
}

// drop closes the descriptors of a removed file, so that its space is freed.
func (t *inodes) drop(v *exports.Volume, id disk.FileID) {
	for _, f := range t.takeOut(v, id) {
		f.close()
	}
}

// takeOut removes the descriptors of a removed file from the cache, and returns those that nobody uses, for the caller
// to close.
func (t *inodes) takeOut(v *exports.Volume, id disk.FileID) (unused [uses]*openFile) {
	if id.IsZero() {
		return unused
	}
	key := fileKey{v.ID, id}
	s, number := t.shardOf(&key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.findLocked(&key, number); i != nil {
		for use, f := range i.open {
			unused[use] = t.dropLocked(s, f)
		}
	}
	return unused
}

// dropLocked removes an unused descriptor from the cache and returns it, for the caller to close. One
// that is in use is not found any more, and its last user closes it: dropLocked returns nil.
//
// +checklocks:s.mu
func (t *inodes) dropLocked(s *shard, f *openFile) *openFile {
	if f == nil {
		return nil
	}
	f.dropped, f.inode.open[f.use] = true, nil
	if f.users > 0 {
		return nil
	}
	t.forgetLocked(s, f)
	return f
}

// removeIdle closes descriptors that were idle for too long. It is called every filesSweep while there are
// more idle ones. It returns those that must be synced before, for the caller to sync and release.
func (t *inodes) removeIdle() (unsynced []*openFile, more bool) {
	t.rest.Store(true) // what becomes idle from here on asks for another sweep
	sweep := t.sweeps.Add(1)
	for n := range t.shards {
		var idle []*openFile
		s := &t.shards[n]
		s.mu.Lock()
		for e := s.used.Front(); e != nil; {
			f := e.Value.(*openFile)
			e = e.Next()
			if f.users > 0 {
				continue
			}
			if sweep-f.since <= int64(filesIdle/filesSweep) {
				more = true
				break // the following ones were used later
			}
			if f.Unsynced() && !f.volume.HasEnded() {
				f.users++
				unsynced = append(unsynced, f)
				continue
			}
			t.forgetLocked(s, f)
			idle = append(idle, f)
		}
		if len(idle) > 0 && len(s.inodes) == 0 {
			s.inodes = nil // a map keeps the memory of its largest size
		}
		s.mu.Unlock()
		for _, f := range idle {
			f.close()
		}
	}
	if more {
		t.rest.Store(false)
	}
	return unsynced, more
}

// close closes what nobody uses; the last user of another descriptor closes it.
func (t *inodes) close() {
	for n := range t.shards {
		var unused []*openFile
		s := &t.shards[n]
		s.mu.Lock()
		for e := s.used.Front(); e != nil; {
			f := e.Value.(*openFile)
			e = e.Next()
			unused = append(unused, t.dropLocked(s, f))
		}
		s.mu.Unlock()
		for _, f := range unused {
			f.close()
		}
	}
}
