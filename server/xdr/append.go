package xdr

import "encoding/binary"

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

// AppendFixed appends opaque data whose length both sides know.
func AppendFixed(b, data []byte) []byte {
	b = append(b, data...)
	return appendPad(b, len(data))
}

// AppendOpaque appends variable-length opaque data or a string.
func AppendOpaque(b, data []byte) []byte {
	b = AppendUint32(b, uint32(len(data)))
	return AppendFixed(b, data)
}

// Reserve appends room for an unsigned integer that is not known yet, and
// returns where it is: for the length of what is appended next, or the mark of
// a record.
func Reserve(b []byte) (buf []byte, at int) {
	return append(b, 0, 0, 0, 0), len(b)
}

// Patch fills in what Reserve left open.
func Patch(b []byte, at int, v uint32) {
	binary.BigEndian.PutUint32(b[at:at+4], v)
}

// EndOpaque closes opaque data that was appended to b after Reserve returned
// at: it fills in the length and appends the padding.
func EndOpaque(b []byte, at int) []byte {
	n := len(b) - at - 4
	Patch(b, at, uint32(n))
	return appendPad(b, n)
}

func appendPad(b []byte, n int) []byte {
	var zero [4]byte
	return append(b, zero[:Pad(n)]...)
}
