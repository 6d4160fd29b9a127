package space

import (
	"container/list"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
)

// LookAfter is how long after the last use the usage of a written file is read
// again. The kernel writes data back after at most 30 seconds.
const LookAfter = 40 * time.Second

// lookLate is how long after that the usage is read once more if the file had blocks
// past its end: XFS frees them within 5 minutes (speculative_prealloc_lifetime in
// Documentation/admin-guide/xfs.rst). A charge that was dropped before would leave
// them in the sum.
const lookLate = 6 * time.Minute

// Charge is the account's entry for an inode in use, from Enter or EnterNew to Leave.
type Charge struct {
	account *Account
	inode   disk.Inode

	// The account's mu guards these.
	users   int
	file    string        // ID to read its usage again, if its data was written
	due     time.Time     // when, if it waits
	waits   *list.List    // the account's soon or late; nil: it does not wait
	waiting *list.Element // in there
	late    int64         // bytes at the last read for lookLate

	mu sync.Mutex
	// +checklocks:mu
	known bool // bytes is included in used
	// +checklocks:mu
	gone bool // it has no name any more
	// +checklocks:mu
	bytes int64 // 0 if gone
	// +checklocks:mu
	size int64 // of a file, when last read
	// +checklocks:mu
	ahead bool // the file system may free some of its blocks later
	// +checklocks:mu
	xattrs int64 // what its extended attributes cost beside its blocks, if xattrsKnown
	// +checklocks:mu
	xattrsKnown bool

	// blocks is read-locked by calls that overwrite existing blocks without a
	// Reservation, and write-locked by calls that truncate the file.
	blocks sync.RWMutex
}

// Enter returns the charge of an inode, until Leave.
func (a *Account) Enter(i disk.Inode) *Charge {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.charges[i]
	if c == nil {
		c = &Charge{account: a, inode: i}
		a.charges[i] = c
	}
	a.useLocked(c)
	return c
}

// useLocked is a use of a charge, which then does not wait to be looked at.
//
// +checklocks:a.mu
func (a *Account) useLocked(c *Charge) {
	if c.waits != nil {
		c.waits.Remove(c.waiting)
		c.waits, c.waiting = nil, nil
	}
	c.users++
}

// waitLocked has an unused charge wait in a list until it is looked at again.
//
// +checklocks:a.mu
func (a *Account) waitLocked(c *Charge, in *list.List, until time.Time) {
	c.due, c.waits, c.waiting = until, in, in.PushBack(c)
}

// EnterNew is Enter for an inode that the caller has just created, in a directory whose
// names it has locked, with a Reservation of ForNew. It is open as fd, and st are its attributes since then.
func (a *Account) EnterNew(fd int, st *unix.Stat_t) *Charge {
	c := a.Enter(disk.InodeOf(st))
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || c.gone { // else others have read its attributes, maybe later
		c.settleLocked(st, true, inodeAt{fd: fd})
	}
	return c
}

// Leave releases the charge, which the caller must not use any more. If data was written,
// written is the file's ID, and LookAgain reads its usage again later; else it is "".
func (c *Charge) Leave(written string) {
	c.mu.Lock()
	gone := c.gone
	c.mu.Unlock()
	a := c.account
	a.mu.Lock()
	defer a.mu.Unlock()
	c.users--
	if written != "" {
		c.file = written
	}
	switch {
	case c.users > 0:
	case !gone && c.file != "":
		a.waitLocked(c, &a.soon, time.Now().Add(LookAfter))
	default:
		a.dropLocked(c)
	}
}

// dropLocked removes an unused charge.
//
// +checklocks:a.mu
func (a *Account) dropLocked(c *Charge) {
	delete(a.charges, c.inode)
	if len(a.charges) == 0 {
		a.charges = map[disk.Inode]*Charge{} // a map keeps the memory of its largest size
	}
}

// Stat reads the attributes of the inode, which is open as fd, and settles its charge.
// c may be nil: then it only reads them. quick is whether fstat(2) never waits, because the attributes of
// what is open are in memory.
func (c *Charge) Stat(fd int, st *unix.Stat_t, quick bool) error {
	if c == nil {
		return disk.Fstat(fd, st, quick)
	}
	// Read and settle in one step, or an older result could overwrite a newer one.
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := disk.Fstat(fd, st, quick); err != nil {
		return err
	}
	c.settleLocked(st, false, inodeAt{fd: fd})
	return nil
}

