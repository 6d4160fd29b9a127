package gonfs

import (
	"encoding/hex"
	"io/fs"
	"path"
	"strings"
	"syscall"

	"github.com/podnas/podnas/server/export"
)

// The library identifies a file by a list of path elements: FromHandle returns the
// elements of the handle's file, the library appends the name in the client's call,
// and passes the result of Join to the file system. Between FromHandle and the use
// of the path other clients may rename anything, and a client's name may have any
// bytes. So the last element that FromHandle returns also has, after a NUL, the file
// that the path must lead to; then
//
//	"a", "b\x00<file>"            is the file of a handle, last seen at a/b
//	"a", "b\x00<file>", "name"    is a client's name in that directory
//	"a"                           is the parent of a handle's file
//
// and a client's own NUL is recognized.
type location struct {
	path string        // of the handle's file, below the volume's root, "." for the root
	file export.FileID // the handle's file; zero if only the path is known
	name string        // the client's name in that directory, if named
	// named distinguishes the second form from the first.
	named bool
}

var (
	errStale = &fs.PathError{Op: "find", Path: "file handle", Err: syscall.ESTALE}
	// errBadName: a name must be one component. The library knows EACCES, unlike
	// other errors.
	errBadName = &fs.PathError{Op: "open", Path: "name", Err: syscall.EACCES}
)

// invalid is join's result for invalid elements.
const invalid = "\x00"

// elements returns a location in the library's form. The slice has no spare
// capacity, because the library appends to it.
func (l location) elements() []string {
	elems := strings.Split(l.path, "/")
	last := len(elems) - 1
	elems[last] += "\x00" + hex.EncodeToString(l.file.Bytes())
	return elems[: last+1 : last+1]
}

// join joins elements to a string, for parseLocation.
func join(elems []string) string {
	for i, e := range elems {
		if !strings.Contains(e, "\x00") {
			continue
		}
		handle := strings.Join(elems[:i+1], "/")
		switch rest := elems[i+1:]; {
		case len(rest) == 0:
			return handle
		case len(rest) == 1 && export.ValidName(rest[0]):
			return handle + "\x00" + rest[0]
		default:
			return invalid
		}
	}
	return path.Join(elems...)
}

func parseLocation(s string) (location, error) {
	if !strings.Contains(s, "\x00") {
		return location{path: path.Join(".", s)}, nil
	}
	parts := strings.Split(s, "\x00")
	if len(parts) > 3 || parts[0] == "" {
		return location{}, errBadName
	}
	file, err := hex.DecodeString(parts[1])
	if err != nil {
		return location{}, errBadName
	}
	l := location{path: parts[0], file: export.NewFileID(file)}
	if len(parts) == 3 {
		l.name, l.named = parts[2], true
	}
	return l, nil
}
