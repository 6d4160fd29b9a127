package locate

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"sync"
	"sync/atomic"

	"github.com/podnas/podnas/server/disk"
)

// A file handle is, in this order:
//
//	1 byte   version
//	1 byte   n
//	8 bytes  the volume's number
//	n bytes  which file of the volume: a FileID
//	0-3      zeros, so that the whole is a multiple of 4: not every XDR decoder
//	         passes over padding
//	8 bytes  MAC over all before
//
// It is independent of devices, mounts and processes, so it is the same after a
// restart, a rename, and a move of the disk to another machine. The MAC prevents
// that clients forge handles of guessed inodes or of other volumes.
const (
	handleVersion = 1
	handleHeader  = 1 + 1 + 8
	handleMAC     = 8

	// HandleMax is NFS3_FHSIZE, RFC 1813 section 2.4, in bytes.
	HandleMax = 64
)

// A handle has room for every FileID, and for no longer one.
var _ = [1]struct{}{}[HandleMax-handleHeader-handleMAC-disk.FileIDMax]

// ErrBadHandle means that a handle was not made with this key.
var ErrBadHandle = errors.New("file handle was not made here")

// Key makes and checks handles. Its methods may be called concurrently.
type Key struct {
	macs sync.Pool // of *mac
	// proved caches handles with a valid MAC: comparing a handle takes a quarter of
	// the time of computing its MAC, which matters for small calls. The MAC is also
	// the index.
	proved [provedMax]atomic.Pointer[proof]
}

// provedMax is a power of 2.
const provedMax = 1024

type proof struct {
	n     int
	bytes [HandleMax]byte
}

// mac is a keyed hash and the memory of its sum.
type mac struct {
	hash.Hash
	sum [sha256.Size]byte
}

// NewKey returns the Key of a disk's secret, and takes ownership of it.
func NewKey(secret []byte) *Key {
	return &Key{macs: sync.Pool{New: func() any { return &mac{Hash: hmac.New(sha256.New, secret)} }}}
}

// Handle returns the handle of a file of a volume.
func (k *Key) Handle(volume uint64, file disk.FileID) []byte {
	return k.AppendHandle(make([]byte, 0, HandleMax), volume, file)
}

// AppendHandle appends the handle of a file of a volume.
func (k *Key) AppendHandle(b []byte, volume uint64, file disk.FileID) []byte {
	start := len(b)
	id := file.Bytes()
	b = append(b, handleVersion, byte(len(id)))
	b = binary.BigEndian.AppendUint64(b, volume)
	b = append(b, id...)
	for (len(b)-start)%4 != 0 {
		b = append(b, 0)
	}
	m := k.mac(b[start:])
	defer k.macs.Put(m)
	return append(b, m.sum[:handleMAC]...)
}

// Parse parses and verifies a handle. The error is ErrBadHandle.
func (k *Key) Parse(handle []byte) (volume uint64, file disk.FileID, err error) {
	end := len(handle) - handleMAC
	if end <= handleHeader || len(handle) > HandleMax || handle[0] != handleVersion {
		return 0, disk.FileID{}, ErrBadHandle
	}
	slot := &k.proved[binary.BigEndian.Uint64(handle[end:])%provedMax]
	if p := slot.Load(); p == nil || !hmac.Equal(handle, p.bytes[:p.n]) {
		if !k.proves(handle[:end], handle[end:]) {
			return 0, disk.FileID{}, ErrBadHandle
		}
		p = &proof{n: len(handle)}
		copy(p.bytes[:], handle)
		slot.Store(p)
	}
	return binary.BigEndian.Uint64(handle[2:]), IDIn(handle), nil
}

// IDIn returns the file in a handle that has a valid MAC, or was just made: the length in it
// fits.
func IDIn(handle []byte) disk.FileID {
	n := int(handle[1])
	return disk.NewFileID(handle[handleHeader : handleHeader+n])
}

// proves reports whether the bytes before a MAC were made with the key.
func (k *Key) proves(b, of []byte) bool {
	m := k.mac(b)
	defer k.macs.Put(m)
	return hmac.Equal(of, m.sum[:handleMAC])
}

// mac hashes b. The caller returns the result to the pool.
func (k *Key) mac(b []byte) *mac {
	m := k.macs.Get().(*mac)
	m.Reset()
	m.Write(b)
	m.Sum(m.sum[:0])
	return m
}

// VolumeIn returns the volume's number in an unverified handle. It determines whose share
// of the server a call uses until the handle is verified.
func VolumeIn(handle []byte) uint64 {
	if len(handle) < handleHeader {
		return 0
	}
	return binary.BigEndian.Uint64(handle[2:])
}
