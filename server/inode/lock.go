package inode

import (
	"bytes"
	"cmp"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
)

// A client that gets the attributes of a directory before and after its change attributes
// every difference to its own change, and would miss changes of others in between: RFC
// 1813 section 2.6. And the names of a directory are charged by the directory's usage before
// and after. So every call that changes names locks the directory.

// enterNames gets the lock of the directory's names, before its attributes, until leaveNames.
func (f *File) enterNames() {
	if f.use != UseNames {
		return
	}
	if f.cached != nil {
		f.names = f.cached.inode.names
	} else {
		f.entered = f.opener.inodes.enterNames(f.key())
		f.names = f.entered.names
	}
	f.names.users.Add(1)
	f.namesSeq = f.names.seq.Load()
}

// leaveNames ends enterNames. What the last user knows of the directory is of no use to later ones: it may be changed in
// other ways meanwhile.
func (f *File) leaveNames() {
	if f.names == nil {
		return
	}
	if f.names.users.Add(-1) == 0 {
		f.names.seq.Add(1)
	}
	if f.entered != nil {
		f.entered.leave()
	}
}

// LockedNames are directories whose names no other call can change.
type LockedNames struct {
	first, second *names
	dirs          [2]*File
}

// LockNames locks the names in one or two directories that are open with UseNames, until Unlock.
// The caller must hold no such lock. Not checked: which of the two is locked first is not known before.
//
// +checklocksignore
func LockNames(f, other *File) LockedNames {
	l := inOrder(f, other)
	l.lock()
	return l
}

// +checklocksignore
func (l LockedNames) lock() {
	l.first.lock.Lock()
	if l.second != nil {
		l.second.lock.Lock()
	}
}

// inOrder returns the names of two directories, or of one, in the order in which every call locks them, so that none waits for
// the other.
func inOrder(f, other *File) LockedNames {
	a, b, dirs := f.names, other.names, [...]*File{f, other}
	switch {
	case a == b:
		return LockedNames{first: a, dirs: dirs}
	case cmp.Or(cmp.Compare(a.key.volume, b.key.volume), bytes.Compare(a.key.id.Bytes(), b.key.id.Bytes())) > 0:
		return LockedNames{b, a, dirs}
	}
	return LockedNames{a, b, dirs}
}

// TryLockNames is LockNames, unless so many calls wait for one of the directories that another one must first give back its permit
// to block. Then ok is false, and nothing is locked.
//
// +checklocksignore
func TryLockNames(f, other *File) (_ LockedNames, ok bool) {
	l := inOrder(f, other)
	if !l.first.lockOfFew() {
		return LockedNames{}, false
	}
	if l.second != nil && !l.second.lockOfFew() {
		l.first.lock.Unlock()
		return LockedNames{}, false
	}
	return l, true
}

// LockNamesInTurn is LockNames after TryLockNames has locked nothing, for a call that has given back its permit to block. When it is
// the call's turn, permit gets that again, and only then the call waits for the names. So whoever has locked names needs no permit any more:
// the calls that wait for names with one could have all that there are. An error is permit's, and nothing is locked then.
//
// +checklocksignore
func LockNamesInTurn(f, other *File, permit func() error) (LockedNames, error) {
	l := inOrder(f, other)
	l.first.turn.Lock()
	defer l.first.turn.Unlock()
	if l.second != nil {
		l.second.turn.Lock()
		defer l.second.turn.Unlock()
	}
	if err := permit(); err != nil {
		return LockedNames{}, err
	}
	l.lock()
	return l, nil
}

// +checklocksignore
func (n *names) lockOfFew() bool {
	if n.lock.TryLock() {
		return true
	}
	defer n.waiting.Add(-1)
	if n.waiting.Add(1) > fewWait {
		return false
	}
	n.lock.Lock()
	return true
}

// Unlock unlocks the names, after a change, and then frees what was removed, and syncs what makes room for what was made. Call it
// once, as the process, before the directories are closed. Not checked: the names are in a list.
//
// +checklocksignore
func (l LockedNames) Unlock() {
	var gone [2]*removed
	var unsynced [2][]*descriptor
	for i, dir := range l.dirs {
		gone[i], dir.removed = dir.removed, nil
		unsynced[i], dir.unsynced = dir.unsynced, nil
	}
	for _, n := range [...]*names{l.second, l.first} {
		if n != nil {
			n.seq.Add(1)
			n.lock.Unlock()
		}
	}
	for i, dir := range l.dirs {
		gone[i].close(dir.opener)
		dir.opener.syncNow(unsynced[i]...)
	}
}

// StatLocked sets Attr, and returns it, for callers that have locked the directory's names, before a
// change. It is the one from Open if that has looked and no other call has locked the names in between, or else what the
// last one has found after its change, which is later. The error is ESTALE if the directory was removed. Not checked: the
// lock is in LockedNames.
//
// +checklocksignore
func (f *File) StatLocked() (_ disk.Attr, err error) {
	switch n := f.names; n.seq.Load() {
	case f.namesSeq:
	case n.latest:
		f.Attr = n.after
	default:
		f.Attr, err = f.Stat()
		f.dropIfRemoved(err)
	}
	return f.Attr, err
}

// StatChangeLocked is StatLocked and Change, and looks once for both.
func (f *File) StatChangeLocked() (change uint64, _ disk.Attr, err error) {
	change, f.Attr, err = f.StatChange()
	f.dropIfRemoved(err)
	return change, f.Attr, err
}

// dropIfRemoved closes what is cached of the directory if it was removed on the disk itself.
func (f *File) dropIfRemoved(err error) {
	if errors.Is(err, unix.ESTALE) {
		f.opener.inodes.drop(f.Volume, f.ID)
	}
}

// RememberLocked has the StatLocked of the next call return the attributes that a caller, which has locked the
// directory's names, has found after its change. Not checked: the lock is in LockedNames.
//
// +checklocksignore
func (f *File) RememberLocked(a disk.Attr) {
	n := f.names
	n.after, n.latest = a, n.seq.Load()+1
}
