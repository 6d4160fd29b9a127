package space

import "golang.org/x/sys/unix"

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
	c := a.Enter(InodeOf(&st))
	_ = c.Stat(fd, &st) // so that the inode is charged, if no call has seen it before
	return Taking{charge: c, fd: fd, isDir: st.Mode&unix.S_IFMT == unix.S_IFDIR}
}

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
	if t.isDir && err == nil {
		c.end() // it had one name, whatever its link count says
	} else {
		var st unix.Stat_t
		_ = c.Stat(t.fd, &st) // what can't be looked at stays as it was
	}
	if !t.held {
		c.Leave("")
	}
}
