package export

import (
	"encoding/binary"
	"slices"
	"sync"
	"testing"
)

// sameSet are n files of one set.
func sameSet(n int) (files []described) {
	for ino := uint64(128); len(files) < n; ino += setRun {
		d := described{volume: 7, device: 0x801, ino: ino, sec: 1_700_000_000}
		if len(files) == 0 || d.set() == files[0].set() {
			files = append(files, d)
		}
	}
	return files
}

// handleFor is some handle of a file, another for each.
func handleFor(d *described) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 24), d.ino)
}

func TestHandlesAge(t *testing.T) {
	var h handles
	cached := func(d *described) bool {
		t.Helper()
		got := h.get(d)
		if got != nil && !slices.Equal(got.bytes[:got.n], handleFor(d)) {
			t.Errorf("of inode %d %x", d.ino, got.bytes[:got.n])
		}
		return got != nil
	}
	files := sameSet(setWays + 2)
	more := files[setWays:]
	files = files[:setWays]
	for i := range files {
		if cached(&files[i]) {
			t.Errorf("inode %d was never cached", files[i].ino)
		}
		h.put(&files[i], handleFor(&files[i]))
		h.put(&files[i], handleFor(&files[i])) // only once in its set
	}
	h.evict()
	unused := &files[2]
	for i := range files {
		if &files[i] != unused && !cached(&files[i]) {
			t.Errorf("inode %d was evicted from a set that is not full", files[i].ino)
		}
	}
	h.put(&more[0], handleFor(&more[0]))
	for i := range files {
		if &files[i] != unused && !cached(&files[i]) {
			t.Errorf("inode %d was evicted, although another one was not used", files[i].ino)
		}
	}
	if cached(unused) || !cached(&more[0]) {
		t.Error("the least recently used one was not evicted")
	}
	h.put(&more[1], handleFor(&more[1])) // all were used: any of them goes
	if n := h.counts().Cached; n != setWays || !cached(&more[1]) {
		t.Errorf("%d are cached in %d ways", n, setWays)
	}
	again := more[1]
	again.nsec++ // a number that is used again
	if cached(&again) {
		t.Error("a file has the handle of one that had its number before")
	}
	h.evict()
	if !cached(&more[1]) {
		t.Error("evicted at once")
	}
	h.evict()
	if n := h.counts().Cached; n != 1 {
		t.Errorf("%d are cached, one was used", n)
	}
	h.evict()
	if n := h.counts().Cached; n != 0 || h.sets.Load() != nil {
		t.Errorf("%d unused ones are cached", n)
	}
	if c := h.counts(); c.Hits == 0 || c.Misses < setWays {
		t.Errorf("%+v", c)
	}
}

// Each call gets the handle of its file, or none.
func TestHandlesConcurrently(t *testing.T) {
	var h handles
	files := sameSet(3 * setWays)
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 20_000 {
				d := &files[(i*(g+1)+g)%len(files)]
				if got := h.get(d); got == nil {
					h.put(d, handleFor(d))
				} else if !slices.Equal(got.bytes[:got.n], handleFor(d)) {
					t.Errorf("inode %d has the handle %x", d.ino, got.bytes[:got.n])
					return
				}
				if i%1000 == 0 {
					h.evict()
				}
			}
		})
	}
	all.Wait()
	if n := h.counts(); n.Hits == 0 || n.Hits+n.Misses != 4*20_000 || n.Cached > setWays {
		t.Errorf("%+v", n)
	}
}
