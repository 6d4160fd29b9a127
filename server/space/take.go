package space

import (
	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
)

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
