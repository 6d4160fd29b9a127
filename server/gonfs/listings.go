package gonfs

import (
	"encoding/binary"
	"hash/fnv"
	"io/fs"
	"sync"
)

// listingsMax is how many listings of directories are kept for clients that are
// reading them.
const listingsMax = 32

// entriesMax bounds the entries of all of them, some 300 bytes each; the largest listing
// may have more.
const entriesMax = 1 << 18

// listings keeps the directories that clients are in the middle of listing: the
// library's cookies count the entries of a listing, so a client must be given
// the one it began with, whatever is made or removed meanwhile. The verifier is
// a checksum of the names, so a directory that has not changed has the same
// after a restart. The zero listings is empty and ready.
type listings struct {
	mu     sync.Mutex
	recent []listing // the last used is the last
}

type listing struct {
	path     string
	verifier uint64
	entries  []fs.FileInfo
}

// VerifierFor keeps a listing and tells its verifier.
func (l *listings) VerifierFor(path string, entries []fs.FileInfo) uint64 {
	h := fnv.New64a()
	h.Write([]byte(path))
	for _, e := range entries {
		h.Write([]byte(e.Name()))
		h.Write([]byte{0})
	}
	verifier := binary.BigEndian.Uint64(h.Sum(nil))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.take(path, verifier)
	if len(l.recent) == listingsMax {
		l.recent = append(l.recent[:0], l.recent[1:]...)
	}
	l.recent = append(l.recent, listing{path, verifier, entries})
	all := 0
	for i := len(l.recent) - 1; i >= 0; i-- {
		if all += len(l.recent[i].entries); all > entriesMax {
			keep := max(1, len(l.recent)-1-i) // the latest
			l.recent = append([]listing(nil), l.recent[len(l.recent)-keep:]...)
			break
		}
	}
	return verifier
}

// DataForVerifier returns a kept listing, nil if it is kept no more.
func (l *listings) DataForVerifier(path string, verifier uint64) []fs.FileInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	found, ok := l.take(path, verifier)
	if !ok {
		return nil
	}
	l.recent = append(l.recent, found)
	return found.entries
}

// take removes a listing. The caller holds l.mu.
func (l *listings) take(path string, verifier uint64) (listing, bool) {
	for i, e := range l.recent {
		if e.verifier == verifier && e.path == path {
			l.recent = append(l.recent[:i], l.recent[i+1:]...)
			return e, true
		}
	}
	return listing{}, false
}
