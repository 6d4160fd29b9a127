package export

import (
	"encoding/binary"
	"slices"
	"sync"
	"testing"
)

// samePlace are n files that have the same places.
func samePlace(n int) (files []described) {
	for ino := uint64(128); len(files) < n; ino += placeRun {
		d := described{volume: 7, device: 0x801, ino: ino, sec: 1_700_000_000}
		if len(files) == 0 || d.place() == files[0].place() {
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
	remembered := func(d *described) bool {
		t.Helper()
		got, ok := h.append([]byte{1}, d)
		if want := append([]byte{1}, handleFor(d)...); ok && !slices.Equal(got, want) || !ok && len(got) != 1 {
			t.Errorf("of inode %d %x, %v", d.ino, got, ok)
		}
		return ok
	}
	files := samePlace(placeWays + 2)
	more := files[placeWays:]
	files = files[:placeWays]
	for i := range files {
		if remembered(&files[i]) {
			t.Errorf("inode %d was never remembered", files[i].ino)
		}
		h.remember(&files[i], handleFor(&files[i]))
		h.remember(&files[i], handleFor(&files[i])) // takes no second place
	}
	h.forget()
	unused := &files[2]
	for i := range files {
		if &files[i] != unused && !remembered(&files[i]) {
			t.Errorf("inode %d has lost its place, and there are enough", files[i].ino)
		}
	}
	h.remember(&more[0], handleFor(&more[0]))
	for i := range files {
		if &files[i] != unused && !remembered(&files[i]) {
			t.Errorf("inode %d has lost its place to another, though one was not used", files[i].ino)
		}
	}
	if remembered(unused) || !remembered(&more[0]) {
		t.Error("what was not used has its place still")
	}
	h.remember(&more[1], handleFor(&more[1])) // all were used: any of them goes
	if n := h.counts().Remembered; n != placeWays || !remembered(&more[1]) {
		t.Errorf("%d are remembered in %d places", n, placeWays)
	}
	again := more[1]
	again.nsec++ // a number that is used again
	if remembered(&again) {
		t.Error("a file has the handle of one that had its number before")
	}
	h.forget()
	if !remembered(&more[1]) {
		t.Error("forgotten at once")
	}
	h.forget()
	if n := h.counts().Remembered; n != 1 {
		t.Errorf("%d are remembered, one was used", n)
	}
	h.forget()
	if n := h.counts().Remembered; n != 0 || h.places.Load() != nil {
		t.Errorf("%d are remembered that nobody uses", n)
	}
	if c := h.counts(); c.Hits == 0 || c.Misses < placeWays {
		t.Errorf("%+v", c)
	}
}

// Whoever asks gets the handle of the file that was asked for, or none.
func TestHandlesConcurrently(t *testing.T) {
	var h handles
	files := samePlace(3 * placeWays)
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			var b []byte
			for i := range 20_000 {
				d := &files[(i*(g+1)+g)%len(files)]
				var ok bool
				if b, ok = h.append(b[:0], d); !ok {
					h.remember(d, handleFor(d))
				} else if !slices.Equal(b, handleFor(d)) {
					t.Errorf("inode %d has the handle %x", d.ino, b)
					return
				}
				if i%1000 == 0 {
					h.forget()
				}
			}
		})
	}
	all.Wait()
	if n := h.counts(); n.Hits == 0 || n.Hits+n.Misses != 4*20_000 || n.Remembered > placeWays {
		t.Errorf("%+v", n)
	}
}
