package export

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lookAgain is how long after the last use the usage of a written file is read
// again. The kernel writes data back after at most 30 seconds.
const lookAgain = 40 * time.Second

// lookLate is how long after that the usage is read once more if the file had blocks
// past its end: XFS frees them within 5 minutes (speculative_prealloc_lifetime in
// Documentation/admin-guide/xfs.rst). A charge that was dropped before would leave
// them in the sum.
const lookLate = 6 * time.Minute

// charge is the account's entry for an inode in use.
type charge struct {
	account *Account
	inode   inode
	users   int       // guarded by account.mu
	file    FileID    // to read its usage again, if its data was written; guarded by account.mu
	due     time.Time // when, if nobody uses it; guarded by account.mu
	late    int64     // bytes at the last read for lookLate; guarded by account.mu

	mu    sync.Mutex
	known bool  // bytes is included in used
	gone  bool  // it has no name any more
	bytes int64 // 0 if gone
	size  int64 // of a file, when last read
	ahead bool  // the file system may free some of its blocks later

	// blocks is read-locked by calls that overwrite existing blocks without a
	// reservation, and write-locked by calls that truncate the file.
	blocks sync.RWMutex
}

// enter returns the charge of an inode, until leave.
func (a *Account) enter(i inode) *charge {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.charges[i]
	if c == nil {
		c = &charge{account: a, inode: i}
		a.charges[i] = c
	}
	c.users++
	return c
}

// enterNew is enter for an inode that the caller has just created. The error is
// ESTALE if it is already removed.
func (a *Account) enterNew(i inode, fd int) (*charge, Attr, error) {
	c := a.enter(i)
	c.mu.Lock()
	defer c.mu.Unlock()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return c, Attr{}, err
	}
	c.settle(&st, true)
	if st.Nlink == 0 {
		return c, Attr{}, unix.ESTALE
	}
	return c, attrOf(&st), nil
}

// leave releases the charge. If data was written, written is the file's ID, and
// its usage is read again later.
func (c *charge) leave(written FileID) {
	c.mu.Lock()
	gone := c.gone
	c.mu.Unlock()
	a := c.account
	a.mu.Lock()
	defer a.mu.Unlock()
	c.users--
	if !written.IsZero() {
		c.file = written
	}
	switch {
	case c.users > 0:
	case !gone && !c.file.IsZero():
		c.due = time.Now().Add(lookAgain)
	default:
		a.drop(c)
	}
}

// drop removes an unused charge. The caller holds a.mu.
func (a *Account) drop(c *charge) {
	delete(a.charges, c.inode)
	if len(a.charges) == 0 {
		a.charges = map[inode]*charge{} // a map keeps the memory of its largest size
	}
}

// stat reads the attributes of the inode and settles its charge. Without an
// account c is nil.
func (c *charge) stat(fd int, st *unix.Stat_t) error { return c.look(fd, st, false) }

// look is stat. quick is whether fstat never waits, see disk.
func (c *charge) look(fd int, st *unix.Stat_t, quick bool) error {
	if c == nil {
		return fstat(fd, st, quick)
	}
	// Read and settle in one step, or an older result could overwrite a newer one.
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := fstat(fd, st, quick); err != nil {
		return err
	}
	c.settle(st, false)
	return nil
}

// settle charges the inode's current usage. isNew is whether the caller has created
// it. The caller holds c.mu.
func (c *charge) settle(st *unix.Stat_t, isNew bool) {
	a, gone := c.account, st.Nlink == 0
	bytes, _ := a.prices.of(st)
	c.size, c.ahead = st.Size, a.prices.mayShrink(st)
	switch {
	case gone:
		c.setGone()
		return
	case !c.known || c.gone: // seen first, or the number was reused
		c.known, c.gone = true, false
		a.count(c.inode, bytes, isNew)
	case bytes != c.bytes:
		a.change(amount{bytes: bytes - c.bytes})
	}
	c.bytes = bytes
}

// setGone ends the charge for the inode. If the inode was removed before it was
// seen, there is nothing to do: the call that removed its last name has uncounted
// it, or it was removed directly on the disk. The caller holds c.mu.
func (c *charge) setGone() {
	if c.known && !c.gone {
		c.account.uncount(c.inode, c.bytes)
	}
	c.known, c.gone, c.bytes = true, true, 0
}

// takes is the inode's charged usage.
func (c *charge) takes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// end is for removed inodes whose attributes do not show it: directories of some
// file systems keep their link count.
func (c *charge) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setGone()
}

// settleDue reads the usage of files again that were written some time ago, if
// they can be opened by handle.
func (v *Volume) settleDue(now time.Time) {
	a := v.account
	if a == nil || !v.begin() {
		return
	}
	defer v.calls.Done()
	for c, file := range a.due(now) {
		if fd, err := v.openByHandle(&file, unix.O_PATH|unix.O_NOFOLLOW); err == nil {
			var st unix.Stat_t
			_ = c.stat(fd, &st) // what can't be looked at stays as it was
			_ = unix.Close(fd)  // O_PATH
		}
		a.looked(c, now)
	}
}

// due takes the charges whose usage is to be read again.
func (a *Account) due(now time.Time) map[*charge]FileID {
	a.mu.Lock()
	defer a.mu.Unlock()
	due := map[*charge]FileID{}
	for _, c := range a.charges {
		if c.users == 0 && now.After(c.due) {
			c.users++
			due[c] = c.file
		}
	}
	return due
}

// looked returns a charge taken by due. It stays while the file system may still
// free blocks of the file, and their number has changed since the last time.
func (a *Account) looked(c *charge, now time.Time) {
	c.mu.Lock()
	ahead, bytes := c.ahead && !c.gone, c.bytes
	c.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	switch c.users--; {
	case c.users > 0:
	case ahead && c.late != bytes:
		c.late, c.due = bytes, now.Add(lookLate)
	default:
		a.drop(c)
	}
}
