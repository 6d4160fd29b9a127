package export

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
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
// It says nothing of devices, mounts or processes, so it is the same after a
// restart, a rename, and a move of the disk to another machine. The MAC keeps
// clients from making up handles: of inodes they guess, or of other volumes.
const (
	handleVersion = 1
	handleHeader  = 1 + 1 + 8
	handleMAC     = 8

	// HandleMax is NFS3_FHSIZE, RFC 1813 section 2.4, in bytes.
	HandleMax = 64
	// FileIDMax is what is left for a FileID when the rest has its place.
	FileIDMax = HandleMax - handleHeader - handleMAC
)

// FileID names a file within its file system for as long as it lives, wherever
// it is moved; no later file has the same. It can be compared and used as a key.
type FileID string

// ErrBadHandle means that a handle was not made with this key.
var ErrBadHandle = errors.New("file handle was not made here")

// Key makes and checks handles. Its methods may be called concurrently.
type Key struct{ secret []byte }

// NewKey takes the disk's secret, which the Key owns from then on.
func NewKey(secret []byte) *Key { return &Key{secret: secret} }

// Handle makes the handle of a file of a volume.
func (k *Key) Handle(volume uint64, file FileID) []byte {
	h := make([]byte, 0, HandleMax)
	h = append(h, handleVersion, byte(len(file)))
	h = binary.BigEndian.AppendUint64(h, volume)
	h = append(h, file...)
	for len(h)%4 != 0 {
		h = append(h, 0)
	}
	return append(h, k.mac(h)...)
}

// Parse takes a handle apart. The error is ErrBadHandle.
func (k *Key) Parse(handle []byte) (volume uint64, file FileID, err error) {
	end := len(handle) - handleMAC
	if end <= handleHeader || len(handle) > HandleMax || handle[0] != handleVersion {
		return 0, "", ErrBadHandle
	}
	if !hmac.Equal(handle[end:], k.mac(handle[:end])) {
		return 0, "", ErrBadHandle
	}
	// What has the MAC was made by Handle, so n fits.
	n := int(handle[1])
	return binary.BigEndian.Uint64(handle[2:]), FileID(handle[handleHeader : handleHeader+n]), nil
}

func (k *Key) mac(b []byte) []byte {
	m := hmac.New(sha256.New, k.secret)
	m.Write(b)
	return m.Sum(nil)[:handleMAC]
}
