package xdr

import (
	"encoding/binary"
	"errors"
)

// The errors of a Decoder. Callers of Fail use ErrValue too, for example for
// an enumeration's value that the protocol doesn't define.
var (
	ErrShort    = errors.New("xdr: record ends early")
	ErrTooLong  = errors.New("xdr: length past its maximum")
	ErrValue    = errors.New("xdr: value not of its type")
	ErrTrailing = errors.New("xdr: bytes left over")
)

// Decoder consumes a record from the front. After the first error Err returns it,
// and every other method the zero value.
//
// It is a value on the stack of one goroutine.
type Decoder struct {
	buf []byte
	err error
}

// NewDecoder decodes buf. Slices that the Decoder returns alias buf, so buf must
// not change while they are in use.
func NewDecoder(buf []byte) Decoder {
	return Decoder{buf: buf}
}

// Err returns the first error, or nil.
func (d *Decoder) Err() error {
	return d.err
}

// Fail sets the Decoder's error unless it has one already.
func (d *Decoder) Fail(err error) {
	if d.err == nil {
		d.err = err
	}
	// An empty buffer makes every later read fail without a check of err.
	d.buf = nil
}

// Len returns the number of bytes not yet consumed.
func (d *Decoder) Len() int {
	return len(d.buf)
}

// Rest consumes and returns all remaining bytes.
func (d *Decoder) Rest() []byte {
	b := d.buf
	d.buf = nil
	return b
}

// Finish returns Err, or ErrTrailing if bytes are left.
func (d *Decoder) Finish() error {
	if d.err == nil && len(d.buf) > 0 {
		return ErrTrailing
	}
	return d.err
}

// Uint32 consumes an unsigned integer (RFC 4506 section 4.2).
func (d *Decoder) Uint32() uint32 {
	if len(d.buf) < 4 {
		d.Fail(ErrShort)
		return 0
	}
	v := binary.BigEndian.Uint32(d.buf)
	d.buf = d.buf[4:]
	return v
}

// Uint64 consumes an unsigned hyper integer (section 4.5).
func (d *Decoder) Uint64() uint64 {
	if len(d.buf) < 8 {
		d.Fail(ErrShort)
		return 0
	}
	v := binary.BigEndian.Uint64(d.buf)
	d.buf = d.buf[8:]
	return v
}

// Bool consumes a boolean (section 4.4). A value other than 0 and 1 is an
// error: the data after an unknown discriminant can't be decoded.
func (d *Decoder) Bool() bool {
	v := d.Uint32()
	if v > 1 {
		d.Fail(ErrValue)
		return false
	}
	return v == 1
}

// Fixed consumes opaque data of n bytes and its padding (section 4.9), which may
// have any value.
func (d *Decoder) Fixed(n int) []byte {
	padded := n + Pad(n)
	if len(d.buf) < padded {
		d.Fail(ErrShort)
		return nil
	}
	// The capacity ends with the data, so that an append by the caller copies
	// instead of overwriting the rest of the record.
	b := d.buf[:n:n]
	d.buf = d.buf[padded:]
	return b
}

// Opaque consumes variable-length opaque data or a string of at most limit bytes
// (sections 4.10 and 4.11).
func (d *Decoder) Opaque(limit int) []byte {
	n := d.Uint32()
	if uint64(n) > uint64(limit) {
		d.Fail(ErrTooLong)
		return nil
	}
	if d.err != nil {
		return nil
	}
	return d.Fixed(int(n))
}

// Count consumes the length of an array of at most limit elements (section 4.13).
// Each element has at least size bytes, so Count refuses a length that exceeds the
// record before anything is allocated.
func (d *Decoder) Count(limit, size int) int {
	n := d.Uint32()
	if uint64(n) > uint64(limit) {
		d.Fail(ErrTooLong)
		return 0
	}
	if uint64(n)*uint64(size) > uint64(len(d.buf)) {
		d.Fail(ErrShort)
		return 0
	}
	return int(n)
}

// Pad returns the number of zero bytes after n bytes of opaque data.
func Pad(n int) int {
	return -n & 3
}

// AppendUint32 appends an unsigned integer.
func AppendUint32(b []byte, v uint32) []byte {
	return binary.BigEndian.AppendUint32(b, v)
}

// AppendUint64 appends an unsigned hyper integer.
func AppendUint64(b []byte, v uint64) []byte {
	return binary.BigEndian.AppendUint64(b, v)
}

// AppendBool appends a boolean.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 0, 0, 0, 1)
	}
	return append(b, 0, 0, 0, 0)
}

// AppendFixed appends opaque data whose length both sides know. Data that is
// already in place right after b is not copied.
func AppendFixed(b, data []byte) []byte {
	if n := len(b) + len(data); len(data) > 0 && cap(b) >= n && &b[:n][len(b)] == &data[0] {
		b = b[:n]
	} else {
		b = append(b, data...)
	}
	return appendPad(b, len(data))
}

// AppendOpaque appends variable-length opaque data or a string.
func AppendOpaque(b, data []byte) []byte {
	b = AppendUint32(b, uint32(len(data)))
	return AppendFixed(b, data)
}

// Reserve appends space for an unsigned integer that is not known yet, such as
// the mark of a record, and returns its offset.
func Reserve(b []byte) (buf []byte, at int) {
	return append(b, 0, 0, 0, 0), len(b)
}

// Patch sets an integer that Reserve appended.
func Patch(b []byte, at int, v uint32) {
	binary.BigEndian.PutUint32(b[at:at+4], v)
}

func appendPad(b []byte, n int) []byte {
	var zero [4]byte
	return append(b, zero[:Pad(n)]...)
}
