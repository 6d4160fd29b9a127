package locate

import (
	"encoding/binary"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// sameSet are n files of one set.
func sameSet(n int) (files []BirthKey) {
	for ino := uint64(128); len(files) < n; ino += setRun {
		d := BirthKey{Volume: 7, Device: 0x801, Ino: ino, Sec: 1_700_000_000}
		if len(files) == 0 || d.set() == files[0].set() {
			files = append(files, d)
		}
	}
	return files
}

// handleFor is some handle of a file, another for each.
func handleFor(d *BirthKey) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 24), d.Ino)
}

func TestHandlesAge(t *testing.T) {
	var h Handles
	cached := func(d *BirthKey) bool {
		t.Helper()
		got := h.Get(d)
		if got != nil && !slices.Equal(got.bytes[:got.n], handleFor(d)) {
			t.Errorf("of inode %d %x", d.Ino, got.bytes[:got.n])
		}
		return got != nil
	}
	files := sameSet(setWays + 2)
	more := files[setWays:]
	files = files[:setWays]
	for i := range files {
		if cached(&files[i]) {
			t.Errorf("inode %d was never cached", files[i].Ino)
		}
		h.Put(&files[i], handleFor(&files[i]))
		h.Put(&files[i], handleFor(&files[i])) // only once in its set
	}
	h.Evict()
	unused := &files[2]
	for i := range files {
		if &files[i] != unused && !cached(&files[i]) {
			t.Errorf("inode %d was evicted from a set that is not full", files[i].Ino)
		}
	}
	h.Put(&more[0], handleFor(&more[0]))
	for i := range files {
		if &files[i] != unused && !cached(&files[i]) {
			t.Errorf("inode %d was evicted, although another one was not used", files[i].Ino)
		}
	}
	if cached(unused) || !cached(&more[0]) {
		t.Error("the least recently used one was not evicted")
	}
	h.Put(&more[1], handleFor(&more[1])) // all were used: any of them goes
	if n := h.Counts().Cached; n != setWays || !cached(&more[1]) {
		t.Errorf("%d are cached in %d ways", n, setWays)
	}
	again := more[1]
	again.Nsec++ // a number that is used again
	if cached(&again) {
		t.Error("a file has the handle of one that had its number before")
	}
	h.Evict()
	if !cached(&more[1]) {
		t.Error("evicted at once")
	}
	h.Evict()
	if n := h.Counts().Cached; n != 1 {
		t.Errorf("%d are cached, one was used", n)
	}
	h.Evict()
	if n := h.Counts().Cached; n != 0 || h.sets.Load() != nil {
		t.Errorf("%d unused ones are cached", n)
	}
	if c := h.Counts(); c.Hits == 0 || c.Misses < setWays {
		t.Errorf("%+v", c)
	}
}

// Each call gets the handle of its file, or none.
func TestHandlesConcurrently(t *testing.T) {
	var h Handles
	files := sameSet(3 * setWays)
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 20_000 {
				d := &files[(i*(g+1)+g)%len(files)]
				if got := h.Get(d); got == nil {
					h.Put(d, handleFor(d))
				} else if !slices.Equal(got.bytes[:got.n], handleFor(d)) {
					t.Errorf("inode %d has the handle %x", d.Ino, got.bytes[:got.n])
					return
				}
				if i%1000 == 0 {
					h.Evict()
				}
			}
		})
	}
	all.Wait()
	if n := h.Counts(); n.Hits == 0 || n.Hits+n.Misses != 4*20_000 || n.Cached > setWays {
		t.Errorf("%+v", n)
	}
}

// The cache takes at most 20 MiB: docs/internals/measurements.md has the size of an entry.
func TestAttrsMemory(t *testing.T) {
	const entries = 10_000
	used := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	var h Handles
	d := BirthKey{Sec: 1}
	h.Put(&d, nil) // the sets are there
	handle := make([]byte, 24)
	before := used()
	for i := range uint64(entries) {
		d.Ino = i
		h.Put(&d, handle)
		h.Get(&d).Attrs.Store(&CachedAttrs{})
	}
	each := (used() - before) / entries
	t.Logf("%d bytes an entry", each)
	if most := each * setRuns * setRun * setWays; each > 320 || most > 20<<20 {
		t.Errorf("%d bytes an entry, %d bytes in all", each, most)
	}
}
