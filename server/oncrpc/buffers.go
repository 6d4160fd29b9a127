package oncrpc

import (
	"slices"
	"sync"
)

// bufferSizes are the classes of buffers: for a call or reply with 4 KiB, 64 KiB, 256 KiB
// and 1 MiB of data, and its headers. The memory of smaller ones is in the Call.
var bufferSizes = [...]int{5 << 10, 66 << 10, 260 << 10, recordMax + replyHead} //nolint:gochecknoglobals // a constant, if Go had such

// buffers is a bounded free list. A sync.Pool would give large buffers to the garbage
// collector just when there is much to do.
type buffers struct {
	classes [len(bufferSizes)]freeList[[]byte]
}

// freeList has what can be used again. take returns what was put last: it is still in the
// processor's cache.
type freeList[T any] struct {
	mu sync.Mutex
	// +checklocks:mu
	free []T
	_    [32]byte // the next list is on another cache line
}

// keptBytes is how much memory each list keeps.
const keptBytes = 8 << 20

// class finds the smallest class that has room for size bytes.
func class(size int) int {
	for class, capacity := range bufferSizes {
		if size <= capacity {
			return class
		}
	}
	return len(bufferSizes) - 1
}

// get returns a buffer for up to size bytes.
func (b *buffers) get(size int) []byte {
	class := class(size)
	if buf, ok := b.classes[class].take(); ok {
		return buf[:0]
	}
	return make([]byte, 0, max(size, bufferSizes[class]))
}

// put adds a buffer to the list.
func (b *buffers) put(buf []byte) {
	class := class(cap(buf))
	if size := bufferSizes[class]; cap(buf) == size {
		b.classes[class].put(buf, keptBytes/size)
	}
}

// halve releases half of the unused buffers to the garbage collector, and returns their
// bytes, and those of the ones that are left. In a busy time few are unused, and to make
// some again takes less than to count which are needed.
func (b *buffers) halve() (released, left int) {
	for class, size := range bufferSizes {
		n, kept := b.classes[class].halve(0)
		released += n * size
		left += kept * size
	}
	return released, left
}

// take removes what was put last. ok is false if the list is empty.
func (l *freeList[T]) take() (v T, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := len(l.free) - 1
	if last < 0 {
		return v, false
	}
	v, l.free[last] = l.free[last], v
	l.free = l.free[:last]
	return v, true
}

// put adds something to the list, unless that has so many.
func (l *freeList[T]) put(v T, most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.free) < most {
		l.free = append(l.free, v)
	}
}

// halve releases half of the list to the garbage collector, unless only a few are left that are to be
// kept. It returns how many it has released, and how many are left.
func (l *freeList[T]) halve(few int) (released, left int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left = min(len(l.free), max(few, len(l.free)/2))
	released = len(l.free) - left
	if released == 0 {
		return 0, left
	}
	l.free = slices.Clone(l.free[released:])
	return released, left
}

// taken is how much memory get takes for size bytes.
func taken(size int) int64 { return int64(max(size, bufferSizes[class(size)])) }
