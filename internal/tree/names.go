package tree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// belowMax is how many bytes of names of subdirectories a Walker holds. A directory gets half of what those above it have
// left, so that a Walker needs to come back only in directories with thousands of them, in any usual tree.
const belowMax = 128 << 10

// below has the names of subdirectories that are still to be entered, each with a 0 after it.
type below []byte

func (b *below) add(name string) { *b = append(append(*b, name...), 0) }

// next removes the last name. There must be one.
func (b *below) next() string {
	names := (*b)[:len(*b)-1]
	start := bytes.LastIndexByte(names, 0) + 1
	name := string(names[start:])
	if *b = names[:start]; start == 0 {
		*b = nil // its memory, too
	}
	return name
}

// direntsAtOnce is how many bytes of a directory are read at a time: some 200 names.
const direntsAtOnce = 8 << 10

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
	e.Name, _, _ = bytes.Cut(b[nameAt:e.Size], []byte{0})
	return e
}

// getdents reads entries of a directory. A directory that was removed has none.
func getdents(dir *os.File, buf []byte) (int, error) {
	for {
		n, err := unix.Getdents(int(dir.Fd()), buf)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOENT):
			return 0, nil
		default:
			return max(n, 0), err
		}
	}
}
