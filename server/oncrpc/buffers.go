package oncrpc

// Sizes of buffers: a call or reply without data, one with a few pages, and the
// largest.
const (
	smallBuffer  = 2 << 10
	mediumBuffer = 64<<10 + 1<<10
	largeBuffer  = recordMax + replyHead + 4
)

// buffers is a bounded free list. A sync.Pool would hand large buffers to the
// garbage collector just when there is much to do.
type buffers struct {
	small, medium, large chan []byte
}

func newBuffers() *buffers {
	return &buffers{
		small:  make(chan []byte, 1024), // 2 MiB
		medium: make(chan []byte, 64),   // 4 MiB
		large:  make(chan []byte, 16),   // 16 MiB
	}
}

func (b *buffers) list(size int) (chan []byte, int) {
	switch {
	case size <= smallBuffer:
		return b.small, smallBuffer
	case size <= mediumBuffer:
		return b.medium, mediumBuffer
	default:
		return b.large, largeBuffer
	}
}

// get returns a buffer of at least that capacity.
func (b *buffers) get(size int) []byte {
	list, capacity := b.list(size)
	select {
	case buf := <-list:
		if cap(buf) >= size {
			return buf[:0]
		}
	default:
	}
	return make([]byte, 0, max(size, capacity))
}

// put takes a buffer back. One that was grown to another size is let go.
func (b *buffers) put(buf []byte) {
	if cap(buf) == 0 {
		return
	}
	list, capacity := b.list(cap(buf))
	if cap(buf) != capacity {
		return
	}
	select {
	case list <- buf[:0]:
	default:
	}
}
