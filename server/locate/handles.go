package locate

import (
	"sync/atomic"
	"time"

	"github.com/podnas/podnas/server/disk"
)

// BirthKey is the key of a cached handle: a reused inode number has a different
// birth time.
type BirthKey struct {
	Volume uint64 // its ID
	Device uint64 // a snapshot on btrfs has the same numbers and times
	Ino    uint64
	Sec    int64 // of birth
	Nsec   uint32
}

// Handles caches handles: listing a directory, or looking up a name, then needs
// one system call instead of two or more. It uses no locks, because a lock would
// take nearly as long as an entry of a listing.
type Handles struct {
	sets  atomic.Pointer[handleSets] // nil while the cache is empty
	age   atomic.Uint32              // how often Evict was called
	count [16]handleCount            // by the set, because two processors seldom use the same set
}

// handleSets is a set-associative cache: the handle of a file can be in each way of one set.
// Files with consecutive inode numbers, which are often of one directory, have consecutive
// sets.
type handleSets [setRuns * setRun][setWays]atomic.Pointer[CachedHandle]

// CachedHandle does not change, except used and attrs.
type CachedHandle struct {
	file  BirthKey
	used  atomic.Uint32 // the age at its last use
	n     uint8
	bytes [HandleMax]byte
	Attrs atomic.Pointer[CachedAttrs] // nil: not remembered
}

// CachedAttrs do not change.
type CachedAttrs struct {
	disk.Attr

	Volume  *Volume // a volume that was exported again is another
	Version uint64  // of the file, before they were read
	At      int64   // before they were read, in nanoseconds since 1970
}

// Saw forgets attributes that were remembered if the file has others: after one reply with them
// no other should have those of before.
func (r *CachedHandle) Saw(a *disk.Attr) {
	was := r.Attrs.Load()
	if was == nil {
		return
	}
	same := *a
	same.Change, same.Birth = was.Change, was.Birth
	if was.Attr != same {
		r.Attrs.Store(nil)
	}
}

// Birth is when the file was made, in nanoseconds since 1970.
func (r *CachedHandle) Birth() int64 { return r.file.Sec*1e9 + int64(r.file.Nsec) }

// Handle returns the bytes. The caller must not change them.
func (r *CachedHandle) Handle() []byte { return r.bytes[:r.n] }

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

// HandlesKept is how long an unused handle is kept at least.
const HandlesKept = time.Minute

// set is the index of the file's set.
func (d *BirthKey) set() int {
	const odd = 0x9e3779b97f4a7c15 // 2^64 by the golden ratio: its products are spread evenly
	run := (d.Ino/setRun ^ d.Volume ^ d.Device*odd) * odd
	return int(run>>(64-runBits)*setRun | d.Ino%setRun)
}

// find returns the ways of the file's set, nil while the cache is empty, and the set's counts.
func (h *Handles) find(d *BirthKey) (*[setWays]atomic.Pointer[CachedHandle], *handleCount) {
	set := d.set()
	count := &h.count[set%len(h.count)]
	if sets := h.sets.Load(); sets != nil {
		return &sets[set], count
	}
	return nil, count
}

// Get returns the handle of a file, nil if it is not cached.
func (h *Handles) Get(d *BirthKey) *CachedHandle {
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

// AttrsOf returns the attributes that are remembered of the file with an inode number, and its handle, nil if they are not,
// or are not of this version of the file, or not from between two times.
func (h *Handles) AttrsOf(v *Volume, ino, version uint64, after, until int64) (*CachedAttrs, *CachedHandle) {
	key := BirthKey{Volume: v.ID, Device: v.FS.Device, Ino: ino}
	ways, count := h.find(&key)
	if ways == nil {
		return nil, nil
	}
	for i := range ways {
		r := ways[i].Load()
		if r == nil || r.file.Ino != ino || r.file.Volume != v.ID || r.file.Device != v.FS.Device {
			continue
		}
		a := r.Attrs.Load()
		if a == nil || a.Volume != v || a.Version != version || a.At <= after || a.At > until {
			continue
		}
		h.use(r)
		count.attrs.Add(1)
		return a, r
	}
	return nil, nil
}

// Of returns the cached handle of a file, nil: it is not cached.
func (h *Handles) Of(v *Volume, ino uint64, id *disk.FileID) *CachedHandle {
	key := BirthKey{Volume: v.ID, Device: v.FS.Device, Ino: ino}
	ways, _ := h.find(&key)
	if ways == nil {
		return nil
	}
	for i := range ways {
		if r := ways[i].Load(); r != nil && r.file.Volume == v.ID && IDIn(r.Handle()) == *id {
			return r
		}
	}
	return nil
}

// use marks a handle as used.
func (h *Handles) use(r *CachedHandle) {
	if age := h.age.Load(); r.used.Load() != age {
		r.used.Store(age)
	}
}

// Put caches a handle. If all ways of its set are used, it replaces the least recently used
// handle.
func (h *Handles) Put(d *BirthKey, handle []byte) {
	all := h.sets.Load()
	if all == nil {
		h.sets.CompareAndSwap(nil, new(handleSets))
		if all = h.sets.Load(); all == nil { // evicted meanwhile
			return
		}
	}
	age := h.age.Load()
	r := &CachedHandle{file: *d, n: uint8(len(handle))}
	r.used.Store(age)
	copy(r.bytes[:], handle)
	ways := &all[d.set()]
	at, oldest := d.Nsec%setWays, uint32(0)
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

// Evict removes handles that were not used for a while. It is called every
// HandlesKept.
func (h *Handles) Evict() {
	age := h.age.Add(1)
	left := h.each(func(way *atomic.Pointer[CachedHandle], r *CachedHandle) bool {
		r.Attrs.Store(nil) // most are too old
		return age-r.used.Load() <= 1 || !way.CompareAndSwap(r, nil)
	})
	if left == 0 {
		h.sets.Store(nil)
	}
}

// each calls f for each cached handle, and returns for how many f returned true.
func (h *Handles) each(f func(*atomic.Pointer[CachedHandle], *CachedHandle) bool) (n int) {
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

// Counts returns the counts of the cache.
func (h *Handles) Counts() HandleCounts {
	n := HandleCounts{Cached: h.each(func(*atomic.Pointer[CachedHandle], *CachedHandle) bool { return true })}
	for i := range h.count {
		n.Hits += h.count[i].hits.Load()
		n.Misses += h.count[i].misses.Load()
		n.Attrs += h.count[i].attrs.Load()
	}
	return n
}