// settleLocked charges the inode's current usage. isNew is whether the caller has created
// it; at is where the inode is found.
//
// +checklocks:c.mu
func (c *Charge) settleLocked(st *unix.Stat_t, isNew bool, at inodeAt) {
	a, gone := c.account, st.Nlink == 0
	bytes, ahead := a.prices.of(st)
	c.size, c.ahead = st.Size, a.prices.mayShrink(st)
	if gone {
		c.setGoneLocked()
		return
	}
	if c.gone { // the number was reused
		c.xattrsKnown = false
	}
	bytes = addSizes(bytes, c.xattrsLocked(st, ahead, at))
	switch {
	case !c.known || c.gone: // seen first, or the number was reused
		c.known, c.gone = true, false
		a.count(c.inode, bytes, isNew)
	case bytes != c.bytes:
		a.change(Amount{bytes: bytes - c.bytes})
	}
	c.bytes = bytes
}

// setGoneLocked ends the charge for the inode. If the inode was removed before it was
// seen, there is nothing to do: the call that removed its last name has uncounted
// it, or it was removed directly on the disk.
//
// +checklocks:c.mu
func (c *Charge) setGoneLocked() {
	if c.known && !c.gone {
		c.account.uncount(c.inode, c.bytes)
	}
	c.known, c.gone, c.bytes = true, true, 0
}

// takes is the inode's charged usage.
func (c *Charge) takes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// end is for removed inodes whose attributes do not show it: directories of some
// file systems keep their link count.
func (c *Charge) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setGoneLocked()
}

// LookAgain reads the usage of files again that were written some time ago. open opens a
// file with O_PATH by the ID that Leave was given, calls look, and closes it; if it can't open
// the file, the usage stays as it was. Call LookAgain every few seconds.
func (a *Account) LookAgain(now time.Time, open func(id string, look func(fd int))) {
	for due := a.due(now); len(due) > 0; due = a.due(now) {
		for _, d := range due {
			open(d.file, func(fd int) {
				var st unix.Stat_t
				_ = d.charge.Stat(fd, &st, false) // what can't be looked at stays as it was
			})
			a.looked(d.charge, now)
		}
	}
}

// dueMost is how many charges are taken while the account is locked: its calls wait meanwhile.
const dueMost = 100

// dueCharge is a charge that is to be looked at again, with its file.
type dueCharge struct {
	charge *Charge
	file   string
}

// due takes some of the charges whose usage is to be read again. If it returns none, there is none.
func (a *Account) due(now time.Time) (due []dueCharge) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, in := range [...]*list.List{&a.soon, &a.late} {
		for len(due) < dueMost && in.Len() > 0 {
			c := in.Front().Value.(*Charge)
			if !now.After(c.due) {
				break
			}
			a.useLocked(c)
			due = append(due, dueCharge{c, c.file})
		}
	}
	return due
}

// looked returns a charge taken by due. It stays while the file system may still
// free blocks of the file, and their number has changed since the last time.
func (a *Account) looked(c *Charge, now time.Time) {
	c.mu.Lock()
	ahead, bytes := c.ahead && !c.gone, c.bytes
	c.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	switch c.users--; {
	case c.users > 0:
	case ahead && c.late != bytes:
		c.late = bytes
		a.waitLocked(c, &a.late, now.Add(lookLate))
	default:
		a.dropLocked(c)
	}
}

// Taking is the removal of a name from an inode. The zero Taking changes nothing.
type Taking struct {
	charge *Charge // nil: it can't be looked at, and stays charged as it is
	fd     int
	isDir  bool
	held   bool // the charge is the caller's
}

// Take begins to take a name from the inode that is open as fd, which must stay open
// until Done. The caller has locked the names of the directory with the name.
func (a *Account) Take(fd int) Taking {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Taking{}
	}
	c := a.Enter(disk.InodeOf(&st))
	c.mu.Lock()
	if !c.known || c.gone { // no call has seen the inode before, so that it is not charged
		c.settleLocked(&st, false, inodeAt{fd: fd})
	}
	c.mu.Unlock()
	return Taking{charge: c, fd: fd, isDir: isDir(&st)}
}

func isDir(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

// Take is Account.Take for a file, no directory, whose charge the caller holds until Done.
func (c *Charge) Take(fd int) Taking { return Taking{charge: c, fd: fd, held: true} }

// Renamed says that the name is taken for what is called name in dir. If that is
// the very same inode, rename(2) does nothing.
func (t *Taking) Renamed(dir int, name string) {
	var st unix.Stat_t
	if t.isDir && unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && disk.InodeOf(&st) == t.charge.inode {
		t.isDir = false
	}
}

// Done ends the Taking. err is the result of the system call that removes the name.
func (t *Taking) Done(err error) {
	c := t.charge
	if c == nil {
		return
	}
	switch {
	case err == nil && t.isDir: // it had one name, whatever its link count says
		c.end()
	default:
		var st unix.Stat_t
		_ = c.Stat(t.fd, &st, false) // what can't be looked at stays as it was
	}
	if !t.held {
		c.Leave("")
	}
}
