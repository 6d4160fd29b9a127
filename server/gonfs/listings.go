package gonfs

import (
	"encoding/binary"
	"hash/fnv"
	"io/fs"
	"sync"
)

// listingsMax is how many listings of directories are cached for clients.
const listingsMax = 32

// entriesMax bounds the entries of all listings, some 300 bytes each; a single listing
// may have more.
const entriesMax = 1 << 18

// listings caches directories that clients are listing: the library's cookies count
// the entries of a listing, so a client must get the one it began with, whatever is
// created or removed meanwhile. The verifier is a checksum of the names, so an
// unchanged directory has the same after a restart. The zero listings is ready for
// use; its methods may be called concurrently.
type listings struct {
	mu sync.Mutex
	// +checklocks:mu
	recent []listing // the most recently used is last
}

type listing struct {
	path     string
	verifier uint64
	entries  []fs.FileInfo
}

// VerifierFor caches a listing and returns its verifier.
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
	l.takeLocked(path, verifier)
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

// DataForVerifier returns a cached listing, nil if it is not cached.
func (l *listings) DataForVerifier(path string, verifier uint64) []fs.FileInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	found, ok := l.takeLocked(path, verifier)
	if !ok {
		return nil
	}
	l.recent = append(l.recent, found)
	return found.entries
}

// takeLocked removes a listing.
//
// +checklocks:l.mu
func (l *listings) takeLocked(path string, verifier uint64) (listing, bool) {
	for i, e := range l.recent {
		if e.verifier == verifier && e.path == path {
			l.recent = append(l.recent[:i], l.recent[i+1:]...)
			return e, true
		}
	}
	return listing{}, false
}
