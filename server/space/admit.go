package space

import (
	"errors"
	"math"

	"golang.org/x/sys/unix"
)

// Write writes to the file of the charge, which is open as fd: all of p, or as much as
// there is space for, with EDQUOT, or with EAGAIN while the free space is unknown. Blocks
// that the file already has can always be overwritten. Write sets st to the attributes
// afterwards, which settle the charge. c may be nil: then it only writes and reads the
// attributes. The caller must hold no Reservation.
func (c *Charge) Write(fd int, p []byte, offset int64, st *unix.Stat_t) (int, error) {
	if err := checkRange(offset, len(p)); err != nil {
		return 0, errors.Join(err, c.Stat(fd, st, false))
	}
	if c == nil || len(p) == 0 {
		return c.put(fd, p, offset, st)
	}
	a := c.account
	start := offset &^ (blockSize - 1)
	// All blocks of the range, and of the gap between the end of the file and the
	// range: XFS may have preallocated them, and writes can come in any order.
	reserved := Amount{bytes: addSizes(blocksOf(offset, len(p)), c.gap(start))}
	a.writing.RLock()
	if a.claim(reserved) {
		n, err := c.put(fd, p, offset, st)
		a.taken.add(Amount{}.minus(reserved))
		a.writing.RUnlock()
		return n, err
	}
	a.writing.RUnlock()
	return c.writeFull(fd, p, offset, st)
}

// writeFull is Write if there may be too little space: over blocks that the file has, which nobody may cut
// away meanwhile, or alone. It waits for who cuts the file before it takes the account's lock: that may take long.
func (c *Charge) writeFull(fd int, p []byte, offset int64, st *unix.Stat_t) (int, error) {
	c.blocks.RLock()
	defer c.blocks.RUnlock()
	a := c.account
	a.writing.RLock()
	n, has, err := c.overwriteLocked(fd, p, offset, st)
	a.writing.RUnlock()
	if has {
		return n, err
	}
	return c.writeAloneLocked(fd, p, offset, st)
}

// writeAloneLocked is writeFull while no other call has a reservation.
//
// +checklocksread:c.blocks
func (c *Charge) writeAloneLocked(fd int, p []byte, offset int64, st *unix.Stat_t) (int, error) {
	a := c.account
	a.writing.Lock()
	defer a.writing.Unlock()
	if n, has, err := c.overwriteLocked(fd, p, offset, st); has {
		return n, err
	}
	if err := c.Stat(fd, st, false); err != nil {
		return 0, err
	}
	start := offset &^ (blockSize - 1)
	need := blocksOf(offset, len(p))
	between := c.between(st, start)
	wanted := Amount{bytes: addSizes(need, between)}
	room := a.roomLocked(wanted).bytes - between
	var over error
	if room < need {
		over = a.fullLocked(wanted)
		fits := max(room, 0) &^ (blockSize - 1) // what fits ends with a block
		p = p[:max(start-offset+fits, 0)]
	}
	n, err := c.put(fd, p, offset, st)
	return n, errors.Join(err, over)
}

// put writes and settles.
func (c *Charge) put(fd int, p []byte, offset int64, st *unix.Stat_t) (int, error) {
	n, err := pwrite(fd, p, offset)
	return n, errors.Join(err, c.Stat(fd, st, false))
}

// overwriteLocked writes if the file has blocks for all of p; otherwise done is false.
//
// +checklocksread:c.blocks
func (c *Charge) overwriteLocked(fd int, p []byte, offset int64, st *unix.Stat_t) (n int, done bool, err error) {
	if !hasBlocks(fd, offset, len(p)) {
		return 0, false, nil
	}
	n, err = c.put(fd, p, offset, st)
	return n, true, err
}

// Resize calls do, which sets the size of the file that is open as fd, and settles. A larger
// size uses the preallocated blocks. The errors beside those of do are those of Reserve. c may be
// nil: then it only calls do. The caller must hold no Reservation.
func (c *Charge) Resize(fd int, size int64, do func() error) error {
	if c == nil {
		return do()
	}
	c.blocks.Lock()
	defer c.blocks.Unlock()
	var st unix.Stat_t
	if err := c.Stat(fd, &st, false); err != nil {
		return err
	}
	if ahead := c.between(&st, size); ahead > 0 {
		room, err := c.account.Reserve(Amount{bytes: ahead})
		if err != nil {
			return err
		}
		defer room.Release()
	}
	err := do()
	_ = c.Stat(fd, &st, false) // what can't be looked at stays as it was
	return err
}

// gap is the number of bytes between the last known end of the file and a write after
// it.
func (c *Charge) gap(start int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(start-roundUp(c.size), 0)
}

// between is how much of the gap is allocated but not charged.
func (c *Charge) between(st *unix.Stat_t, start int64) int64 {
	_, ahead := c.account.prices.of(st)
	return min(max(start-roundUp(st.Size), 0), ahead)
}

// checkRange returns EFBIG if a range ends past the largest size of a file, and
// EINVAL if it begins before the file.
func checkRange(offset int64, n int) error {
	switch {
	case offset < 0:
		return unix.EINVAL
	case offset > math.MaxInt64-int64(n):
		return unix.EFBIG
	}
	return nil
}

// blocksOf returns the size of the blocks of a range, in bytes. A range is short,
// whatever its offset.
func blocksOf(offset int64, n int) int64 {
	return roundUp(offset&(blockSize-1) + int64(n))
}

// hasBlocks reports whether all of a range of a file has blocks. It moves the offset of
// the descriptor, which nothing else uses.
func hasBlocks(fd int, offset int64, n int) bool {
	hole, err := unix.Seek(fd, offset, unix.SEEK_HOLE)
	return err == nil && hole-offset >= int64(n) || allocated(fd, offset, int64(n)) == int64(n)
}

// pwrite writes all of p, or less with an error.
func pwrite(fd int, p []byte, offset int64) (int, error) {
	done := 0
	for done < len(p) {
		n, err := unix.Pwrite(fd, p[done:], offset+int64(done))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n <= 0 || err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}
