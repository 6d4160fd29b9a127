package disk

import (
	"bytes"
	"encoding/binary"
)

// Dirent is struct linux_dirent64, getdents64(2).
type Dirent struct {
	Ino  uint64
	Size int
	Kind byte
	Name []byte
}

// DirentIn returns the first entry in what getdents64(2) has read.
func DirentIn(b []byte) Dirent {
	const kindAt, nameAt = 18, 19
	e := Dirent{Ino: binary.NativeEndian.Uint64(b), Size: int(binary.NativeEndian.Uint16(b[16:])), Kind: b[kindAt]}
	e.Name = b[nameAt:e.Size]
	if end := bytes.IndexByte(e.Name, 0); end >= 0 {
		e.Name = e.Name[:end]
	}
	return e
}
