package inode

import (
	"errors"
	"syscall"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/snapshot"
)

// errUnchanged means that it is certain that a call has changed nothing.
var errUnchanged = errors.New("nothing has changed")

// change has do change files of a volume, and returns its error. Every change of a file is in here, of its data, its
// attributes or its names: as long as it lasts, no attributes of these files are remembered, and afterwards their change
// attributes have moved, before anybody is told. A snapshot has it wholly or not at all, and captures the
// files before. Files with the zero FileID do not exist. The error is EAGAIN while the volume is restored, and instead of ENOSPC
// while the disk gets room.
func (f *File) change(do func() error, files ...*disk.FileID) error {
	entered, err := f.enterChange()
	if err != nil {
		return err
	}
	defer f.leaveChange(entered)
	f.Volume.Snapshots.Before(files...)
	err = f.opener.changeInside(f.Volume, do, files...)
	if err != nil && errors.Is(err, syscall.ENOSPC) && !f.restoring && f.Volume.GivesRoom() {
		return syscall.EAGAIN
	}
	return err
}

// enterChange begins a change, until leaveChange. What waits for others is before it, or a cut waits, too; but all locks that are
// taken later are taken after it, or who has entered would wait for who can't.
func (f *File) enterChange() (snapshot.Part, error) {
	if f.restoring || f.hasEntered() {
		return 0, nil
	}
	return f.Volume.Snapshots.Enter(&f.ID)
}

func (f *File) leaveChange(entered snapshot.Part) {
	if !f.restoring && !f.hasEntered() {
		f.Volume.Snapshots.Leave(entered)
	}
}

// changeInside is change within another one, or of what no snapshot has.
func (o *Opener) changeInside(v *exports.Volume, do func() error, files ...*disk.FileID) (err error) {
	for _, id := range files {
		o.versions.of(v, id).Add(1)
	}
	defer func() {
		for _, id := range files {
			if !id.IsZero() && !errors.Is(err, errUnchanged) {
				o.changes.changed(&fileKey{v.ID, *id})
			}
			o.versions.of(v, id).Add(oneChange - 1)
		}
	}()
	return do()
}

// changeIt has do change the file.
func (f *File) changeIt(do func() error) error { return f.change(do, &f.ID) }

// Together has several changes by one call be one for snapshots: each snapshot has all of them, or none. The call has it, and it
// outlives the call's files. The zero Together is ready.
type Together struct{ entered bool }

// Do calls do, which changes files of the volume of f: f itself, what is made in it, and data, which is the same file as f, open
// for its data. data is nil unless do sets the size. A cut waits for do, so what may wait must be before or after it: the lock
// of the data is taken before. The error is do's, or as that of a single change.
//
// Not checked: data may be nil.
//
// +checklocksignore
func (t *Together) Do(f, data *File, do func() error) error {
	if data != nil && data.use == UseWrite {
		defer data.enterToResize()()
		data.cached.inode.content.lock()
		defer data.cached.inode.content.mu.Unlock()
		data.together = t
	}
	f.together = t
	entered, err := f.enterChange()
	if err != nil {
		return err
	}
	t.entered = true
	defer func() {
		t.entered = false
		f.leaveChange(entered)
	}()
	return do()
}

// hasEntered reports whether the call has entered for this file already.
func (f *File) hasEntered() bool { return f.together != nil && f.together.entered }
