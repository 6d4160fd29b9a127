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

// dirent is struct linux_dirent64, getdents64(2).
type dirent struct {
	name string
	next int64 // the offset after it
	size int
}

// firstDirent returns the first entry in what getdents64(2) has read.
func firstDirent(b []byte) dirent {
	const nextAt, sizeAt, nameAt = 8, 16, 19
	d := dirent{next: int64(binary.NativeEndian.Uint64(b[nextAt:])), size: int(binary.NativeEndian.Uint16(b[sizeAt:]))}
	name, _, _ := bytes.Cut(b[nameAt:d.size], []byte{0})
	d.name = string(name)
	return d
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
