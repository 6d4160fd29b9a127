package export

import (
	"errors"

	"golang.org/x/sys/unix"
)

// write writes to the file of the charge: all of p, or what there is room for, with
// EDQUOT. What has blocks already may be written whatever the room. It tells the
// attributes after it, which settle the charge.
func (c *charge) write(fd int, p []byte, offset int64, st *unix.Stat_t) (int, error) {
	if c == nil {
		n, err := pwrite(fd, p, offset)
		return n, errors.Join(err, unix.Fstat(fd, st))
	}
	a := c.account
	start := offset &^ (blockSize - 1)
	need := roundUp(offset+int64(len(p))) - start
	a.writing.RLock()
	reserved := need + c.gap(start)
	if a.used.Load()+a.reserved.Add(reserved) <= a.limit.Load() || hasBlocks(fd, offset, len(p)) {
		n, err := pwrite(fd, p, offset)
		err = errors.Join(err, c.stat(fd, st))
		a.reserved.Add(-reserved)
		a.writing.RUnlock()
		return n, err
	}
	a.reserved.Add(-reserved)
	a.writing.RUnlock()

	// Alone, and exactly.
	a.writing.Lock()
	defer a.writing.Unlock()
	if err := c.stat(fd, st); err != nil {
		return 0, err
	}
	ahead := st.Blocks*512 - charged(st)
	room := a.limit.Load() - a.used.Load() - min(c.gap(start), ahead)
	var over error
	if room < need && !hasBlocks(fd, offset, len(p)) {
		over = unix.EDQUOT
		fits := max(room, 0) &^ (blockSize - 1) // what fits ends with a block
		p = p[:max(start+fits-offset, 0)]
	}
	n, err := pwrite(fd, p, offset)
	return n, errors.Join(err, over, c.stat(fd, st))
}

// gap is how much lies between the end of the file and a write behind it, in bytes.
// It is charged for with the write as far as it has blocks: XFS may have allocated
// them ahead, and writes can come in any order.
func (c *charge) gap(start int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(start-roundUp(c.size), 0)
}

// hasBlocks tells whether a range of a file has no hole. It moves the offset of
// the descriptor, which nobody else uses.
func hasBlocks(fd int, offset int64, n int) bool {
	hole, err := unix.Seek(fd, offset, unix.SEEK_HOLE)
	return err == nil && hole >= offset+int64(n)
}

// room is EDQUOT if nothing more can be made: an inode and its name take a block
// each at most, as a rule.
func (a *Account) room() error {
	if a == nil {
		return nil
	}
	if a.used.Load()+a.reserved.Load()+2*blockSize <= a.limit.Load() {
		return nil
	}
	a.writing.Lock()
	defer a.writing.Unlock()
	if a.used.Load()+2*blockSize <= a.limit.Load() {
		return nil
	}
	return unix.EDQUOT
}

// HasRoom tells whether the disk has room for n bytes for who is not root: ext4
// keeps the last blocks from others. The disk is asked anew when a sixteenth of the
// room has been used, so it can be wrong by what others have written meanwhile.
func (v *Volume) HasRoom(n int) bool {
	if v.credit.Add(-int64(n)) >= 0 {
		return true
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(v.root.Fd()), &st); err != nil {
		return false
	}
	credit := int64(st.Bavail) * st.Bsize / 16
	if credit < 4<<20 { // near the end the kernel is to say
		return false
	}
	v.credit.Store(credit)
	return true
}

// pwrite writes all of p, or less with an error.
func pwrite(fd int, p []byte, offset int64) (int, error) { return full(unix.Pwrite, fd, p, offset) }

// pread reads until p is full or the file ends.
func pread(fd int, p []byte, offset int64) (int, error) { return full(unix.Pread, fd, p, offset) }

func full(call func(int, []byte, int64) (int, error), fd int, p []byte, offset int64) (int, error) {
	done := 0
	for done < len(p) {
		n, err := call(fd, p[done:], offset+int64(done))
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
