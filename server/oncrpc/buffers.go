package oncrpc

// bufferSizes are the classes of buffers: a call or reply without data, and with
// 4 KiB, 64 KiB, 256 KiB and 1 MiB of it, and what stands around the data.
var bufferSizes = [...]int{1 << 10, 5 << 10, 66 << 10, 260 << 10, recordMax + replyHead} //nolint:gochecknoglobals // a constant, if Go had such

// buffers is a bounded free list. A sync.Pool would hand large buffers to the
// garbage collector just when there is much to do.
type buffers struct {
	lists [len(bufferSizes)]chan []byte
}

// keptBytes is how much memory each class keeps.
const keptBytes = 8 << 20

func newBuffers() *buffers {
	b := &buffers{}
	for class, size := range bufferSizes {
		b.lists[class] = make(chan []byte, keptBytes/size)
	}
	return b
}

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
	select {
	case buf := <-b.lists[class]:
		return buf[:0]
	default:
		return make([]byte, 0, max(size, bufferSizes[class]))
	}
}

// put takes a buffer back. One that was grown to another size is let go.
func (b *buffers) put(buf []byte) {
	class := class(cap(buf))
	if cap(buf) != bufferSizes[class] {
		return
	}
	select {
	case b.lists[class] <- buf:
	default:
	}
}

// letGo leaves half of the buffers that nobody uses to the garbage collector, and tells
// how many bytes these are, and how many are left. Called again and again, it lets go
// of all when a busy time is over; in one, few are unused, and to make some anew takes
// less than to count which are needed.
func (b *buffers) letGo() (gone, left int) {
	for class, list := range b.lists {
		for range (len(list) + 1) / 2 {
			select {
			case <-list:
				gone += bufferSizes[class]
			default: // somebody took it
			}
		}
		left += len(list) * bufferSizes[class]
	}
	return gone, left
}

// taken is how much memory get takes for size bytes.
func taken(size int) int64 { return int64(max(size, bufferSizes[class(size)])) }
