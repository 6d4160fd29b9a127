package inode

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/snapshot"
)

// openOwn opens a file of the only user, which is open as path, although its mode does not let its
// owner. A client that has made a file may write it whatever its mode, and the server does not see
// opens; names in a directory may be changed by who may not read it; and what has just been made
// without a right for anybody is synced. Root needs no right for any of these. Another owner gets it
// by the mode, for a moment, of which there is a record: modes.go.
func (o *Opener) openOwn(v *exports.Volume, id disk.FileID, path int, use Use) (d disk.Descriptor, err error) {
	wants := uint32(unix.S_IRUSR)
	if use == UseWrite {
		wants |= unix.S_IWUSR
	}
	err = o.widened(v, id, path, wants, func() (err error) {
		d, err = disk.Reopen(path, use.flags())
		return err
	})
	if err != nil {
		d.Close()
	}
	return d, err
}

// readOwn returns how snapshots of a volume read files of the only user that their owner may not read.
func (o *Opener) readOwn(v *exports.Volume) *snapshot.Own {
	return &snapshot.Own{
		Still: func(do func()) {
			o.modes.mu.Lock()
			defer o.modes.mu.Unlock()
			do()
		},
		Read: func(id disk.FileID, path int, do func() error) error {
			return o.widened(v, id, path, unix.S_IRUSR|unix.S_IXUSR, do)
		},
	}
}

// widened calls do while the mode of a file of the only user gives its owner the rights that are wanted, that to search it if it
// is a directory.
func (o *Opener) widened(v *exports.Volume, id disk.FileID, path int, wants uint32, do func() error) error {
	m := &o.modes
	m.mu.Lock()
	defer m.mu.Unlock()
	// A file has one record at a time: of two that a kill leaves, one would take what the other has added for the mode.
	if r, ok := m.left[fileKey{v.ID, id}]; ok {
		if err := o.undoLocked(v, path, r); err != nil {
			return err
		}
	}
	attr, err := look(v, path, nil)
	switch {
	case err != nil:
		return err
	case m.dir == nil || attr.UID != o.table.Only.UID:
		return unix.EACCES
	case !attr.IsDir():
		wants &^= unix.S_IXUSR
	}
	r := modeRecord{fileKey{v.ID, id}, attr.Mode & allModes, wants &^ attr.Mode}
	if r.added == 0 {
		return do()
	}
	if err := m.recordLocked(r); err != nil {
		return err
	}
	m.did("recorded")
	return o.changeInside(v, func() error { return o.whileWide(v, path, r, do) }, &id) // the mode is as before at the end
}

// whileWide calls do while a file has the bits of a record, which is on the disk. The caller has locked
// modes.mu. Not checked: checklocks can't follow it into change.
//
// +checklocksignore
func (o *Opener) whileWide(v *exports.Volume, path int, r modeRecord, do func() error) error {
	m := &o.modes
	if err := unix.Chmod(disk.ProcPath(path), r.mode|r.added); err != nil {
		return errors.Join(err, m.dropLocked(r))
	}
	m.did("widened")
	err := do()
	if undone := errors.Join(m.narrow(path, r), m.settle(v, path)); undone != nil {
		m.leaveLocked(r) // to the next process
		return undone
	}
	m.did("narrowed")
	if undone := m.dropLocked(r); undone != nil {
		m.leaveLocked(r)
	}
	m.did("dropped")
	return err
}
