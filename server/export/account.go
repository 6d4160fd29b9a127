package export

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Account counts what a volume uses and keeps it below a limit, where the disk has
// no project quotas to do so: every byte passes through the server.
//
// It holds the sum of what each inode of the volume takes on the disk,
// st_blocks of stat(2). Whoever changes an inode holds its charge meanwhile, and
// each look at the attributes settles the charge: what the inode takes now,
// against what it took when last looked at. So nothing is computed from what a
// call meant to do, and holes, hard links and files that shrink need no rules of
// their own:
//
//   - A hole takes no blocks. A write is let in by the room its range could take
//     (charge.write), and charged by what it took.
//   - An inode is charged once, whatever names it has, and no more when the last
//     is gone, though somebody may have it open.
//   - ext4 and btrfs count delayed allocation in st_blocks at once. What comes
//     later (the blocks that hold a file's map) is found by one more look, some
//     time after the last write.
//   - XFS allocates ahead of a file that grows, past its end, and takes that back
//     when the file is closed or some minutes later. What is more than aheadMax
//     past the end is not charged: it is not the user's data. It becomes that when
//     something is written behind it.
//   - Copy on write allocates new blocks before it frees the old ones; both are
//     the one file's, so a look after the write sees the sum as it stays.
//     Extents that files share are charged to each.
type Account struct {
	limit      atomic.Int64 // bytes
	inodeLimit atomic.Int64 // 0: none
	used       atomic.Int64 // bytes
	inodes     atomic.Int64
	reserved   atomic.Int64 // by writes under way, bytes

	// writing is held by each write until it is charged, shared; alone by who
	// finds no room, so that nothing is refused for what others have reserved.
	writing sync.RWMutex
	// naming is held by who makes and takes names until what is behind them is
	// charged, shared; alone by the scan at its end: what it has seen being made must
	// not be taken for something newer.
	naming sync.RWMutex

	mu      sync.Mutex
	charges map[inode]*charge // in use, or to be looked at once more
	// counted is the inodes that are in used, while the scan at the start goes
	// on; after it, nil: all are.
	counted inodeSet
	again   atomic.Bool // the scan has to look at all once more
}

// inode tells a file from all others of its volume. On an overlay the number
// alone does not: files and directories have devices of their own.
type inode struct{ device, number uint64 }

func inodeOf(st *unix.Stat_t) inode { return inode{st.Dev, st.Ino} }

const (
	// aheadMax is how much past its end a file is charged for, in bytes: the
	// blocks that hold its map and its attributes are less.
	aheadMax = 128 << 10
	// blockSize is what space is allocated in, in bytes, on every file system
	// that matters here.
	blockSize = 4096
	// lookAgain is how long after the last use a file that was written is looked
	// at once more. The kernel writes back after 30 seconds at the latest.
	lookAgain = 40 * time.Second
)

// Limit is what a volume may use.
type Limit struct {
	Bytes  int64
	Inodes int64 // 0: as many as there is room for
}

// NewAccount makes the account of a volume that is about to be exported.
func NewAccount(limit Limit) *Account {
	a := &Account{charges: map[inode]*charge{}, counted: inodeSet{}}
	a.SetLimit(limit)
	return a
}

// SetLimit sets the limit. Below what is used it lets nothing more in.
func (a *Account) SetLimit(limit Limit) {
	a.limit.Store(max(limit.Bytes, 0))
	a.inodeLimit.Store(max(limit.Inodes, 0))
}

// Usage is what a volume uses.
type Usage struct {
	Bytes, Inodes int64
	Limit         Limit
	Complete      bool // else the count of what was there before goes on
}

// Usage tells what the volume uses.
func (a *Account) Usage() Usage {
	a.mu.Lock()
	complete := a.counted == nil
	a.mu.Unlock()
	return Usage{
		Bytes:    a.used.Load(),
		Inodes:   a.inodes.Load(),
		Limit:    Limit{Bytes: a.limit.Load(), Inodes: a.inodeLimit.Load()},
		Complete: complete,
	}
}

