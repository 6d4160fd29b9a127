package export

import (
	"testing"
	"time"
)

// The change attribute moves at each change, and stays as long as there is none, whatever
// the clock's tick is and whoever shares the memory.
func TestChangeMoves(t *testing.T) {
	c := newChanges()
	v := &Volume{ID: 1}
	const files = 3 * changesKept / 2 // some share their memory
	ids := make([]FileID, files)
	attrs := make([]Attr, files)
	last := make([]uint64, files)
	for i := range ids {
		ids[i] = NewFileID([]byte{byte(i), byte(i >> 8), 1})
		attrs[i].Ctime = time.Now()
	}
	o := &Opener{changes: c}
	look := func(i int) uint64 {
		t.Helper()
		change, _, err := o.change(fileKey{v, ids[i]}, attrs[i], func() (Attr, error) { return attrs[i], nil })
		if err != nil {
			t.Fatal(err)
		}
		return change
	}
	tick := func() time.Time { return time.Now().Truncate(10 * time.Millisecond) }
	for round := range 4 {
		for i := range ids {
			attrs[i].Ctime = tick()
			c.changed(v, ids[i])
			if now := look(i); now <= last[i] {
				t.Fatalf("round %d: file %d changed, its change attribute went from %d to %d", round, i, last[i], now)
			} else {
				last[i] = now
			}
			if i%2 == 0 { // again, and this is not looked at at once
				c.changed(v, ids[i])
			}
		}
		if round%2 == 1 {
			time.Sleep(2 * tickMax)
		}
		for i := range ids {
			now := look(i)
			if now < last[i] || i%2 == 0 && now == last[i] {
				t.Fatalf("round %d: file %d, changed since %t: its change attribute went from %d to %d", round, i, i%2 == 0, last[i], now)
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
