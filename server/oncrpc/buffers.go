package oncrpc

import (
	"slices"
	"sync"
)

// bufferSizes are the classes of buffers: a call or reply without data, and with
// 4 KiB, 64 KiB, 256 KiB and 1 MiB of it, and what stands around the data.
var bufferSizes = [...]int{1 << 10, 5 << 10, 66 << 10, 260 << 10, recordMax + replyHead} //nolint:gochecknoglobals // a constant, if Go had such

// buffers is a bounded free list. A sync.Pool would hand large buffers to the
// garbage collector just when there is much to do.
type buffers struct {
	classes [len(bufferSizes)]freeList
}

// freeList is the buffers of a class. What was put last goes first: it is still in the
// processor's cache.
type freeList struct {
	mu   sync.Mutex
	free [][]byte
	_    [32]byte // the next class is on another cache line
}

// keptBytes is how much memory each class keeps.
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
	if buf := b.classes[class].take(); buf != nil {
		return buf[:0]
	}
	return make([]byte, 0, max(size, bufferSizes[class]))
}

// take takes the buffer that was put last, nil if there is none.
func (l *freeList) take() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := len(l.free) - 1
	if last < 0 {
		return nil
	}
	buf := l.free[last]
	l.free[last] = nil
	l.free = l.free[:last]
	return buf
}

// put takes a buffer back. One that was grown to another size is let go.
func (b *buffers) put(buf []byte) {
	class := class(cap(buf))
	size := bufferSizes[class]
	if cap(buf) != size {
		return
	}
	l := &b.classes[class]
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.free) < keptBytes/size {
		l.free = append(l.free, buf)
	}
}

// letGo leaves half of the buffers that nobody uses to the garbage collector, and tells
// how many bytes these are, and how many are left. Called again and again, it lets go
// of all when a busy time is over; in one, few are unused, and to make some anew takes
// less than to count which are needed.
func (b *buffers) letGo() (gone, left int) {
	for class := range b.classes {
		n, kept := b.classes[class].halve()
		gone += n * bufferSizes[class]
		left += kept * bufferSizes[class]
	}
	return gone, left
}

func (l *freeList) halve() (gone, left int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left = len(l.free) / 2
	gone = len(l.free) - left
	l.free = slices.Clone(l.free[gone:])
	return gone, left
}

// taken is how much memory get takes for size bytes.
func taken(size int) int64 { return int64(max(size, bufferSizes[class(size)])) }