// charge is what the account has of an inode.
type charge struct {
	account *Account
	inode   inode
	users   int       // guarded by account.mu
	file    FileID    // to look at it once more, if its data was written; guarded by account.mu
	due     time.Time // when, if nobody uses it; guarded by account.mu

	mu    sync.Mutex
	known bool  // bytes is what used has of the inode
	gone  bool  // its last name is
	bytes int64 // 0 if gone
	size  int64 // of a file, at the last look
	// assumed: at first sight the inode was taken for counted, with first bytes.
	// Who made it knows better.
	assumed bool
	first   int64
	changed bool // used was, after the first sight

	// names is held, of a directory, while a name in it is made or taken: what
	// has the name must not be another before it is looked at.
	names sync.Mutex
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
		c.account.naming.RLock()
		c.names.Lock()
		return func() {
			c.names.Unlock()
			c.account.naming.RUnlock()
		}
	case c.inode.number > other.inode.number || c.inode.number == other.inode.number && c.inode.device > other.inode.device:
		c, other = other, c
	}
	c.account.naming.RLock()
	c.names.Lock()
	other.names.Lock()
	return func() {
		other.names.Unlock()
		c.names.Unlock()
		c.account.naming.RUnlock()
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

// enterNew takes the charge of an inode that the caller has just made. Another
// call may have found it before: it has taken it for counted. ESTALE if it is gone
// again.
func (a *Account) enterNew(i inode, fd int) (*charge, Attr, error) {
	c := a.enter(i)
	c.mu.Lock()
	defer c.mu.Unlock()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return c, Attr{}, err
	}
	c.settle(charged(&st), st.Nlink == 0)
	c.size = st.Size
	if c.assumed {
		c.assumed = false
		a.used.Add(c.first)
		a.inodes.Add(1)
	}
	if st.Nlink == 0 {
		return c, Attr{}, unix.ESTALE
	}
	return c, attrOf(&st), nil
}

// count notes that an inode is counted from now on.
func (a *Account) count(i inode) counting {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.counted == nil {
		return scanned
	}
	if !a.counted.add(i) {
		return countedBefore
	}
	return countedNow
}

// counting is how an inode comes to be in the account.
type counting int

const (
	scanned       counting = iota // at the latest by the scan, which has ended; but it may be new
	countedBefore                 // while the scan goes on
	countedNow                    // it was not yet
)

// leave gives the charge back. If the inode's data was written through the file
// that is given, it is looked at once more. One that has changed stays for that
// time: who made the inode may not have been here yet. Nobody comes for one that is
// gone: who made it has held the directory's names until then.
func (c *charge) leave(written FileID) {
	c.mu.Lock()
	stays := c.changed && !c.gone
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
	case stays:
		c.due = time.Now().Add(lookAgain)
	default:
		delete(a.charges, c.inode)
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
	c.settle(charged(st), st.Nlink == 0)
	c.size = st.Size
	return nil
}

// settle charges what the inode takes now. The caller holds c.mu.
func (c *charge) settle(bytes int64, gone bool) {
	a := c.account
	if !c.known || c.gone && !gone { // at first sight, or the number is used again
		c.known, c.gone, c.assumed, c.bytes = true, false, false, bytes
		switch a.count(c.inode) {
		case countedNow:
			a.used.Add(bytes)
			a.inodes.Add(1)
		case scanned:
			if gone { // who took its last name has charged for that, and left
				c.gone, c.bytes = true, 0
				break
			}
			c.assumed, c.first = true, bytes
		}
	}
	if gone {
		bytes = 0
		if !c.gone {
			c.gone, c.changed = true, true
			a.inodes.Add(-1)
			a.mu.Lock()
			a.counted.remove(c.inode) // the number may be used again
			a.mu.Unlock()
		}
	}
	if bytes != c.bytes {
		a.used.Add(bytes - c.bytes)
		c.bytes, c.changed = bytes, true
	}
}

// end says that an inode is gone of which no attributes can tell: directories of
// some file systems keep their link.
func (c *charge) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle(0, true)
}

// charged is what an inode is charged for, in bytes.
func charged(st *unix.Stat_t) int64 {
	bytes := st.Blocks * 512
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		bytes = min(bytes, roundUp(st.Size)+aheadMax)
	}
	return bytes
}

func roundUp(bytes int64) int64 { return (bytes + blockSize - 1) &^ (blockSize - 1) }

// limitTo makes of the room on the disk the room in the volume: the smaller of
// both is free.
func (a *Account) limitTo(room *Statfs) {
	u := a.Usage()
	free := uint64(max(u.Limit.Bytes-max(u.Bytes, 0), 0))
	room.Size = uint64(u.Limit.Bytes)
	room.Free, room.Available = min(room.Free, free), min(room.Available, free)
	used := uint64(max(u.Inodes, 0))
	if u.Limit.Inodes == 0 {
		room.Files = used + room.FreeFiles
		return
	}
	room.Files = uint64(u.Limit.Inodes)
	room.FreeFiles = min(room.FreeFiles, room.Files-min(used, room.Files))
}

// settleDue looks once more at files that were written some time ago, where they
// can be opened by handle, and forgets what was changed then.
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
		a.forget(c)
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

// forget gives back a charge that due has taken.
func (a *Account) forget(c *charge) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.users--; c.users > 0 {
		return
	}
	delete(a.charges, c.inode)
	if len(a.charges) == 0 {
		a.charges = map[inode]*charge{} // a map keeps the memory of its largest size
	}
}
