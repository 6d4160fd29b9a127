package export

// finder finds the files of a volume by their FileIDs, which stay the same when names change.
// Its methods may be called concurrently, as root.
type finder interface {
	// identify returns the FileID of a name in a directory, or of the directory itself if the
	// name is empty. It does not follow a symbolic link.
	identify(dir int, name []byte) (FileID, error)
	// open opens a file, with flags for open(2). The error is ESTALE if it is gone, and EAGAIN if
	// that is not known yet.
	open(file FileID, flags int) (descriptor, error)
	// reopen opens a file that is open with O_PATH.
	reopen(file FileID, path int, flags int) (descriptor, error)
}
