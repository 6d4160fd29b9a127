// Package xdr reads and writes the External Data Representation of RFC 4506:
// big-endian, everything padded to four bytes.
//
// There is no reflection and no io.Reader. A [Decoder] decodes the whole record,
// field by field, and keeps the first error, so a caller decodes all fields and
// checks Err once. The byte slices it returns alias the record. Every length
// from the peer has a maximum given by the caller. A message is encoded by
// appending to a []byte.
package xdr
