package inode

import (
	"testing"
	"time"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
)

// The change attribute moves at each change, and stays as long as there is none, whatever
// the clock's tick is and whoever shares the memory.
func TestChangeMoves(t *testing.T) {
	c := newChanges()
	v := &exports.Volume{ID: 1}
	const files = 3 * changesKept / 2 // some share their memory
	ids := make([]disk.FileID, files)
	attrs := make([]disk.Attr, files)
	last := make([]uint64, files)
	again := make([]bool, files) // changed since it was looked at
	for i := range ids {
		ids[i] = disk.NewFileID([]byte{byte(i), byte(i >> 8), 1})
		attrs[i].Ctime = time.Now()
	}
	o := &Opener{changes: c}
	look := func(i int) uint64 {
		t.Helper()
		change, _, err := o.changeAttr(fileKey{v.ID, ids[i]}, attrs[i], func() (disk.Attr, error) { return attrs[i], nil })
		if err != nil {
			t.Fatal(err)
		}
		return change
	}
	tick := func() time.Time { return time.Now().Truncate(10 * time.Millisecond) }
	for round := range 4 {
		for i := range ids {
			attrs[i].Ctime = tick()
			c.changed(&fileKey{v.ID, ids[i]})
			if now := look(i); now <= last[i] {
				t.Fatalf("round %d: file %d changed, its change attribute went from %d to %d", round, i, last[i], now)
			} else {
				last[i] = now
			}
			// Again, and this is not looked at at once. A later change has another ctime.
			if again[i] = i%2 == 0 && time.Since(attrs[i].Ctime) < tickMax; again[i] {
				c.changed(&fileKey{v.ID, ids[i]})
			}
		}
		if round%2 == 1 {
			time.Sleep(2 * tickMax)
		}
		for i := range ids {
			now := look(i)
			if now < last[i] || again[i] && now == last[i] {
				t.Fatalf("round %d: file %d, changed since %t: its change attribute went from %d to %d", round, i, again[i], last[i], now)
			}
			last[i] = now
		}
	}
	for i := range ids { // all have settled
		if now := look(i); now != last[i] && now != uint64(attrs[i].Ctime.UnixNano())+countLost {
			t.Errorf("file %d was not changed, its change attribute went from %d to %d", i, last[i], now)
		}
	}
}

// What is forgotten has a later change attribute than while it was remembered, also if it took long to
// look at it.
func TestChangeOfSlowLook(t *testing.T) {
	c := newChanges()
	key := fileKey{1, disk.NewFileID([]byte{1})}
	a := disk.Attr{Ctime: time.Now()}
	c.lose(a.Ctime.UnixNano())
	slow, _, err := c.recent(key, func() (disk.Attr, error) {
		time.Sleep(2 * tickMax)
		return a, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if lost := uint64(a.Ctime.UnixNano()) + countLost; slow >= lost {
		t.Errorf("the change attribute is %d, and %d when it is forgotten", slow, lost)
	}
}

// A file that was not changed lately has the same change attribute whoever asks for it: a call that
// meant to change it, and failed, asks by StatChange.
func TestStatChange(t *testing.T) {
	for name, file := range map[string]struct{ lost, ctime time.Duration }{
		"count lost": {time.Minute, time.Hour}, "count known": {time.Hour, time.Minute},
	} {
		c := newChanges()
		c.lost.Store(time.Now().Add(-file.lost).UnixNano())
		key := fileKey{1, disk.NewFileID([]byte{1})}
		a := disk.Attr{Ctime: time.Now().Add(-file.ctime)}
		want := c.old(key, a.Ctime.UnixNano())
		if got, _, err := c.recent(key, func() (disk.Attr, error) { return a, nil }); got != want || err != nil {
			t.Errorf("%s: %d, %v, want %d", name, got, err, want)
		}
	}
}
