package nfsbench

import (
	"bytes"
	"errors"
	"testing"
)

func TestPattern(t *testing.T) {
	f := newFiller()
	whole := f.append(nil, 7, 0, 5*pageSize)
	for _, tt := range []struct{ offset, n int }{
		{0, 0}, {0, 1}, {0, 5 * pageSize}, {3, 5}, {3, 20}, {pageHead, 1}, {pageSize - 1, 2}, {pageSize + 8, pageSize}, {100, 3*pageSize + 7},
	} {
		part := f.append(nil, 7, uint64(tt.offset), tt.n)
		if !bytes.Equal(part, whole[tt.offset:tt.offset+tt.n]) {
			t.Errorf("%d bytes at %d are not those of the whole", tt.n, tt.offset)
		}
		if err := f.check(part, 7, uint64(tt.offset)); err != nil {
			t.Errorf("%d bytes at %d: %v", tt.n, tt.offset, err)
		}
	}
	for name, data := range map[string][]byte{
		"another file":     f.append(nil, 8, 0, 2*pageSize),
		"another place":    f.append(nil, 7, pageSize, 2*pageSize),
		"zeros":            make([]byte, 2*pageSize),
		"a zero at a page": append(bytes.Clone(whole[:pageSize]), make([]byte, pageSize)...),
		"one bit": func() []byte {
			b := bytes.Clone(whole[:2*pageSize])
			b[pageSize+2000] ^= 1
			return b
		}(),
		"a byte too far": append([]byte{whole[0]}, whole[:2*pageSize-1]...),
		"pages swapped":  append(bytes.Clone(whole[pageSize:2*pageSize]), whole[:pageSize]...),
	} {
		if wrong := (*WrongDataError)(nil); !errors.As(f.check(data, 7, 0), &wrong) {
			t.Errorf("%s is not found", name)
		}
	}
}
