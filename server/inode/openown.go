package inode

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
)

// openOwn opens a file of the only user, which is open as path, although its mode does not let its
// owner. A client that has made a file may write it whatever its mode, and the server does not see
// opens; names in a directory may be changed by who may not read it; and what has just been made
// without a right for anybody is synced. Root needs no right for any of these. Another owner gets it
// by the mode, for a moment, of which there is a record: modes.go.
func (o *Opener) openOwn(v *exports.Volume, id disk.FileID, path int, use Use) (d disk.Descriptor, err error) {
	m := &o.modes
	m.mu.Lock()
	defer m.mu.Unlock()
	// A file has one record at a time: of two that a kill leaves, one would take what the other has added for the mode.
	if r, ok := m.left[fileKey{v.ID, id}]; ok {
		if err := o.undoLocked(v, path, r); err != nil {
			return disk.Descriptor{}, err
		}
	}
	attr, err := look(v, path, nil)
	switch {
	case err != nil:
		return disk.Descriptor{}, err
	case m.dir == nil || attr.UID != o.table.Only.UID:
		return disk.Descriptor{}, unix.EACCES
	}
	wants := uint32(unix.S_IRUSR)
	if use == UseWrite {
		wants |= unix.S_IWUSR
	}
	r := modeRecord{fileKey{v.ID, id}, attr.Mode & allModes, wants &^ attr.Mode}
	if r.added == 0 {
		return disk.Reopen(path, use.flags())
	}
	if err := m.recordLocked(r); err != nil {
		return disk.Descriptor{}, err
	}
	m.did("recorded")
	err = o.changeInside(v, func() error { // the mode is as before at the end
		d, err = o.openWidened(v, path, use, r)
		return err
	}, &id)
	return d, err
}

// openWidened opens a file for use while it has the bits of a record, which is on the disk. The caller has locked
// modes.mu. Not checked: checklocks can't follow it into change.
//
// +checklocksignore
func (o *Opener) openWidened(v *exports.Volume, path int, use Use, r modeRecord) (disk.Descriptor, error) {
	m := &o.modes
	if err := unix.Chmod(disk.ProcPath(path), r.mode|r.added); err != nil {
		return disk.Descriptor{}, errors.Join(err, m.dropLocked(r))
	}
	m.did("widened")
	d, err := disk.Reopen(path, use.flags())
	if undone := errors.Join(m.narrow(path, r), m.settle(v, path)); undone != nil {
		m.leaveLocked(r) // to the next process
		d.Close()
		return disk.Descriptor{}, undone
	}
	m.did("narrowed")
	if undone := m.dropLocked(r); undone != nil {
		m.leaveLocked(r)
	}
	m.did("dropped")
	return d, err
}
