package oncrpc

import "testing"

// Unused buffers are let go, step by step; those in use are not touched.
func TestBuffersAreLetGo(t *testing.T) {
	b := &buffers{}
	used := b.get(100)
	var taken [][]byte
	for _, size := range bufferSizes {
		for range 7 {
			taken = append(taken, b.get(size))
		}
	}
	for _, buf := range taken {
		b.put(buf)
	}
	all := 0
	for _, size := range bufferSizes {
		all += 7 * size
	}
	first, left := b.halve()
	if want := all * 4 / 7; first != want || left != all-want {
		t.Errorf("%d bytes went at first and %d are left, of %d", first, left, all)
	}
	gone := first
	for range 3 {
		var now int
		now, left = b.halve()
		gone += now
	}
	if gone != all || left != 0 {
		t.Errorf("%d of %d bytes went, %d are left", gone, all, left)
	}
	few := &b.classes[0]
	for range 3 {
		few.put(used, 9)
	}
	for _, want := range [][2]int{{2, 1}, {0, 1}} {
		if released, left := few.halve(1); released != want[0] || left != want[1] {
			t.Errorf("but for one: %d went, and %d are left, want %v", released, left, want)
		}
	}
	few.halve(0)
	b.put(used)
	if again := b.get(100); cap(again) != cap(used) {
		t.Error("a buffer is not used again")
	}
}
