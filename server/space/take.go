package space

import "golang.org/x/sys/unix"

// Taking is the removal of a name from an inode. The zero Taking changes nothing.
type Taking struct {
	charge *Charge // nil: it can't be looked at, and stays charged as it is
	fd     int
	isDir  bool
	held   bool // the charge is the caller's
	last   bool // it is the inode's last name: fd is none, charge.mu is locked, and the account's links read-locked
}

// Take begins to take a name from the inode that is open as fd, which must stay open
// until Done. The caller has locked the names of the directory with the name.
func (a *Account) Take(fd int) Taking {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Taking{}
	}
	c := a.Enter(InodeOf(&st))
	_ = c.Stat(fd, &st) // so that the inode is charged, if no call has seen it before
	return Taking{charge: c, fd: fd, isDir: isDir(&st)}
}

// TakeLast is Take by the name, with one system call, if that is the inode's only one; else ok is false, and
// there is nothing to end. It takes none if known, which is asked first, knows that it is the only one, and returns the
// inode's charge, which the caller holds until Done. Until then Link gives no inode another name, and nobody
// else looks at the charge: as soon as the name is gone, another inode may have the number. So the caller must not use
// the charge, nor wait for who does.
func (a *Account) TakeLast(dir int, name string, known func() *Charge) (t Taking, i Inode, ok bool) {
	a.links.RLock()
	if c := known(); c != nil {
		c.mu.Lock()
		return Taking{charge: c, last: true, held: true}, c.inode, true
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Nlink != 1 && !isDir(&st) {
		a.links.RUnlock()
		return Taking{}, Inode{}, false
	}
	i = InodeOf(&st)
	c := a.Enter(i)
	c.mu.Lock()
	if !c.known || c.gone {
		c.settle(&st, false)
	}
	return Taking{charge: c, last: true}, i, true
}

// Link calls do, which gives an inode another name. a may be nil: then it only does that. No lock that is
// taken between TakeLast and Done may be held.
func (a *Account) Link(do func() error) error {
	if a != nil {
		a.links.Lock()
		defer a.links.Unlock()
	}
	return do()
}

func isDir(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

// Take is Account.Take for a file, no directory, whose charge the caller holds until Done.
func (c *Charge) Take(fd int) Taking { return Taking{charge: c, fd: fd, held: true} }

// Renamed says that the name is taken for what is called name in dir. If that is
// the very same inode, rename(2) does nothing.
func (t *Taking) Renamed(dir int, name string) {
	var st unix.Stat_t
	if t.isDir && unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && InodeOf(&st) == t.charge.inode {
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
	case t.last:
		if err == nil {
			c.setGone()
		}
		c.mu.Unlock()
		c.account.links.RUnlock()
	case err == nil && t.isDir: // it had one name, whatever its link count says
		c.end()
	default:
		var st unix.Stat_t
		_ = c.Stat(t.fd, &st) // what can't be looked at stays as it was
	}
	if !t.held {
		c.Leave("")
	}
}
