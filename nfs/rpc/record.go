package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/podnas/podnas/nfs/xdr"
)

// ErrRecord says that the peer's stream can't be followed any further: there is
// no way to tell where the next record starts, so the connection must end.
var ErrRecord = errors.New("rpc: bad record")

const (
	lastFragment = 1 << 31

	// A record may come in any number of fragments, empty ones too, so their
	// number has a bound of its own. 1 MiB of data in this many is 256 bytes
	// each; no client sends smaller ones.
	maxFragments = 4096
)

// BeginRecord appends room for a record's mark to b. What is appended after it
// is the record; EndRecord closes it.
func BeginRecord(b []byte) (buf []byte, at int) {
	return xdr.Reserve(b)
}

// EndRecord makes all that was appended to b since BeginRecord returned at a
// record of one fragment (RFC 5531 section 11).
func EndRecord(b []byte, at int) {
	xdr.Patch(b, at, lastFragment|uint32(len(b)-at-4))
}

// ReadRecord reads one record of at most limit bytes and joins its fragments.
// The record is appended to buf, which may be empty and have capacity to be
// used again; the bytes are returned even if there is an error, so that the
// caller keeps the buffer.
//
// The error is io.EOF if the stream ends before the record, ErrRecord if the
// record is larger than limit, else the reader's.
func ReadRecord(r io.Reader, buf []byte, limit int) ([]byte, error) {
	// The mark is read into the place of the data that follows it: a variable of
	// its own would be allocated for every record.
	buf = slices.Grow(buf, 4)
	mark := buf[len(buf) : len(buf)+4]
	if _, err := io.ReadFull(r, mark); err != nil {
		return buf, err
	}
	return JoinRecord(r, binary.BigEndian.Uint32(mark), buf, limit, heap{})
}

// Grower makes room for records.
type Grower interface {
	// Grow returns buf with room for size bytes more. more tells whether further
	// fragments follow these.
	Grow(buf []byte, size int, more bool) ([]byte, error)
}

// heap is where a record's memory comes from if nobody counts it.
type heap struct{}

func (heap) Grow(buf []byte, size int, _ bool) ([]byte, error) { return slices.Grow(buf, size), nil }

// JoinRecord is the rest of ReadRecord, after a record's first mark was read. memory
// makes the room for it.
func JoinRecord(r io.Reader, mark uint32, buf []byte, limit int, memory Grower) (_ []byte, err error) {
	start := len(buf)
	for n := 1; ; n++ {
		size, more := int(mark&^lastFragment), mark&lastFragment == 0 // section 11 of RFC 5531
		if size > limit-(len(buf)-start) {
			return buf, fmt.Errorf("%w: larger than %d bytes", ErrRecord, limit)
		}
		if more && n == maxFragments {
			return buf, fmt.Errorf("%w: more than %d fragments", ErrRecord, maxFragments)
		}
		room := size
		if more {
			room += 4 // the next mark has its place behind the data until it is looked at
		}
		if buf, err = memory.Grow(buf, room, more); err != nil {
			return buf, err
		}
		end := len(buf) + size
		if _, err := io.ReadFull(r, buf[len(buf):len(buf)+room]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return buf, err
		}
		if !more {
			return buf[:end], nil
		}
		mark = binary.BigEndian.Uint32(buf[end : end+4])
		buf = buf[:end]
	}
}
