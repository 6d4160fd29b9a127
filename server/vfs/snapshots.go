package vfs

import (
	"syscall"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
)

// Snapshots returns the directory of a volume's snapshots, if that is what a name in a directory is for, else nil. Only the
// root of a volume with snapshots has it. What has the name on the disk comes first: it can't be reached in another
// way.
func (c *Call) Snapshots(dir *inode.File, name []byte) (*inode.File, error) {
	shown := snapshotsAt(dir, name)
	if shown == nil {
		return nil, nil
	}
	if !c.May(dir, inode.MayExec) {
		return nil, syscall.EACCES
	}
	f, err := c.service.opener.OpenIn(shown, disk.FileID{}, inode.UseAttr)
	if err == nil {
		c.Closes(f)
	}
	return f, err
}

// snapshotsAt returns the snapshots that a name in a directory is for, nil if it is for anything else.
func snapshotsAt(dir *inode.File, name []byte) *exports.Volume {
	if string(name) != exports.SnapshotsName {
		return nil
	}
	shown := dir.Volume.Shown()
	if shown == nil || !dir.IsRoot() || !dir.Lacks(exports.SnapshotsName) {
		return nil
	}
	return shown
}
