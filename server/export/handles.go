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
	sets  atomic.Pointer[handleSets] // nil while the cache is empty
	age   atomic.Uint32              // how often evict was called
	count [16]handleCount            // by the set, because two processors seldom use the same set
}

// handleSets is a set-associative cache: the handle of a file can be in each way of one set.
// Files with consecutive inode numbers, which are often of one directory, have consecutive
// sets.
type handleSets [setRuns * setRun][setWays]atomic.Pointer[cachedHandle]

// cachedHandle does not change, except used and attrs.
type cachedHandle struct {
	file  described
	used  atomic.Uint32 // the age at its last use
	n     uint8
	bytes [HandleMax]byte
	attrs atomic.Pointer[cachedAttrs] // nil: not remembered
}

type handleCount struct {
	hits, misses atomic.Uint64
	attrs        atomic.Uint64 // hits of attributes, which are no hits of handles
	_            [40]byte      // up to a cache line
}

// HandleCounts counts the cached handles.
type HandleCounts struct {
	Cached       int
	Hits, Misses uint64
	Attrs        uint64 // hits of attributes
}

// The cache holds up to 65,536 handles of about 120 bytes each; the sets themselves have half a
// megabyte.
const (
	setRun  = 64 // consecutive numbers
	runBits = 8
	setRuns = 1 << runBits
	setWays = 4
)

// handlesKept is how long an unused handle is kept at least.
const handlesKept = time.Minute

// set is the index of the file's set.
func (d *described) set() int {
	const odd = 0x9e3779b97f4a7c15 // 2^64 by the golden ratio: its products are spread evenly
	run := (d.ino/setRun ^ d.volume ^ d.device*odd) * odd
	return int(run>>(64-runBits)*setRun | d.ino%setRun)
}

// find returns the ways of the file's set, nil while the cache is empty, and the set's counts.
func (h *handles) find(d *described) (*[setWays]atomic.Pointer[cachedHandle], *handleCount) {
	set := d.set()
	count := &h.count[set%len(h.count)]
	if sets := h.sets.Load(); sets != nil {
		return &sets[set], count
	}
	return nil, count
}

// get returns the handle of a file, nil if it is not cached.
func (h *handles) get(d *described) *cachedHandle {
	ways, count := h.find(d)
	if ways != nil {
		for i := range ways {
			if r := ways[i].Load(); r != nil && r.file == *d {
				h.use(r)
				count.hits.Add(1)
				return r
			}
		}
	}
	count.misses.Add(1)
	return nil
}

// use marks a handle as used.
func (h *handles) use(r *cachedHandle) {
	if age := h.age.Load(); r.used.Load() != age {
		r.used.Store(age)
	}
}

// put caches a handle. If all ways of its set are used, it replaces the least recently used
// handle.
func (h *handles) put(d *described, handle []byte) {
	all := h.sets.Load()
	if all == nil {
		h.sets.CompareAndSwap(nil, new(handleSets))
		if all = h.sets.Load(); all == nil { // evicted meanwhile
			return
		}
	}
	age := h.age.Load()
	r := &cachedHandle{file: *d, n: uint8(len(handle))}
	r.used.Store(age)
	copy(r.bytes[:], handle)
	ways := &all[d.set()]
	at, oldest := d.nsec%setWays, uint32(0)
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

// evict removes handles that were not used for a while. It is called every
// handlesKept.
func (h *handles) evict() {
	age := h.age.Add(1)
	left := h.each(func(way *atomic.Pointer[cachedHandle], r *cachedHandle) bool {
		r.attrs.Store(nil) // most are too old
		return age-r.used.Load() <= 1 || !way.CompareAndSwap(r, nil)
	})
	if left == 0 {
		h.sets.Store(nil)
	}
}

// each calls f for each cached handle, and returns for how many f returned true.
func (h *handles) each(f func(*atomic.Pointer[cachedHandle], *cachedHandle) bool) (n int) {
	all := h.sets.Load()
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
	n := HandleCounts{Cached: h.each(func(*atomic.Pointer[cachedHandle], *cachedHandle) bool { return true })}
	for i := range h.count {
		n.Hits += h.count[i].hits.Load()
		n.Misses += h.count[i].misses.Load()
		n.Attrs += h.count[i].attrs.Load()
	}
	return n
}
