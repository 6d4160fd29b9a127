package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/podnas/podnas/nfs/xdr"
)

// ErrRecord is an invalid or too large record. The start of the next record is
// unknown, so the connection must end.
var ErrRecord = errors.New("rpc: bad record")

const (
	lastFragment = 1 << 31

	// A record may have any number of fragments, even empty ones, so their
	// number needs a limit, too. 1 MiB of data in this many is 256 bytes each;
	// no client sends smaller ones.
	maxFragments = 4096
)

// BeginRecord appends space for a record's mark to b. The caller appends the
// record and calls EndRecord.
func BeginRecord(b []byte) (buf []byte, at int) {
	return xdr.Reserve(b)
}

// EndRecord makes everything appended to b since BeginRecord returned at a
// record of one fragment (RFC 5531 section 11).
func EndRecord(b []byte, at int) {
	xdr.Patch(b, at, lastFragment|uint32(len(b)-at-4))
}

// ReadRecord reads one record of at most limit bytes and joins its fragments.
// It appends the record to buf, which may be empty with capacity from an earlier
// use, and returns the bytes even with an error, so that the caller keeps the
// buffer.
//
// The error is io.EOF if the stream ends before the record, ErrRecord if the
// record is larger than limit, else the reader's.
func ReadRecord(r io.Reader, buf []byte, limit int) ([]byte, error) {
	// The mark is read to where the data after it will be: a variable of its own
	// would be allocated for every record.
	buf = slices.Grow(buf, 4)
	mark := buf[len(buf) : len(buf)+4]
	if _, err := io.ReadFull(r, mark); err != nil {
		return buf, err
	}
	return JoinRecord(r, binary.BigEndian.Uint32(mark), buf, limit, heap{})
}

// Grower allocates memory for records.
type Grower interface {
	// Grow returns buf with capacity for size more bytes. more is whether
	// further fragments follow these.
	Grow(buf []byte, size int, more bool) ([]byte, error)
}

// heap allocates a record's memory without accounting.
type heap struct{}

func (heap) Grow(buf []byte, size int, _ bool) ([]byte, error) { return slices.Grow(buf, size), nil }

// JoinRecord is the rest of ReadRecord, after the record's first mark. memory
// allocates.
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
			room += 4 // the next mark is read to behind the data
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
