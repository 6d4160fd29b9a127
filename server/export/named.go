package export

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"time"
)

// A rename changes the file's ctime, so what is remembered of its attributes ends. Which file that is the kernel tells
// by a system call. Most files that are renamed were made a moment ago, by a client that replaces another file with
// them, so the files of the names that clients have made are remembered.
//
// What somebody does to such a name directly on the disk is not known: for namedKept the file that is there now may
// have attributes that are attrsKept old after a rename.

const (
	namedMax  = 1 << 13 // a power of 2
	namedKept = time.Minute
)

// named remembers the files of names. A name is looked up, and changed, by who has locked the directory's
// names.
type named struct {
	dirs, names maphash.Seed
	files       [namedMax]namedFile
}

type namedFile struct {
	mu     sync.Mutex // for names with the same place
	volume uint64     // its ID
	sum    uint64     // of directory and name
	since  int64      // when it was remembered, in nanoseconds since 1970; 0: nothing is
	id     FileID
}

func newNamed() *named { return &named{dirs: maphash.MakeSeed(), names: maphash.MakeSeed()} }

func (n *named) at(dir *File, name string) (*namedFile, uint64) {
	sum := bits.RotateLeft64(maphash.Bytes(n.dirs, dir.ID.bytes[:dir.ID.n]), 32) ^ maphash.String(n.names, name)
	return &n.files[sum%namedMax], sum
}

// get returns the file of a name, zero if it is not remembered.
func (n *named) get(dir *File, name string) (id FileID) {
	at, sum := n.at(dir, name)
	at.mu.Lock()
	defer at.mu.Unlock()
	age := time.Now().UnixNano() - at.since // negative if the clock was set back
	if at.volume == dir.Volume.ID && at.sum == sum && age >= 0 && age < int64(namedKept) {
		id = at.id
	}
	return id
}

// set remembers the file of a name; zero: none.
func (n *named) set(dir *File, name string, id FileID) {
	at, sum := n.at(dir, name)
	at.mu.Lock()
	defer at.mu.Unlock()
	switch {
	case !id.IsZero():
		at.volume, at.sum, at.since, at.id = dir.Volume.ID, sum, time.Now().UnixNano(), id
	case at.sum == sum:
		at.since = 0
	}
}

// moving returns the FileID of a file that is about to be renamed, zero if there is none. It is remembered, or it is
// sure.
func (f *File) moving(name string) (id FileID, sure bool) {
	if f.Volume.index.Load() == nil { // else nothing is cheaper
		if id = f.opener.named.get(f, name); !id.IsZero() {
			return id, false
		}
	}
	id, _ = f.Volume.finder.identify(f.fd, []byte(name))
	return id, true
}
