// Package xfs is what is needed of the file system XFS beyond files: its superblock, mounts, and the ioctls for its size.
package xfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

// Label is the label of podnas's file systems.
const Label = "podnas"

// ErrNone means that there is no XFS.
var ErrNone = errors.New("it contains no XFS")

// Superblock is the beginning of a file system.
type Superblock struct {
	Label  string
	Size   int64  // of the file system, in bytes
	Sector uint32 // the least that is written at once
	Making bool   // mkfs.xfs has not ended
}

// SuperblockSize is how much DecodeSuperblock needs.
const SuperblockSize = 512

// ReadSuperblock reads the superblock of a file. Its error is ErrNone if there is none.
func ReadSuperblock(r io.ReaderAt) (Superblock, error) {
	var b [SuperblockSize]byte
	if _, err := r.ReadAt(b[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return Superblock{}, err
	}
	return DecodeSuperblock(b[:])
}

// DecodeSuperblock decodes a superblock. The offsets are those of struct xfs_dsb.
func DecodeSuperblock(b []byte) (Superblock, error) {
	if len(b) < SuperblockSize || string(b[:4]) != "XFSB" {
		return Superblock{}, ErrNone
	}
	return Superblock{
		Label:  string(bytes.TrimRight(b[108:120], "\x00")),
		Size:   int64(binary.BigEndian.Uint32(b[4:])) * int64(binary.BigEndian.Uint64(b[8:])),
		Sector: uint32(binary.BigEndian.Uint16(b[102:])),
		Making: b[126] != 0,
	}, nil
}
