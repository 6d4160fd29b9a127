package xdr

import (
	"bytes"
	"errors"
	"testing"
)

// One of everything, written by hand from RFC 4506.
var everything = []byte{
	0x00, 0x00, 0x00, 0x2a, // 42
	0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, // hyper
	0x00, 0x00, 0x00, 0x01, // true
	0x00, 0x00, 0x00, 0x00, // false
	0xde, 0xad, 0xbe, 0xef, 0x01, 0x00, 0x00, 0x00, // fixed opaque of 5
	0x00, 0x00, 0x00, 0x03, 'a', 'b', 'c', 0x00, // opaque of 3
	0x00, 0x00, 0x00, 0x04, 'a', 'b', 'c', 'd', // opaque of 4
	0x00, 0x00, 0x00, 0x00, // empty opaque
	0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x06, // two integers
}

func TestDecode(t *testing.T) {
	d := NewDecoder(everything)
	if v := d.Uint32(); v != 42 {
		t.Errorf("Uint32 = %d", v)
	}
	if v := d.Uint64(); v != 0x0102030405060708 {
		t.Errorf("Uint64 = %#x", v)
	}
	if !d.Bool() || d.Bool() {
		t.Error("Bool: want true, then false")
	}
	if v := d.Fixed(5); !bytes.Equal(v, []byte{0xde, 0xad, 0xbe, 0xef, 1}) {
		t.Errorf("Fixed = %x", v)
	}
	for _, want := range []string{"abc", "abcd", ""} {
		if v := d.Opaque(4); string(v) != want {
			t.Errorf("Opaque = %q, want %q", v, want)
		}
	}
	if n := d.Count(2, 4); n != 2 {
		t.Errorf("Count = %d", n)
	}
	if d.Len() != 8 {
		t.Errorf("Len = %d, want 8", d.Len())
	}
	if rest := d.Rest(); !bytes.Equal(rest, []byte{0, 0, 0, 5, 0, 0, 0, 6}) {
		t.Errorf("Rest = %x", rest)
	}
	if err := d.Finish(); err != nil {
		t.Error(err)
	}
}

func TestAppend(t *testing.T) {
	var b []byte
	b = AppendUint32(b, 42)
	b = AppendUint64(b, 0x0102030405060708)
	b = AppendBool(b, true)
	b = AppendBool(b, false)
	b = AppendFixed(b, []byte{0xde, 0xad, 0xbe, 0xef, 1})
	b = AppendOpaque(b, []byte("abc"))
	b = AppendOpaque(b, []byte("abcd"))
	b = AppendOpaque(b, nil)
	b, at := Reserve(b)
	b = AppendUint32(b, 5)
	b = AppendUint32(b, 6)
	Patch(b, at, 2)
	if !bytes.Equal(b, everything) {
		t.Errorf("got  %x\nwant %x", b, everything)
	}
}

func TestDecodeErrors(t *testing.T) {
	tests := []struct {
		name   string
		buf    []byte
		decode func(*Decoder)
		want   error
	}{
		{"uint32", []byte{0, 0, 0}, func(d *Decoder) { d.Uint32() }, ErrShort},
		{"uint64", []byte{0, 0, 0, 0, 0, 0, 0}, func(d *Decoder) { d.Uint64() }, ErrShort},
		{"bool of 2", []byte{0, 0, 0, 2}, func(d *Decoder) { d.Bool() }, ErrValue},
		{"fixed", []byte{1, 2, 3}, func(d *Decoder) { d.Fixed(4) }, ErrShort},
		{"fixed without padding", []byte{1, 2, 3}, func(d *Decoder) { d.Fixed(3) }, ErrShort},
		{"opaque past the end", []byte{0, 0, 0, 5, 1, 2, 3, 4}, func(d *Decoder) { d.Opaque(8) }, ErrShort},
		{"opaque past its maximum", []byte{0, 0, 0, 4, 1, 2, 3, 4}, func(d *Decoder) { d.Opaque(3) }, ErrTooLong},
		{"opaque of 4 GiB", []byte{0xff, 0xff, 0xff, 0xff}, func(d *Decoder) { d.Opaque(1 << 30) }, ErrTooLong},
		{"count past its maximum", []byte{0, 0, 0, 4}, func(d *Decoder) { d.Count(3, 0) }, ErrTooLong},
		{"count past the record", []byte{0, 0, 0, 4, 0, 0, 0, 0}, func(d *Decoder) { d.Count(8, 4) }, ErrShort},
		{"left over", []byte{0}, func(d *Decoder) {}, ErrTrailing},
		{"first error stays", []byte{0, 0, 0, 2}, func(d *Decoder) { d.Bool(); d.Uint32(); d.Fail(ErrTooLong) }, ErrValue},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := NewDecoder(tt.buf)
			tt.decode(&d)
			if err := d.Finish(); !errors.Is(err, tt.want) {
				t.Errorf("err = %v, want %v", err, tt.want)
			}
		})
	}
}

