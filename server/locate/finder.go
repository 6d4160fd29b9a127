package locate

import (
	"github.com/podnas/podnas/server/disk"
)

// finder finds the files of a volume by their FileIDs, which stay the same when names change.
// Its methods may be called concurrently, as root.
type finder interface {
	// Identify returns the FileID of a name in a directory, or of the directory itself if the
	// name is empty. It does not follow a symbolic link.
	Identify(dir int, name []byte) (disk.FileID, error)
	// Open opens a file, with flags for open(2). The error is ESTALE if it is gone, and EAGAIN if
	// that is not known yet.
	Open(file disk.FileID, flags int) (disk.Descriptor, error)
	// Reopen opens a file that is open with O_PATH.
	Reopen(file disk.FileID, path int, flags int) (disk.Descriptor, error)
}
