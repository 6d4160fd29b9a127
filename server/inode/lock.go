package inode

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
)

// A client that gets the attributes of a directory before and after its change attributes
// every difference to its own change, and would miss changes of others in between: RFC
// 1813 section 2.6. And the names of a directory are charged by the directory's usage before
// and after. So every call that changes names locks the directory.

// directories has the locks of the directories whose names running calls may change, in shards by the directory, so
// that calls in different ones seldom wait for each other.
type directories [16]struct {
	mu    sync.Mutex
	inUse map[fileKey]*names // +checklocks:mu
}

func (d *directories) shard(key *fileKey) int {
	return int((key.volume.FS.NumberIn(&key.id) ^ key.volume.ID) % uint64(len(d)))
}

// names is the lock of a directory's names.
type names struct {
	key     fileKey
	users   int           // guarded by the shard's mu
	changes atomic.Uint64 // how often it was locked

	lock   sync.Mutex
	after  disk.Attr // the directory's after a change, guarded by lock
	latest uint64    // changes, when after is from the latest one, or never; guarded by lock
}

// never is none of names.changes.
const never = math.MaxUint64

// enter returns the lock of a directory, until leave.
func (d *directories) enter(key fileKey) *names {
	shard := &d[d.shard(&key)]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	n := shard.inUse[key]
	if n == nil {
		n = &names{key: key, latest: never}
		if shard.inUse == nil {
			shard.inUse = map[fileKey]*names{}
		}
		shard.inUse[key] = n
	}
	n.users++
	return n
}

// leave ends the use of what enter has returned; nil is nothing.
func (d *directories) leave(n *names) {
	if n == nil {
		return
	}
	shard := &d[d.shard(&n.key)]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if n.users--; n.users == 0 {
		delete(shard.inUse, n.key)
	}
}

// LockedNames are directories whose names no other call can change.
type LockedNames struct{ first, second *names }

// LockNames locks the names in one or two directories that are open with UseNames, until Unlock.
// The caller must hold no such lock.
func LockNames(a, b *File) LockedNames { return lockNames(a.names, b.names) }

// lockNames is LockNames. Not checked: which of the two is locked first is not known before.
//
// +checklocksignore
func lockNames(a, b *names) LockedNames {
	if a == b {
		a.lock.Lock()
		return LockedNames{first: a}
	}
	// Every call locks in this order, so none waits for the other.
	if cmp.Or(cmp.Compare(a.key.volume.ID, b.key.volume.ID), bytes.Compare(a.key.id.Bytes(), b.key.id.Bytes())) > 0 {
		a, b = b, a
	}
	a.lock.Lock()
	b.lock.Lock()
	return LockedNames{a, b}
}

// Unlock unlocks the names, after a change. Call it once. Not checked: the names are in a list.
//
// +checklocksignore
func (l LockedNames) Unlock() {
	for _, n := range [...]*names{l.second, l.first} {
		if n != nil {
			n.changes.Add(1)
			n.lock.Unlock()
		}
	}
}

// StatLocked sets Attr, and returns it, for callers that have locked the directory's names, before a
// change. It is the one from Open if that has looked and no other call has locked the names in between, or else what the
// last one has found after its change, which is later. The error is ESTALE if the directory was removed.
func (f *File) StatLocked() (_ disk.Attr, err error) {
	switch n := f.names; n.changes.Load() {
	case f.changes:
	case n.latest:
		f.Attr = n.after
	default:
		if f.Attr, err = f.Stat(); errors.Is(err, unix.ESTALE) {
			f.opener.files.drop(f.Volume, f.ID)
		}
	}
	return f.Attr, err
}

// KeepLocked has the StatLocked of the next call return the attributes that a caller, which has locked the
// directory's names, has found after its change.
func (f *File) KeepLocked(a disk.Attr) {
	n := f.names
	n.after, n.latest = a, n.changes.Load()+1
}
