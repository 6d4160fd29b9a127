package space

import (
	"math"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
)

// AnyRoom is for Fill: a range may take as much as it is long.
const AnyRoom = math.MaxInt64

// Fill calls do, which gives blocks to a range of the file that is open as fd, or takes some away, and settles, also
// after an error of do. The blocks of the range take at most so many bytes more than now. What the range has
// already can always be replaced, so the caller lets nobody else change the file meanwhile. The errors beside those of do
// are those of Reserve. c may be nil: then it only calls do. The caller must hold no Reservation.
//
// do may take as long as the file has extents: meanwhile the room is taken, but no lock of the account is held. Who
// finds no room then does not wait for what do leaves of it.
func (c *Charge) Fill(fd int, offset, length, most int64, do func() error) error {
	if c == nil {
		return do()
	}
	room, err := c.reserveRange(fd, offset, length, most)
	if err != nil {
		return err
	}
	room.pause()
	err = do()
	room.resume()
	defer room.Release()
	var st unix.Stat_t
	_ = c.Stat(fd, &st, false) // what can't be looked at stays as it was
	return err
}

// reserveRange reserves the room for a range. If that is only enough with the blocks that the range has, it reserves
// what it takes beside those.
func (c *Charge) reserveRange(fd int, offset, length, most int64) (Reservation, error) {
	if most <= 0 {
		return Reservation{}, nil
	}
	var st unix.Stat_t
	if err := c.Stat(fd, &st, false); err != nil {
		return Reservation{}, err
	}
	between := c.between(&st, offset&^(blockSize-1))
	long := roundUp(addSizes(offset&(blockSize-1), length))
	room, err := c.account.Reserve(Amount{bytes: addSizes(min(long, most), between)})
	if err == nil {
		return room, nil
	}
	has := allocated(fd, offset, length)
	if has == 0 {
		return Reservation{}, err
	}
	need := addSizes(min(max(long-has, 0), most), between)
	if need == 0 {
		return Reservation{}, nil
	}
	return c.account.Reserve(Amount{bytes: need})
}

// allocated returns how many bytes of a range have blocks, before the end of the file: also those that fallocate(2) has given
// to it and that nobody has written to, which lseek(2) takes for holes. It returns 0 if the file system does not tell, or
// if the range has more than some thousand extents.
func allocated(fd int, offset, length int64) (bytes int64) {
	const most = 4096
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0
	}
	end := min(addSizes(offset, length), roundUp(st.Size)) // behind it are blocks that nobody is charged for
	extents := 0
	err := disk.EachExtent(fd, offset, end, func(from, to int64) bool {
		bytes += to - from
		extents++
		return extents <= most
	})
	if err != nil || extents > most {
		return 0
	}
	return bytes
}
