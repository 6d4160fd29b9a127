package export

import (
	"sync/atomic"
	"time"
)

// described is the key of a cached handle: a reused inode number has a different
// birth time.
type described struct {
	volume uint64 // its ID
	device uint64 // a snapshot on btrfs has the same numbers and times
	ino    uint64
	sec    int64 // of birth
	nsec   uint32
}

// handles caches handles: listing a directory, or looking up a name, then needs
// one system call instead of two or more. It uses no locks, because a lock would
// take nearly as long as an entry of a listing.
type handles struct {
	places atomic.Pointer[places] // nil while nothing is remembered
	age    atomic.Uint32          // how often forget was called
	count  [16]handleCount        // by the place, as two processors seldom have the same
}

// places are where handles are remembered. A file has a few that can be its own, next to
// those of files with the next numbers: they are often of one directory.
type places [placeRuns * placeRun][placeWays]atomic.Pointer[remembered]

// remembered does not change but for used.
type remembered struct {
	file  described
	used  atomic.Uint32 // the age when it was asked for last
	n     uint8
	bytes [HandleMax]byte
}

type handleCount struct {
	hits, misses atomic.Uint64
	_            [48]byte // up to a cache line
}

// HandleCounts counts the cached handles.
type HandleCounts struct {
	Remembered   int
	Hits, Misses uint64
}

// There are places for 65,536 handles of about 120 bytes each; the places themselves take half
// a megabyte.
const (
	placeRun  = 64 // of numbers in a row
	runBits   = 8
	placeRuns = 1 << runBits
	placeWays = 4
)

// handlesKept is how long an unused handle is kept at least.
const handlesKept = time.Minute

// place is the number of the places that can be the file's.
func (d *described) place() int {
	const odd = 0x9e3779b97f4a7c15 // 2^64 by the golden ratio: its products are spread evenly
	run := (d.ino/placeRun ^ d.volume ^ d.device*odd) * odd
	return int(run>>(64-runBits)*placeRun | d.ino%placeRun)
}

// append appends the handle of a file; ok is false if it is not cached.
func (h *handles) append(b []byte, d *described) (_ []byte, ok bool) {
	place := d.place()
	count := &h.count[place%len(h.count)]
	if places := h.places.Load(); places != nil {
		for i := range places[place] {
			r := places[place][i].Load()
			if r == nil || r.file != *d {
				continue
			}
			if age := h.age.Load(); r.used.Load() != age {
				r.used.Store(age)
			}
			count.hits.Add(1)
			return append(b, r.bytes[:r.n]...), true
		}
	}
	count.misses.Add(1)
	return b, false
}

// remember caches a handle. If all its places are used, it replaces the least
// recently used one.
func (h *handles) remember(d *described, handle []byte) {
	all := h.places.Load()
	if all == nil {
		h.places.CompareAndSwap(nil, new(places))
		if all = h.places.Load(); all == nil { // forgotten meanwhile
			return
		}
	}
	age := h.age.Load()
	r := &remembered{file: *d, n: uint8(len(handle))}
	r.used.Store(age)
	copy(r.bytes[:], handle)
	ways := &all[d.place()]
	at, oldest := d.nsec%placeWays, uint32(0)
	for i := range ways {
		was := ways[i].Load()
		if was == nil || was.file == *d {
			at = uint32(i)
			break
		}
		if unused := age - was.used.Load(); unused > oldest {
			at, oldest = uint32(i), unused
		}
	}
	ways[at].Store(r)
}

// forget evicts handles that were not used for a while. It is called every
// handlesKept.
func (h *handles) forget() {
	age := h.age.Add(1)
	left := h.each(func(place *atomic.Pointer[remembered], r *remembered) bool {
		return age-r.used.Load() <= 1 || !place.CompareAndSwap(r, nil)
	})
	if left == 0 {
		h.places.Store(nil)
	}
}

// each calls f with all that is remembered, and tells for how many it was true.
func (h *handles) each(f func(*atomic.Pointer[remembered], *remembered) bool) (n int) {
	all := h.places.Load()
	if all == nil {
		return 0
	}
	for i := range all {
		for j := range all[i] {
			if r := all[i][j].Load(); r != nil && f(&all[i][j], r) {
				n++
			}
		}
	}
	return n
}

func (h *handles) counts() HandleCounts {
	n := HandleCounts{Remembered: h.each(func(*atomic.Pointer[remembered], *remembered) bool { return true })}
	for i := range h.count {
		n.Hits += h.count[i].hits.Load()
		n.Misses += h.count[i].misses.Load()
	}
	return n
}
