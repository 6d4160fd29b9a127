package space

import (
	"encoding/binary"
	"math"
	"unsafe"

	"golang.org/x/sys/unix"
)

// AnyRoom is for Fill: a range may take as much as it is long.
const AnyRoom = math.MaxInt64

// Fill calls do, which gives blocks to a range of the file that is open as fd, or takes some away, and settles, also
// after an error of do. The blocks of the range take at most so many bytes more than now. What the range has
// already can always be replaced. The errors beside those of do are those of Reserve. c may be nil: then it only calls do. The
// caller must hold no Reservation.
func (c *Charge) Fill(fd int, offset, length, most int64, do func() error) error {
	if c == nil {
		return do()
	}
	room, has, err := c.reserveRange(fd, offset, length, most)
	if err != nil {
		return err
	}
	defer room.Release()
	// No call may rely on blocks that the range has now: a hole may come in their place.
	c.blocks.Lock()
	defer c.blocks.Unlock()
	if has > 0 && allocated(fd, offset, length) < has { // cut away since
		return unix.EDQUOT
	}
	err = do()
	var st unix.Stat_t
	_ = c.Stat(fd, &st) // what can't be looked at stays as it was
	return err
}

// reserveRange reserves the room for a range. If that is only enough with the blocks that the range has, it returns how
// much those are.
func (c *Charge) reserveRange(fd int, offset, length, most int64) (room Reservation, has int64, err error) {
	if most <= 0 {
		return Reservation{}, 0, nil
	}
	var st unix.Stat_t
	if err := c.Stat(fd, &st); err != nil {
		return Reservation{}, 0, err
	}
	between := c.between(&st, offset&^(blockSize-1))
	long := roundUp(addSizes(offset&(blockSize-1), length))
	room, err = c.account.Reserve(Amount{bytes: addSizes(min(long, most), between)})
	if err == nil {
		return room, 0, nil
	}
	if has = allocated(fd, offset, length); has == 0 {
		return Reservation{}, 0, err
	}
	need := addSizes(min(max(long-has, 0), most), between)
	if need == 0 {
		return Reservation{}, has, nil
	}
	room, err = c.account.Reserve(Amount{bytes: need})
	return room, has, err
}

// allocated returns how many bytes of a range have blocks, before the end of the file: also those that fallocate(2) has given
// to it and that nobody has written to, which lseek(2) takes for holes. It returns 0 if the file system does not tell, or
// if the range has more than some thousand extents.
func allocated(fd int, offset, length int64) (bytes int64) {
	// FS_IOC_FIEMAP and struct fiemap, Documentation/filesystems/fiemap.rst.
	const (
		ioctl      = 0xc020660b
		head, each = 32, 56
		extents    = 64
		rounds     = 64
		last       = 1
	)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0
	}
	end := min(addSizes(offset, length), roundUp(st.Size)) // behind it are blocks that nobody is charged for
	if offset >= end {
		return 0
	}
	var buf [head + extents*each]byte
	word := binary.NativeEndian
	for range rounds {
		clear(buf[:head])
		word.PutUint64(buf[0:], uint64(offset))
		word.PutUint64(buf[8:], uint64(end-offset))
		word.PutUint32(buf[24:], extents)
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), ioctl, uintptr(unsafe.Pointer(&buf))); errno != 0 {
			return 0
		}
		n := int(word.Uint32(buf[20:]))
		for i := range min(n, extents) {
			e := buf[head+i*each:]
			from, size := int64(word.Uint64(e)), int64(word.Uint64(e[16:]))
			to := min(addSizes(from, size), end)
			if from = max(from, offset); to > from {
				bytes += to - from
				offset = to
			}
			if word.Uint32(e[40:])&last != 0 {
				return bytes
			}
		}
		if n == 0 || offset >= end {
			return bytes
		}
	}
	return 0
}
