package disk

import (
	"bytes"
	"encoding/binary"
)

// Dirent is struct linux_dirent64, getdents64(2).
type Dirent struct {
	Ino  uint64
	Next int64 // the offset after it
	Size int
	Kind byte
	Name []byte
}

// DirentIn returns the first entry in what getdents64(2) has read.
func DirentIn(b []byte) Dirent {
	const nextAt, sizeAt, kindAt, nameAt = 8, 16, 18, 19
	e := Dirent{
		Ino: binary.NativeEndian.Uint64(b), Next: int64(binary.NativeEndian.Uint64(b[nextAt:])),
		Size: int(binary.NativeEndian.Uint16(b[sizeAt:])), Kind: b[kindAt],
	}
	e.Name = b[nameAt:e.Size]
	if end := bytes.IndexByte(e.Name, 0); end >= 0 {
		e.Name = e.Name[:end]
	}
	return e
}
