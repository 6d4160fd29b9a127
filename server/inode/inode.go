package inode

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/durable"
)

// fileKey says which file of which volume it is.
type fileKey struct {
	volume uint64 // its ID
	id     disk.FileID
}

// inode is what is known of a file in use: one that is open, that clients hold, that is an orphan, or whose names a
// call changes. There is one object for each file.
type inode struct {
	key   fileKey
	shard *shard
	// The shard's mu guards these.
	next *inode            // with the same number, in shard.inodes
	refs int               // descriptors that are not closed, uses by enter and use, and 1 for an orphan
	open [uses]*descriptor // cached descriptors; nil: it is not open for that
	held int               // Helds, and calls that change its names

	// names is of a directory whose names a call has changed. It is set once, under the shard's mu.
	names *names
	// lastName is locked while the file gets a name or loses its last: an orphan has no other.
	lastName sync.Mutex
	// orphan is whether the file lost its last name while a client holds it (orphans.go). It changes under lastName
	// and the shard's mu.
	orphan atomic.Bool
	// content is the lock of the data of a regular file.
	content content
	// state has the calls that wait for a sync of the file, and its failed syncs.
	state durable.State
}

// names is the lock of a directory's names.
type names struct {
	key   fileKey
	users atomic.Int32  // calls that may lock it
	seq   atomic.Uint64 // how often it was locked, and was left by its last user

	waiting atomic.Int32 // calls in lockOfFew that wait for lock
	turn    sync.Mutex   // of the calls that are too many for lockOfFew, for the one that is next: see LockNamesInTurn
	lock    sync.Mutex
	// after is what the directory's attributes are after a change.
	// +checklocks:lock
	after disk.Attr
	// latest is seq, when after is from the latest change, or never.
	// +checklocks:lock
	latest uint64
}

// never is none of names.seq.
const never = math.MaxUint64

// shard is a part of the table of inodes, with the idle descriptors of its files. Those in use are only in their inode:
// there may be very many of them, as clients hold files open.
type shard struct {
	mu sync.Mutex
	// +checklocks:mu
	inodes map[uint64]*inode // the first with a number; others follow it
	// +checklocks:mu
	idle idleFiles
	// +checklocks:mu
	unsynced idleFiles // that must be synced before they are closed
	// +checklocks:mu
	hits uint64 // of get
}

// shardsMax is how many shards there are, a power of 2: calls for different files seldom wait for each other.
const shardsMax = 16

// inodes is the table of all files in use.
type inodes struct {
	shards          [shardsMax]shard
	limit           atomic.Int64 // of idle descriptors; each shard has an equal part of it
	misses, evicted atomic.Uint64
	// orphans is how many there are: as long as there is none, calls do not ask for each file.
	orphans atomic.Int64

	sweeps atomic.Int64  // for idle descriptors, until now
	rest   atomic.Bool   // no sweep is to come
	idle   chan struct{} // there is an idle descriptor, and no sweep was to come
}

// shardOf returns the shard of a file, and its number there.
func (t *inodes) shardOf(key *fileKey) (s *shard, number uint64) {
	number = key.id.Fold() ^ key.volume
	return &t.shards[number%shardsMax], number
}

// findLocked returns the object of a file, nil if there is none.
//
// +checklocks:s.mu
func (s *shard) findLocked(key *fileKey, number uint64) *inode {
	for i := s.inodes[number]; i != nil; i = i.next {
		if i.key == *key {
			return i
		}
	}
	return nil
}

// enterLocked returns the object of a file, until leaveLocked.
//
// +checklocks:s.mu
func (s *shard) enterLocked(key *fileKey, number uint64) *inode {
	i := s.findLocked(key, number)
	if i == nil {
		if s.inodes == nil {
			s.inodes = map[uint64]*inode{}
		}
		i = &inode{key: *key, shard: s, next: s.inodes[number]}
		s.inodes[number] = i
	}
	i.refs++
	return i
}

// leaveLocked drops one reference to the object. With the last one it leaves the table.
//
// +checklocks:s.mu
func (s *shard) leaveLocked(i *inode) {
	if i.refs--; i.refs > 0 {
		return
	}
	number := i.key.id.Fold() ^ i.key.volume
	at := s.inodes[number]
	if at != i {
		for ; at.next != i; at = at.next {
		}
		at.next = i.next
		return
	}
	if s.inodes[number] = i.next; i.next == nil {
		delete(s.inodes, number)
	}
}

// enterNames returns the object of a directory, whose names are about to change, until leave.
func (t *inodes) enterNames(key fileKey) *inode {
	s, number := t.shardOf(&key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.enterLocked(&key, number).withNamesLocked()
}

// withNamesLocked makes the lock of a directory's names. The caller has locked the shard.
func (i *inode) withNamesLocked() *inode {
	if i.names == nil {
		i.names = &names{key: i.key, latest: never}
	}
	return i
}

// leave ends enterNames.
func (i *inode) leave() {
	i.shard.mu.Lock()
	defer i.shard.mu.Unlock()
	i.shard.leaveLocked(i)
}

// each calls do for each file in use, one shard after the other.
func (t *inodes) each(do func(*inode)) {
	for n := range t.shards {
		s := &t.shards[n]
		s.mu.Lock()
		for _, i := range s.inodes {
			for ; i != nil; i = i.next {
				do(i)
			}
		}
		s.mu.Unlock()
	}
}

// use is another use of a file by a client that has it open, or a call that changes its names, until release.
func (t *inodes) use(key fileKey) *inode {
	s, number := t.shardOf(&key)
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.enterLocked(&key, number)
	i.held++
	return i
}

// with calls do with the object of a file, and its shard locked, if there is one.
func (t *inodes) with(key fileKey, do func(*inode)) {
	s, number := t.shardOf(&key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.findLocked(&key, number); i != nil {
		do(i)
	}
}

// useIf is use, if some client holds the file or it is an orphan; else it returns nil.
func (t *inodes) useIf(key fileKey) (held *inode) {
	t.with(key, func(i *inode) {
		if i.isHeldLocked() {
			held, i.refs, i.held = i, i.refs+1, i.held+1
		}
	})
	return held
}

// isHeldLocked reports whether some client holds the file, or it is an orphan. The caller has locked the shard.
func (i *inode) isHeldLocked() bool { return i.held > 0 || i.orphan.Load() }

// isOrphan reports whether the file lost its last name while a client holds it.
func (t *inodes) isOrphan(key fileKey) (orphan bool) {
	if t.orphans.Load() > 0 {
		t.with(key, func(i *inode) { orphan = i.orphan.Load() })
	}
	return orphan
}

// setOrphan changes whether the file is an orphan, and reports whether it was not so already. The caller has locked
// lastName, or is the only one that knows of the file.
func (t *inodes) setOrphan(i *inode, orphan bool) bool {
	i.shard.mu.Lock()
	defer i.shard.mu.Unlock()
	if i.orphan.Swap(orphan) == orphan {
		return false
	}
	if orphan {
		i.refs++
		t.orphans.Add(1)
		return true
	}
	t.orphans.Add(-1)
	i.shard.leaveLocked(i)
	return true
}
