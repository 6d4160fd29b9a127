// Package xdr reads and writes the External Data Representation of RFC 4506:
// big-endian, everything padded to four bytes.
//
// There is no reflection and no io.Reader. A message is decoded by a [Decoder]
// over the whole record, field by field; it remembers the first error, so a
// caller decodes all fields and looks at Err once. The byte slices it returns
// alias the record. Every length that comes from the peer has a maximum given
// by the caller. A message is encoded by appending to a []byte.
package xdr
