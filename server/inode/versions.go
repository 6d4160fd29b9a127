package inode

import (
	"sync/atomic"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
)

// version counts the changes of files, of those with one index together. Its low bits are the
// number of changes under way: until all have ended, the attributes that can be read may be those
// of before, and are not remembered.
type version struct{ atomic.Uint64 }

const (
	versionsKept  = 1 << 14 // a power of 2
	oneChange     = 1 << 24
	changesAtOnce = oneChange - 1
)

// versions has the versions of all files.
type versions [versionsKept]version

// at returns the version of the file with an inode number. Other volumes on the disk may have names
// of the same file, so the volume does not matter.
func (v *versions) at(ino uint64) *version {
	// Consecutive numbers have consecutive indexes, so that a listing reads few cache lines.
	const odd = 0x9e3779b97f4a7c15
	const run = 64
	const runs = versionsKept / run
	return &v[(ino/run*odd)>>32%runs*run+ino%run]
}

// of returns the version of a file. Files without a number, whose attributes are never remembered, have one together.
func (v *versions) of(volume *exports.Volume, id *disk.FileID) *version {
	return v.at(volume.FS.NumberIn(id))
}
