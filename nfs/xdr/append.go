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
