package inode

import (
	"fmt"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
)

// Touch moves the ctime and the change attribute of a volume's root, and changes nothing else of it: clients look again what
// is in it, also for names that were not there. It is on the disk when Touch returns, so that a power cut does not bring the
// ctime of before back.
func (o *Opener) Touch(v *exports.Volume) error {
	root, err := o.OpenIn(v, disk.FileID{}, UseAttr)
	if err != nil {
		return fmt.Errorf("open %s: %w", v.Path, err)
	}
	defer root.Close()
	// chown(2) that changes neither owner nor group sets the ctime, for which it needs no right.
	if err := root.Chown(actas.AsProcess(), NoChange, NoChange); err != nil {
		return fmt.Errorf("change %s: %w", v.Path, err)
	}
	return root.Sync(false)
}
