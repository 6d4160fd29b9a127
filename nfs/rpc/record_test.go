package rpc

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

func TestReadRecord(t *testing.T) {
	tests := []struct {
		name   string
		stream []byte
		want   string
		left   int // bytes of the next record that must not be touched
		err    error
	}{
		{"one fragment", []byte{0x80, 0, 0, 3, 'a', 'b', 'c'}, "abc", 0, nil},
		{"empty record", []byte{0x80, 0, 0, 0}, "", 0, nil},
		{"three fragments", []byte{0, 0, 0, 1, 'a', 0, 0, 0, 2, 'b', 'c', 0x80, 0, 0, 1, 'd'}, "abcd", 0, nil},
		{"empty fragments", []byte{0, 0, 0, 0, 0, 0, 0, 1, 'a', 0x80, 0, 0, 0}, "a", 0, nil},
		{"another record behind", []byte{0x80, 0, 0, 1, 'a', 0x80, 0, 0, 1, 'b'}, "a", 5, nil},
		{"as large as allowed", []byte{0x80, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8}, "\x01\x02\x03\x04\x05\x06\x07\x08", 0, nil},
		{"too large", []byte{0x80, 0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9}, "", 9, ErrRecord},
		{"too large together", []byte{0, 0, 0, 5, 1, 2, 3, 4, 5, 0x80, 0, 0, 4, 1, 2, 3, 4}, "", 4, ErrRecord},
		{"2 GiB", []byte{0xff, 0xff, 0xff, 0xff}, "", 0, ErrRecord},
		{"end of stream", nil, "", 0, io.EOF},
		{"ends in the mark", []byte{0x80, 0}, "", 0, io.ErrUnexpectedEOF},
		{"ends before the data", []byte{0x80, 0, 0, 1}, "", 0, io.ErrUnexpectedEOF},
		{"ends in the data", []byte{0x80, 0, 0, 3, 'a'}, "", 0, io.ErrUnexpectedEOF},
		{"ends between fragments", []byte{0, 0, 0, 1, 'a'}, "", 0, io.ErrUnexpectedEOF},
		{"endless empty fragments", make([]byte, 4*(maxFragments+1)), "", 4, ErrRecord},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for name, wrap := range map[string]func(io.Reader) io.Reader{
				"whole":        func(r io.Reader) io.Reader { return r },
				"byte by byte": iotest.OneByteReader,
			} {
				r := bytes.NewReader(tt.stream)
				got, err := ReadRecord(wrap(r), []byte("head"), 8)
				if !errors.Is(err, tt.err) {
					t.Errorf("%s: err = %v, want %v", name, err, tt.err)
				}
				if err == nil && string(got) != "head"+tt.want {
					t.Errorf("%s: got %q, want %q", name, got[4:], tt.want)
				}
				if r.Len() != tt.left {
					t.Errorf("%s: %d bytes left, want %d", name, r.Len(), tt.left)
				}
			}
		})
	}
}

func TestEndRecord(t *testing.T) {
	b, at := BeginRecord([]byte("earlier"))
	b = append(b, "record"...)
	EndRecord(b, at)
	if want := "earlier\x80\x00\x00\x06record"; string(b) != want {
		t.Errorf("got %q, want %q", b, want)
	}
}

func TestReadRecordAllocs(t *testing.T) {
	stream := []byte{0, 0, 0, 2, 'a', 'b', 0x80, 0, 0, 2, 'c', 'd'}
	r := bytes.NewReader(stream)
	buf := make([]byte, 0, 64)
	n := testing.AllocsPerRun(1000, func() {
		r.Reset(stream)
		rec, err := ReadRecord(r, buf, 8)
		if err != nil || len(rec) != 4 {
			t.Fatal(rec, err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzReadRecord(f *testing.F) {
	f.Add([]byte{0x80, 0, 0, 3, 'a', 'b', 'c', 0x80, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 1, 'a', 0, 0, 0, 0, 0x80, 0, 0, 2, 'b', 'c'})
	f.Fuzz(func(t *testing.T, stream []byte) {
		const limit = 100
		r := bytes.NewReader(stream)
		for {
			before := r.Len()
			rec, err := ReadRecord(r, nil, limit)
			if err != nil {
				return
			}
			if len(rec) > limit {
				t.Fatalf("a record of %d bytes", len(rec))
			}
			if before-r.Len() < len(rec)+4 {
				t.Fatalf("%d bytes of stream made a record of %d", before-r.Len(), len(rec))
			}
		}
	})
}
