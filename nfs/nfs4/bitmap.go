package nfs4

import (
	"math"
	"math/bits"

	"github.com/podnas/podnas/nfs/xdr"
)

// Bitmap is bitmap4: a set of attributes, or of operations. It has room for all bits
// that the protocol defines.
type Bitmap [3]uint32

// BitmapOf returns the set of these bits.
func BitmapOf(set ...uint32) Bitmap {
	var m Bitmap
	for _, bit := range set {
		m.Set(bit)
	}
	return m
}

// Has returns whether a bit is set.
func (m Bitmap) Has(bit uint32) bool {
	return bit/32 < uint32(len(m)) && m[bit/32]&(1<<(bit%32)) != 0
}

// Set sets a bit.
func (m *Bitmap) Set(bit uint32) {
	m[bit/32] |= 1 << (bit % 32)
}

// Clear clears a bit.
func (m *Bitmap) Clear(bit uint32) {
	m[bit/32] &^= 1 << (bit % 32)
}

// And returns the bits that are in both.
func (m Bitmap) And(o Bitmap) Bitmap {
	for i := range m {
		m[i] &= o[i]
	}
	return m
}

// Or returns the bits that are in either.
func (m Bitmap) Or(o Bitmap) Bitmap {
	for i := range m {
		m[i] |= o[i]
	}
	return m
}

// Without returns the bits of m that are not in o.
func (m Bitmap) Without(o Bitmap) Bitmap {
	for i := range m {
		m[i] &^= o[i]
	}
	return m
}

// Empty returns whether no bit is set.
func (m Bitmap) Empty() bool {
	return m == Bitmap{}
}

// next returns the lowest bit that is at least from, or false.
func (m *Bitmap) next(from uint32) (bit uint32, ok bool) {
	for i := from / 32; i < uint32(len(m)); i++ {
		if w := m[i] >> (from % 32) << (from % 32); w != 0 {
			return i*32 + uint32(bits.TrailingZeros32(w)), true
		}
		from = 0
	}
	return 0, false
}

// append appends the words up to the last that isn't zero.
func (m *Bitmap) append(b []byte) []byte {
	n := len(m)
	for n > 0 && m[n-1] == 0 {
		n--
	}
	b = xdr.AppendUint32(b, uint32(n))
	for _, w := range m[:n] {
		b = xdr.AppendUint32(b, w)
	}
	return b
}

// decodeBitmap consumes a bitmap. others is whether it has a bit that Bitmap has no room
// for. It has as many words as the record has room for: RFC 8881 section 3.3.7 sets no limit, and zeros
// mean nothing.
func decodeBitmap(d *xdr.Decoder) (m Bitmap, others bool) {
	for i := range d.Count(math.MaxInt32, 4) {
		w := d.Uint32()
		if i < len(m) {
			m[i] = w
		} else if w != 0 {
			others = true
		}
	}
	return m, others
}

// decodeKnown consumes a bitmap whose other bits don't matter.
func (m *Bitmap) decodeKnown(d *xdr.Decoder) {
	*m, _ = decodeBitmap(d)
}
