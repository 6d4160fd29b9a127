package locate_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/locate"
)

func TestHandle(t *testing.T) {
	key := locate.NewKey(bytes.Repeat([]byte{1}, 32))
	for n := 1; n <= disk.FileIDMax; n++ {
		file := disk.NewFileID(bytes.Repeat([]byte("f"), n))
		h := key.Handle(1<<63+5, file)
		if len(h) > locate.HandleMax || len(h)%4 != 0 {
			t.Fatalf("handle of %d bytes", len(h))
		}
		if v, f, err := key.Parse(h); v != 1<<63+5 || f != file || err != nil {
			t.Errorf("Parse = %d, %q, %v", v, f, err)
		}
		if !bytes.Equal(h, key.Handle(1<<63+5, file)) {
			t.Error("not the same twice")
		}
	}

	h := key.Handle(5, disk.NewFileID([]byte("file")))
	for i := range h {
		for bit := range 8 {
			forged := slices.Clone(h)
			forged[i] ^= 1 << bit
			if v, f, err := key.Parse(forged); !errors.Is(err, locate.ErrBadHandle) {
				t.Fatalf("bit %d of byte %d turned: %d, %q, %v", bit, i, v, f, err)
			}
		}
	}
	for _, bad := range [][]byte{nil, {}, h[:8], h[:len(h)-1], append(slices.Clone(h), 0), make([]byte, 28), make([]byte, 65), make([]byte, 1000)} {
		if _, _, err := key.Parse(bad); !errors.Is(err, locate.ErrBadHandle) {
			t.Errorf("Parse(%x): %v", bad, err)
		}
	}
	if _, _, err := locate.NewKey(bytes.Repeat([]byte{2}, 32)).Parse(h); !errors.Is(err, locate.ErrBadHandle) {
		t.Errorf("another key: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	key := locate.NewKey(make([]byte, 32))
	f.Add(key.Handle(1, disk.NewFileID([]byte("file"))))
	f.Add(make([]byte, locate.HandleMax))
	f.Fuzz(func(t *testing.T, h []byte) {
		v, file, err := key.Parse(h)
		if err == nil && !bytes.Equal(h, key.Handle(v, file)) {
			t.Errorf("%x is not the handle of what it names", h)
		}
	})
}
