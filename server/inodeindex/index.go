// Package inodeindex remembers in memory where files are: from the number of an inode to the
// number of its parent directory and its name there. A path is found by going up from name to
// name, so moving a directory changes one entry, whatever is below it.
//
// The index makes no system calls. What it says may be wrong by the time that it is used, so its
// user opens the path and looks whether that is the file.
package inodeindex

import (
	"sync"
	"sync/atomic"
)

const (
	shardBits = 8
	shards    = 1 << shardBits
	// namesMax is how many names of a file are remembered.
	namesMax = 16
)

// Index has the names of inodes. Its methods may be called concurrently. Names have at most 255
// bytes; what is longer is not remembered.
type Index struct {
	limit    int // words of a shard
	removals atomic.Uint64
	changes  atomic.Uint64
	losses   atomic.Uint64
	shards   [shards]shard
}

// New returns an empty Index that takes at most some bytes. Beyond that it forgets: files before
// directories, and among them those that were not looked up for long.
func New(limit int) *Index {
	return &Index{limit: max(limit/wordSize/shards, shardMin)}
}

// Removals counts Remove. A caller that reads it, then sees a name on the disk, and then calls
// AddIf with it, never adds a name that was removed in between.
func (x *Index) Removals() uint64 { return x.removals.Load() }

// Changes counts all changes.
func (x *Index) Changes() uint64 { return x.changes.Load() }

// Losses counts what the index has forgotten of itself: with another value than before, a file may
// exist that it does not know.
func (x *Index) Losses() uint64 { return x.losses.Load() }

// Add adds a name. A directory has only one: the new name replaces another.
func (x *Index) Add(ino, parent uint64, name []byte, dir bool) {
	x.add(ino, parent, name, dir, nil)
}

// AddIf is Add, unless Removals has changed; then it returns false.
func (x *Index) AddIf(removals, ino, parent uint64, name []byte, dir bool) bool {
	return x.add(ino, parent, name, dir, &removals)
}

func (x *Index) add(ino, parent uint64, name []byte, dir bool, removals *uint64) bool {
	if len(name) > nameMax {
		x.losses.Add(1)
		return true
	}
	h := hashOf(ino)
	s := &x.shards[h>>(64-shardBits)]
	s.mu.RLock()
	known := s.see(h, ino, parent, name)
	s.mu.RUnlock()
	if known {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if removals != nil && *removals != x.removals.Load() {
		return false
	}
	flags := uint32(0)
	if dir {
		flags = flagDir
	}
	lost := s.add(h, ino, parent, name, flags, x.limit)
	if lost {
		x.losses.Add(1)
	}
	x.changes.Add(1)
	return true
}

// Remove removes a name.
func (x *Index) Remove(ino, parent uint64, name []byte) {
	x.removals.Add(1) // before the lock, see AddIf
	h := hashOf(ino)
	s := &x.shards[h>>(64-shardBits)]
	s.mu.Lock()
	lost := s.remove(h, ino, parent, name)
	s.mu.Unlock()
	if lost {
		x.losses.Add(1)
	}
	x.changes.Add(1)
}

// Name returns the nth name of an inode, from 0, in buf, and its parent. ok is false if it does not
// have so many.
func (x *Index) Name(ino uint64, nth int, buf *[256]byte) (parent uint64, name []byte, ok bool) {
	h := hashOf(ino)
	s := &x.shards[h>>(64-shardBits)]
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.nth(h, ino, nth)
	if r == nil {
		return 0, nil, false
	}
	r.use()
	return r.parent(), buf[:copy(buf[:], r.name())], true
}

// Unsee begins to note which names are added, or added again.
func (x *Index) Unsee() {
	for i := range x.shards {
		s := &x.shards[i]
		s.mu.Lock()
		s.each(func(_ uint32, r record) { r[0] &^= flagSeen })
		s.mu.Unlock()
	}
}

// RemoveUnseen removes what was not added, or added again, since Unsee, and returns how many names
// that were.
func (x *Index) RemoveUnseen() (removed int) {
	x.removals.Add(1)
	for i := range x.shards {
		s := &x.shards[i]
		s.mu.Lock()
		had := s.records
		s.rebuild(func(r record) bool { return r[0]&flagSeen != 0 })
		removed += had - s.records
		s.mu.Unlock()
	}
	x.changes.Add(1)
	return removed
}

// Size returns the number of names, and the bytes that they take.
func (x *Index) Size() (names, bytes int) {
	for i := range x.shards {
		s := &x.shards[i]
		s.mu.RLock()
		names += s.records
		bytes += (cap(s.arena) + cap(s.table)) * wordSize
		s.mu.RUnlock()
	}
	return names, bytes
}

// Each calls f for each name, which is valid until f returns. f must not use the Index.
func (x *Index) Each(f func(ino, parent uint64, name []byte, dir bool)) {
	for i := range x.shards {
		s := &x.shards[i]
		s.mu.RLock()
		s.each(func(_ uint32, r record) { f(r.ino(), r.parent(), r.name(), r[0]&flagDir != 0) })
		s.mu.RUnlock()
	}
}

// hashOf spreads numbers: the upper bits choose the shard, others the place in it.
func hashOf(ino uint64) uint64 {
	h := ino * 0x9e3779b97f4a7c15
	h ^= h >> 32
	return h * 0xd6e8feb86659fd93
}

// shard is a hash table of references to records in an arena.
type shard struct {
	mu      sync.RWMutex
	table   []uint32 // 1 more than where a record begins, 0: none; probed one after the other
	arena   []uint32
	records int
	dead    int // words of the arena that are no record's any more
}
