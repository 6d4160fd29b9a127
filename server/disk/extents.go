package disk

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FS_IOC_FIEMAP and struct fiemap, Documentation/filesystems/fiemap.rst.
const (
	fiemapIoctl   = 0xc020660b
	fiemapHead    = 32
	fiemapExtent  = 56
	fiemapExtents = 64 // asked for at once
	fiemapSync    = 1
	fiemapLast    = 1
)

type fiemap [fiemapHead + fiemapExtents*fiemapExtent]byte

func (m *fiemap) ask(fd int, flags uint32, from, to int64) (extents int, err error) {
	clear(m[:fiemapHead])
	word := binary.NativeEndian
	word.PutUint64(m[0:], uint64(from))
	word.PutUint64(m[8:], uint64(to-from))
	word.PutUint32(m[16:], flags)
	word.PutUint32(m[24:], fiemapExtents)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), fiemapIoctl, uintptr(unsafe.Pointer(m))); errno != 0 {
		return 0, errno
	}
	return min(int(word.Uint32(m[20:])), fiemapExtents), nil
}

// EachExtent calls each with the extents of a range of a file, in their order and cut to the range, until it returns
// false. The error is that of a file system that does not tell.
func EachExtent(fd int, offset, end int64, each func(from, to int64) bool) error {
	var m fiemap
	word := binary.NativeEndian
	for offset < end {
		n, err := m.ask(fd, 0, offset, end)
		if err != nil || n == 0 {
			return err
		}
		began := offset
		for i := range n {
			e := m[fiemapHead+i*fiemapExtent:]
			from := int64(word.Uint64(e))
			to := from + min(int64(word.Uint64(e[16:])), end-from)
			if from = max(from, offset); to > from {
				if !each(from, to) {
					return nil
				}
				offset = to
			}
			if word.Uint32(e[40:])&fiemapLast != 0 {
				return nil
			}
		}
		if offset == began {
			return nil
		}
	}
	return nil
}

// WriteOut has the dirty data of a file written to its blocks, where the file system can tell its extents. It is no
// fsync(2), and no error of the data is lost by it.
func WriteOut(fd int) {
	var m fiemap
	_, _ = m.ask(fd, fiemapSync, 0, 1)
}
