package export

import "golang.org/x/sys/unix"

// victim is a file that is about to lose a name. If that is its last name, its
// cached descriptors must be closed to free its space, and its charge ends.
type victim struct {
	dir    *File
	id     FileID    // zero: nothing there, or nothing that could be open
	kept   *openFile // of the file, nil: none
	fd     int       // -1, or opened to look at it
	taking taking
}

func (f *File) victim(name string) victim {
	v := victim{dir: f, fd: -1}
	id, err := identifyByHandle(f.fd, name)
	if err != nil {
		return v
	}
	v.id = id
	a := f.Volume.account
	if a == nil {
		return v
	}
	if v.kept = f.opener.files.get(fileKey{f.Volume, id}, UseAttr); v.kept != nil && v.kept.charge != nil {
		v.taking = taking{charge: v.kept.charge, fd: v.kept.fd, kept: true}
	} else {
		v.fd, err = unix.Openat(f.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == nil {
			v.taking = a.take(v.fd)
		}
	}
	return v
}

// taken ends it. err is the result of removing the name.
func (v *victim) taken(err error) error {
	files := v.dir.opener.files
	v.taking.done(err)
	if v.fd >= 0 {
		_ = unix.Close(v.fd) // O_PATH
	}
	if err == nil {
		files.drop(v.dir.Volume, v.id)
	}
	if v.kept != nil {
		files.release(v.kept)
	}
	return err
}

// taking is the charge of an inode that is about to lose a name.
type taking struct {
	charge *charge // nil: it can't be looked at, and stays charged as it is
	fd     int
	isDir  bool
	kept   bool // the charge is a kept file's
}

// take begins it. fd stays the caller's, and open until done.
func (a *Account) take(fd int) taking {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return taking{}
	}
	c := a.enter(inodeOf(&st))
	_ = c.stat(fd, &st) // from what it is charged, if it was not looked at before
	return taking{charge: c, fd: fd, isDir: st.Mode&unix.S_IFMT == unix.S_IFDIR}
}

// renamed says that the name is taken for what is called name in dir. If that is
// the very same inode, rename(2) does nothing.
func (t *taking) renamed(dir int, name string) {
	var st unix.Stat_t
	if t.isDir && unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && inodeOf(&st) == t.charge.inode {
		t.isDir = false
	}
}

// done ends it. err is what came of taking the name.
func (t *taking) done(err error) {
	c := t.charge
	if c == nil {
		return
	}
	if t.isDir && err == nil {
		c.end() // it had one name, whatever its link count says
	} else {
		var st unix.Stat_t
		_ = c.stat(t.fd, &st) // what can't be looked at stays as it was
	}
	if !t.kept {
		c.leave(FileID{})
	}
}
