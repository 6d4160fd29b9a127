package inode

import (
	"errors"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
)

// errUnchanged means that it is certain that a call has changed nothing.
var errUnchanged = errors.New("nothing has changed")

// change has do change files of a volume, and returns its error. Every change of a file is in here, of its data, its
// attributes or its names: as long as it lasts, no attributes of these files are remembered, and afterwards their change
// attributes have moved, before anybody is told. A snapshot has it wholly or not at all, and captures the
// files before. Files with the zero FileID do not exist.
func (o *Opener) change(v *exports.Volume, do func() error, files ...*disk.FileID) error {
	defer v.Snapshots.Leave(v.Snapshots.Enter(files[0]))
	v.Snapshots.Before(files...)
	return o.changeInside(v, do, files...)
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

// change has do change the file.
func (f *File) change(do func() error) error { return f.opener.change(f.Volume, do, &f.ID) }
