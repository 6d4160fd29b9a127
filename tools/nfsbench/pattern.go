package nfsbench

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// A file's seed determines its content: every page begins with the seed and its
// own offset, and the rest is the same random-looking bytes. So pages of another
// file, another offset or an earlier write, zeros, and displaced bytes are all
// found, at the cost of comparing memory.
const (
	pageSize = 4096
	pageHead = 16
)

// filler is the part of a page that all pages share.
type filler [pageSize]byte

func newFiller() *filler {
	f := new(filler)
	x := uint64(0x9e3779b97f4a7c15)
	for i := range f {
		x = x*6364136223846793005 + 1442695040888963407
		f[i] = byte(x >> 56)
	}
	return f
}

// append appends n bytes of a seed's file, from offset on.
func (f *filler) append(b []byte, seed, offset uint64, n int) []byte {
	for n > 0 {
		within := int(offset % pageSize)
		size := min(n, pageSize-within)
		if within < pageHead {
			head := pageStart(seed, offset-uint64(within))
			part := min(size, pageHead-within)
			b = append(b, head[within:within+part]...)
			offset, n = offset+uint64(part), n-part
			continue
		}
		b = append(b, f[within:within+size]...)
		offset, n = offset+uint64(size), n-size
	}
	return b
}

// check compares data with a seed's file, from offset on.
func (f *filler) check(data []byte, seed, offset uint64) error {
	for len(data) > 0 {
		within := int(offset % pageSize)
		size := min(len(data), pageSize-within)
		want := f[within : within+size]
		if within < pageHead {
			head := pageStart(seed, offset-uint64(within))
			size = min(size, pageHead-within)
			want = head[within : within+size]
		}
		if !bytes.Equal(data[:size], want) {
			return &WrongDataError{Offset: offset, Got: bytes.Clone(data[:min(size, pageHead)]), Want: bytes.Clone(want[:min(size, pageHead)])}
		}
		data, offset = data[size:], offset+uint64(size)
	}
	return nil
}

func pageStart(seed, offset uint64) (head [pageHead]byte) {
	binary.BigEndian.PutUint64(head[:], seed)
	binary.BigEndian.PutUint64(head[8:], offset)
	return head
}

// WrongDataError is the error if a server returned other data than was written.
type WrongDataError struct {
	Offset    uint64 // of the first part, at most a page, that differs
	Got, Want []byte // how that part begins
}

func (e *WrongDataError) Error() string {
	return fmt.Sprintf("wrong data: the part at %d begins with %x, not %x, or differs later", e.Offset, e.Got, e.Want)
}
