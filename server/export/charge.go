package export

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lookAgain is how long after the last use a file that was written is looked at once
// more. The kernel writes back after 30 seconds at the latest.
const lookAgain = 40 * time.Second

// lookLate is how long after that look a file is looked at again that had blocks past
// its end: XFS takes them back within 5 minutes (speculative_prealloc_lifetime in
// Documentation/admin-guide/xfs.rst). A charge that was forgotten before would leave
// them in the sum.
const lookLate = 6 * time.Minute

// charge is what the account has of an inode that is in use.
type charge struct {
	account *Account
	inode   inode
	users   int       // guarded by account.mu
	file    FileID    // to look at it once more, if its data was written; guarded by account.mu
	due     time.Time // when, if nobody uses it; guarded by account.mu
	late    int64     // bytes at the last look, if it was made to find them less; guarded by account.mu

	mu    sync.Mutex
	known bool  // bytes is what used has of the inode
	gone  bool  // its last name is
	bytes int64 // 0 if gone
	size  int64 // of a file, at the last look
	ahead bool  // it had blocks then that it may lose by itself

	// names is held, of a directory, while a name in it is made or taken: what
	// has the name must not be another before it is looked at.
	names sync.Mutex
	// blocks is held by who writes where the file has blocks already, and so without
	// room for more, shared; alone by who cuts the file.
	blocks sync.RWMutex
}

// lockNames locks the names of one directory, or of two in the order of their
// numbers. What it returns unlocks them. Either may be nil.
func lockNames(c, other *charge) (unlock func()) {
	if c == other || c == nil {
		c, other = other, nil
	}
	switch {
	case c == nil:
		return func() {}
	case other == nil:
		c.names.Lock()
		return c.names.Unlock
	case c.inode.number > other.inode.number || c.inode.number == other.inode.number && c.inode.device > other.inode.device:
		c, other = other, c
	}
	c.names.Lock()
	other.names.Lock()
	return func() {
		other.names.Unlock()
		c.names.Unlock()
	}
}

// enter takes the charge of an inode.
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

// enterNew takes the charge of an inode that the caller has just made. ESTALE if it
// is gone again.
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

// leave gives the charge back. If the inode's data was written through the file
// that is given, it is looked at once more.
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

// drop forgets a charge that nobody uses. The caller holds a.mu.
func (a *Account) drop(c *charge) {
	delete(a.charges, c.inode)
	if len(a.charges) == 0 {
		a.charges = map[inode]*charge{} // a map keeps the memory of its largest size
	}
}

// stat tells the attributes of the inode and settles its charge. Nobody counts
// if c is nil.
func (c *charge) stat(fd int, st *unix.Stat_t) error { return c.look(fd, st, false) }

// look is stat. quick: to look does not wait, see disk.
func (c *charge) look(fd int, st *unix.Stat_t, quick bool) error {
	if c == nil {
		return fstat(fd, st, quick)
	}
	// The look and the sum are one step, or of two the older could win.
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := fstat(fd, st, quick); err != nil {
		return err
	}
	c.settle(st, false)
	return nil
}

// settle charges what the inode takes now. isNew: the caller has made it. The caller
// holds c.mu.
func (c *charge) settle(st *unix.Stat_t, isNew bool) {
	a, gone := c.account, st.Nlink == 0
	bytes, _ := a.prices.of(st)
	c.size, c.ahead = st.Size, a.prices.mayShrink(st)
	switch {
	case gone:
		c.setGone()
		return
	case !c.known || c.gone: // at first sight, or the number is used again
		c.known, c.gone = true, false
		a.count(c.inode, bytes, isNew)
	case bytes != c.bytes:
		a.change(amount{bytes: bytes - c.bytes})
	}
	c.bytes = bytes
}

// setGone charges no more for the inode. What is gone at first sight has been taken
// off by who took its last name, or that was done by hand and is not for a client to
// be credited with. The caller holds c.mu.
func (c *charge) setGone() {
	if c.known && !c.gone {
		c.account.uncount(c.inode, c.bytes)
	}
	c.known, c.gone, c.bytes = true, true, 0
}

// takes is what the inode is charged for.
func (c *charge) takes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// end says that an inode is gone of which no attributes can tell: directories of
// some file systems keep their link.
func (c *charge) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setGone()
}

// settleDue looks once more at files that were written some time ago, where they
// can be opened by handle.
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

// due takes the charges that are to be looked at once more.
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

// looked gives back a charge that due has taken. It is kept while the file still has
// blocks that it may lose, and has not had as many at the last such look.
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
