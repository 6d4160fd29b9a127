package export

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/space"
)

// changeNames calls do, which changes the names of the directory, and of other if that
// is not nil. If the server counts it locks their names and settles their charges: a
// name's file must not change before it is charged. do gets the directory's charge.
func (d *Dir) changeNames(other *Dir, do func(*space.Charge) error) error {
	if d.volume.account == nil {
		return do(nil)
	}
	c, err := d.hold()
	if err != nil {
		return err
	}
	defer d.settle(c)
	var o *space.Charge
	if other != nil {
		if o, err = other.hold(); err != nil {
			return err
		}
		defer other.settle(o)
	}
	unlock, err := d.lockNames(other)
	if err != nil {
		return err
	}
	defer unlock()
	return do(c)
}

// lockNames locks the names of the directory, and of other if that is not nil.
func (d *Dir) lockNames(other *Dir) (unlock func(), err error) {
	if other == nil {
		other = d
	}
	id, err := d.Identify("")
	if err != nil {
		return nil, err
	}
	otherID, err := other.Identify("")
	if err != nil {
		return nil, err
	}
	directories := &d.volume.directories
	mine, others := directories.enter(id), directories.enter(otherID)
	locked := lockNames(mine, others)
	return func() {
		locked.Unlock()
		directories.leave(mine)
		directories.leave(others)
	}, nil
}

// hold returns the directory's charge, until settle.
func (d *Dir) hold() (*space.Charge, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &st); err != nil {
		return nil, err
	}
	c := d.volume.account.Enter(space.InodeOf(&st))
	err := c.Stat(int(d.Fd()), &st) // so that only the change is charged
	return c, err
}

// settle settles and releases it.
func (d *Dir) settle(c *space.Charge) {
	d.look(c)
	c.Leave("")
}

// look settles it.
func (d *Dir) look(c *space.Charge) {
	var st unix.Stat_t
	_ = c.Stat(int(d.Fd()), &st) // what can't be looked at stays as it was
}

// reserve is Account.Reserve, but it waits instead of returning EAGAIN, because go-nfs
// can't tell a client to retry.
func (d *Dir) reserve(n space.Amount) (space.Reservation, error) {
	for {
		room, err := d.volume.account.Reserve(n)
		if err == nil || !d.volume.await(err) {
			return room, err
		}
	}
}

// makeName calls do, which creates a name, and charges its file.
func (d *Dir) makeName(name string, do func() error) error {
	a := d.volume.account
	return d.changeNames(nil, func(*space.Charge) error {
		room, err := d.reserve(a.ForNew())
		if err != nil {
			if _, taken := d.Lstat(name); taken != nil {
				return err
			}
		}
		defer room.Release()
		if err := do(); err != nil || a == nil {
			return err
		}
		made, err := openEntry(int(d.Fd()), name)
		if err != nil {
			return err
		}
		defer made.close()
		var st unix.Stat_t
		if err := unix.Fstat(made.fd(), &st); err != nil {
			return err
		}
		c, err := a.EnterNew(space.InodeOf(&st), made.fd(), &st)
		c.Leave("")
		return err
	})
}

// takeName calls do, which removes a name, and ends the charge for its file if
// that was its last name.
func (d *Dir) takeName(name string, do func() error) error {
	return d.changeNames(nil, func(*space.Charge) error {
		return d.taking(name, nil, "", do)
	})
}

// giveName calls do, which renames or links fromName in the directory from to
// name, and ends the charge for the file that it replaced.
func (d *Dir) giveName(name string, from *Dir, fromName string, do func() error) error {
	a := d.volume.account
	return d.changeNames(from, func(c *space.Charge) error {
		if a == nil {
			return do()
		}
		_, notThere := d.Lstat(name)
		replace := func() error { return d.taking(name, from, fromName, do) }
		for {
			err := a.Rename(c, notThere == nil, func() { d.look(c) }, replace)
			if !d.volume.await(err) {
				return err
			}
		}
	})
}

// taking calls do, which removes a name from the file that has it, and ends the file's charge if
// that was its last name. If do gives the name to another file, from and fromName are where that
// file was.
func (d *Dir) taking(name string, from *Dir, fromName string, do func() error) error {
	a := d.volume.account
	if a == nil {
		return do()
	}
	has, err := openEntry(int(d.Fd()), name)
	if err != nil {
		return do() // there is no file with the name
	}
	defer has.close()
	t := a.Take(has.fd())
	if from != nil {
		t.Renamed(int(from.Fd()), fromName)
	}
	err = do()
	t.Done(err)
	return err
}

// DirFile is a regular file opened by a Dir, which must stay open longer.
type DirFile struct {
	*os.File
	dir    *Dir
	charge *space.Charge // where the server counts
}

// charged gets the charge of a file. isNew is whether this call has created it.
func (d *Dir) charged(f *os.File, isNew bool) (*DirFile, error) {
	file := &DirFile{File: f, dir: d}
	a := d.volume.account
	if a == nil {
		return file, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if isNew {
		var err error
		if file.charge, err = a.EnterNew(space.InodeOf(&st), int(f.Fd()), &st); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	} else {
		file.charge = a.Enter(space.InodeOf(&st))
	}
	err := file.settle()
	return file, err
}

func (f *DirFile) settle() error {
	if f.charge == nil {
		return nil
	}
	var st unix.Stat_t
	return f.charge.Stat(int(f.Fd()), &st)
}

// Write writes at the position that Seek has set.
func (f *DirFile) Write(p []byte) (int, error) {
	if f.charge == nil {
		return f.File.Write(p)
	}
	offset, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	done := 0
	for {
		var st unix.Stat_t
		n, err := f.charge.Write(int(f.Fd()), p[done:], offset+int64(done), &st)
		if done += n; !f.dir.volume.await(err) { // go-nfs can't tell a client to retry, see Dir.reserve
			_, seekErr := f.Seek(offset+int64(done), io.SeekStart)
			return done, errors.Join(err, seekErr)
		}
	}
}

// Truncate sets the size.
func (f *DirFile) Truncate(size int64) error {
	for {
		err := f.charge.Resize(int(f.Fd()), size, func() error { return f.File.Truncate(size) })
		if !f.dir.volume.await(err) {
			return err
		}
	}
}

// Close closes the file; some file systems then free its preallocated blocks.
func (f *DirFile) Close() error {
	err := f.File.Close()
	if c := f.charge; c != nil {
		f.charge = nil
		c.LookAt(int(f.dir.Fd()), f.Name())
		c.Leave("")
	}
	return err
}
