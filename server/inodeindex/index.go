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
	memory   *Memory
	removals atomic.Uint64
	changes  atomic.Uint64
	losses   atomic.Uint64
	shards   [shards]shard
}

// New returns an empty Index. If all indexes of the Memory take more than they may, one that has more than
// an equal part forgets: files before directories, and among them those that were not looked up for long.
func New(memory *Memory) *Index {
	memory.indexes.Add(1)
	return &Index{memory: memory}
}

// Close gives the memory back. The Index must not be used any more.
func (x *Index) Close() {
	for i := range x.shards {
		s := &x.shards[i]
		x.change(s, func() { s.rebuild(func(record) bool { return false }) })
	}
	x.memory.indexes.Add(-1)
}

// Forget forgets all names, and gives their memory back.
func (x *Index) Forget() {
	x.losses.Add(1) // before the first is gone: who misses it sees that
	for i := range x.shards {
		s := &x.shards[i]
		x.change(s, func() { s.rebuild(func(record) bool { return false }) })
	}
	x.changes.Add(1)
}

// change calls f with a shard locked, and counts the memory that it has taken or given back.
func (x *Index) change(s *shard, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	had := s.size()
	f()
	x.memory.words.Add(int64(s.size() - had))
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
	flags := uint32(0)
	if dir {
		flags = flagDir
	}
	current := true
	x.change(s, func() {
		if current = removals == nil || *removals == x.removals.Load(); !current {
			return
		}
		if s.add(h, ino, parent, name, flags, x.memory.part()) {
			x.losses.Add(1)
		}
		x.changes.Add(1)
	})
	return current
}

// Remove removes a name.
func (x *Index) Remove(ino, parent uint64, name []byte) {
	x.removals.Add(1) // before the lock, see AddIf
	h := hashOf(ino)
	s := &x.shards[h>>(64-shardBits)]
	x.change(s, func() {
		if s.remove(h, ino, parent, name) {
			x.losses.Add(1)
		}
	})
	x.changes.Add(1)
}

// Suspect says that an inode may not have a name any more: who has called it looks on the disk, and then calls RemoveSuspect.
func (x *Index) Suspect(ino, parent uint64, name []byte) {
	h := hashOf(ino)
	s := &x.shards[h>>(64-shardBits)]
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.suspect(h, ino, parent, name)
}

// RemoveSuspect is Remove, unless the name was added again since Suspect: somebody has seen it since, so it stays, and trusted is true.
func (x *Index) RemoveSuspect(ino, parent uint64, name []byte) (trusted bool) {
	x.removals.Add(1) // before the lock, see AddIf
	h := hashOf(ino)
	s := &x.shards[h>>(64-shardBits)]
	x.change(s, func() {
		if trusted = s.trusts(h, ino, parent, name); !trusted && s.remove(h, ino, parent, name) {
			x.losses.Add(1)
		}
	})
	x.changes.Add(1)
	return trusted
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
		x.change(s, func() {
			had := s.records
			s.rebuild(func(r record) bool { return r[0]&flagSeen != 0 })
			removed += had - s.records
		})
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