// After an error nothing more comes out, even if bytes were left.
func TestDecodeAfterError(t *testing.T) {
	d := NewDecoder([]byte{0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1})
	d.Opaque(8)
	if d.Uint32() != 0 || d.Uint64() != 0 || d.Bool() || d.Fixed(0) != nil || d.Opaque(8) != nil || d.Count(8, 0) != 0 || d.Len() != 0 {
		t.Error("a value came out after an error")
	}
}

// An append to what was decoded must not change the record behind it.
func TestDecodedSliceIsClipped(t *testing.T) {
	rec := AppendUint32(AppendOpaque(nil, []byte("abcd")), 7)
	d := NewDecoder(rec)
	_ = append(d.Opaque(4), "zzzz"...)
	if v := d.Uint32(); v != 7 {
		t.Errorf("the value behind became %#x", v)
	}
}

// The shape of READ's arguments: a handle, an offset, a count.
func TestDecodeAllocs(t *testing.T) {
	rec := AppendOpaque(nil, make([]byte, 32))
	rec = AppendUint64(rec, 1<<20)
	rec = AppendUint32(rec, 4096)
	var sum uint64
	n := testing.AllocsPerRun(1000, func() {
		d := NewDecoder(rec)
		fh := d.Opaque(64)
		sum += uint64(len(fh)) + d.Uint64() + uint64(d.Uint32())
		if d.Err() != nil {
			t.Fatal(d.Err())
		}
	})
	if n != 0 || sum == 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkDecodeReadArgs(b *testing.B) {
	rec := AppendOpaque(nil, make([]byte, 32))
	rec = AppendUint64(rec, 1<<20)
	rec = AppendUint32(rec, 4096)
	for b.Loop() {
		d := NewDecoder(rec)
		d.Opaque(64)
		d.Uint64()
		d.Uint32()
		if d.Err() != nil {
			b.Fatal(d.Err())
		}
	}
}

// FuzzDecoder runs a program of reads over a record. It must not panic, must
// not return more than was asked for, and must consume exactly what the
// values, encoded again, take up.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte{0, 1, 2, 2, 3, 4, 4, 4, 5, 0, 0}, everything)
	f.Add([]byte{4}, []byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, program, rec []byte) {
		d := NewDecoder(rec)
		var out []byte
		opaque := false
		for _, op := range program {
			limit := int(op >> 3)
			switch op & 7 {
			case 0:
				out = AppendUint32(out, d.Uint32())
			case 1:
				out = AppendUint64(out, d.Uint64())
			case 2:
				out = AppendBool(out, d.Bool())
			case 3:
				out = AppendFixed(out, d.Fixed(limit))
				opaque = true
			case 4:
				b := d.Opaque(limit)
				if len(b) > limit {
					t.Fatalf("%d bytes, the maximum was %d", len(b), limit)
				}
				out = AppendOpaque(out, b)
				opaque = true
			case 5:
				n := d.Count(limit, 4)
				if n > limit || n*4 > d.Len() {
					t.Fatalf("count %d, maximum %d, %d bytes left", n, limit, d.Len())
				}
				out = AppendUint32(out, uint32(n))
			}
			if d.Err() != nil {
				return
			}
		}
		if used := len(rec) - d.Len(); used != len(out) {
			t.Fatalf("consumed %d bytes, the values take %d", used, len(out))
		}
		// Padding may have been other than zero; all else must be the same.
		if !opaque && !bytes.Equal(out, rec[:len(out)]) {
			t.Fatalf("encoded again: %x, was %x", out, rec[:len(out)])
		}
	})
}
