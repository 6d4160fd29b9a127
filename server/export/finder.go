package export

// finder is how the files of a volume are found again: each is told by its FileID, whatever
// becomes of its names.
type finder interface {
	// identify returns the FileID of a name in a directory, or of the directory itself if the
	// name is empty. It does not follow a symbolic link.
	identify(dir int, name []byte) (FileID, error)
	// open opens a file, with flags for open(2). The error is ESTALE if it is gone.
	open(file FileID, flags int) (descriptor, error)
}
