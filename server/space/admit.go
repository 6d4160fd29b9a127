package space

import (
	"errors"
	"math"
	"sync/atomic"

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

// nameRoom is the space that a name can take in a directory, in bytes: a block, and one
// for the directory's index. If it takes more, that is charged afterwards.
const nameRoom = 2 * blockSize

// ForName is what to reserve for a new name of an existing file.
func ForName() Amount { return Amount{bytes: nameRoom} }

// ForNew is what to reserve for a new file and its name: the file usually takes at most a
// block. a may be nil.
func (a *Account) ForNew() Amount {
	if a == nil {
		return Amount{}
	}
	return Amount{nameRoom + a.prices.Inode, 1}
}

// Reservation is the space that a running call may take. It is released when the call's
// change is charged.
type Reservation struct {
	account *Account // nil: nothing is counted
	amount  Amount
	alone   bool // no one else has one
}

// Release returns the reservation. Call it once. The zero Reservation has nothing to return.
// Not checked: Reserve has locked writing, one way or the other.
//
// +checklocksignore
func (r Reservation) Release() {
	if r.account == nil {
		return
	}
	r.account.taken.add(Amount{}.minus(r.amount))
	if r.alone {
		r.account.writing.Unlock()
	} else {
		r.account.writing.RUnlock()
	}
}

// pause has others reserve, and find no room, while the change of the reservation is under way. What is reserved stays
// taken. Only resume may follow. Not checked, as Release.
//
// +checklocksignore
func (r *Reservation) pause() {
	if r.account == nil {
		return
	}
	if r.alone {
		r.account.writing.Unlock()
	} else {
		r.account.writing.RUnlock()
	}
}

// resume ends pause. It waits for who writes alone, not for anybody's change that takes long. Not checked, as Release.
//
// +checklocksignore
func (r *Reservation) resume() {
	if r.account != nil {
		r.account.writing.RLock()
		r.alone = false
	}
}

// claim adds n to taken if it fits below the ceiling.
func (a *Account) claim(n Amount) bool {
	if !raise(&a.taken.bytes, n.bytes, a.ceiling.bytes.Load()) {
		return false
	}
	if n.inodes == 0 || raise(&a.taken.inodes, n.inodes, a.ceiling.inodes.Load()) {
		return true
	}
	a.taken.bytes.Add(-n.bytes)
	return false
}

// raise adds n to a sum unless that would exceed most. It can't overflow: n is not
// negative.
func raise(sum *atomic.Int64, n, most int64) bool {
	for {
		s := sum.Load()
		if s > most || n > most-max(s, 0) {
			return false
		}
		if sum.CompareAndSwap(s, s+n) {
			return true
		}
	}
}

// Reserve reserves space, until Release. It returns EDQUOT if there is too little, EAGAIN
// if that is unknown until the volume's scan ends. The caller must hold no other
// Reservation. a may be nil: then there is space.
// Not checked: it returns with writing locked.
//
// +checklocksignore
func (a *Account) Reserve(n Amount) (Reservation, error) {
	if a == nil {
		return Reservation{}, nil
	}
	a.writing.RLock()
	if a.claim(n) {
		return Reservation{a, n, false}, nil
	}
	a.writing.RUnlock()
	// Alone, so that nothing is refused because of others' reservations.
	a.writing.Lock()
	if err := a.admitLocked(n); err != nil {
		a.writing.Unlock()
		return Reservation{}, err
	}
	a.taken.add(n)
	return Reservation{a, n, true}, nil
}

// admitLocked checks whether n fits.
//
// +checklocks:a.writing
func (a *Account) admitLocked(n Amount) error {
	room := a.roomLocked(n)
	if n.bytes <= room.bytes && n.inodes <= room.inodes {
		return nil
	}
	return a.fullLocked(n)
}

// fullLocked returns why n does not fit.
//
// +checklocks:a.writing
func (a *Account) fullLocked(n Amount) error {
	most, used := a.most(), a.used.load()
	if a.scanning() && n.bytes <= most.bytes-used.bytes && n.inodes <= most.inodes-used.inodes {
		return unix.EAGAIN
	}
	return unix.EDQUOT
}

// roomLocked returns the free space, at most wanted, and raises the mark for it. It is not
// negative.
//
// +checklocks:a.writing
func (a *Account) roomLocked(wanted Amount) Amount {
	most, taken := a.most(), a.taken.load()
	room := Amount{max(most.bytes-max(taken.bytes, 0), 0), max(most.inodes-max(taken.inodes, 0), 0)}
	room = Amount{min(room.bytes, wanted.bytes), min(room.inodes, wanted.inodes)}
	a.moveMarkLocked(Amount{taken.bytes + room.bytes, taken.inodes + room.inodes})
	return room
}

// renameSlack is how much directories may grow by renames without free space, in bytes:
// writing a new file and giving it the old one's name must work in a full volume, even
// if the name is new, and only the kernel knows which rename makes its directory
// grow.
const renameSlack = 128 << 10

// Rename calls do, which gives an existing file a name in a directory. If replaces is
// set, the name exists, and so the directory does not grow. settle charges the
// directory's growth. The caller has locked the directory's names, and must hold no
// Reservation. a and dir may be nil: then Rename only calls do. The errors beside those of do are
// those of Reserve.
func (a *Account) Rename(dir *Charge, replaces bool, settle func(), do func() error) error {
	if a == nil || dir == nil || replaces {
		return do()
	}
	room, err := a.Reserve(ForName())
	if err == nil {
		defer room.Release()
		a.overdrawn.Store(0)
		return do()
	}
	if !errors.Is(err, unix.EDQUOT) {
		return err
	}
	a.writing.Lock()
	defer a.writing.Unlock()
	if a.overdrawn.Load() >= renameSlack {
		return err
	}
	before := dir.takes()
	if err := do(); err != nil {
		return err
	}
	settle()
	a.overdrawn.Add(max(dir.takes()-before, 0))
	return nil
}
