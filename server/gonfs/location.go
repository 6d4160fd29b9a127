package gonfs

import (
	"encoding/hex"
	"io/fs"
	"strings"
	"syscall"

	"github.com/podnas/podnas/server/disk"
)

// The library knows a file by a list of path elements: FromHandle returns those of a handle's file, the
// library appends the name in the client's call, or takes the last away to get the parent, and passes
// the result of Join to the file system. Other clients may rename anything meanwhile, and a client's
// name may have any bytes. So the elements are no names but the client's:
//
//	"<file>/..", "<file>"            is the file of a handle
//	"<file>/..", "<file>", "name"    is a client's name in that directory
//	"<file>/.."                      is the directory that the handle's file is in
//	"<file>"                         is a file that was made: its Name
//	none                             is the volume's root, of which MNT wants the handle
//
// where <file> is a FileID in hexadecimal digits. Join returns the last element, and of three
// "<file>/name".
type location struct {
	file   disk.FileID // zero: the volume's root
	parent bool        // the directory that file is in is meant
	name   string      // or this one in the directory file, if it is not empty
}

var (
	errStale = &fs.PathError{Op: "find", Path: "file handle", Err: syscall.ESTALE}
	// errBadName: a name must be one component. The library knows EACCES, unlike
	// other errors.
	errBadName = &fs.PathError{Op: "open", Path: "name", Err: syscall.EACCES}
)

// invalid is join's result for invalid elements.
const invalid = "\x00"

// elements returns a file in the library's form. The slice has no spare capacity, because the library
// appends to it.
func elements(file disk.FileID) []string {
	id := nameOf(file)
	return []string{id + "/..", id}
}

func nameOf(file disk.FileID) string { return hex.EncodeToString(file.Bytes()) }

// join joins elements to a string, for parseLocation.
func join(elems []string) string {
	switch n := len(elems); {
	case n == 0:
		return ""
	case n < 3:
		return elems[n-1]
	case n == 3 && disk.ValidName(elems[2]):
		return elems[1] + "/" + elems[2]
	}
	return invalid
}

func parseLocation(s string) (location, error) {
	id, name, _ := strings.Cut(s, "/")
	file, err := hex.DecodeString(id)
	if err != nil {
		return location{}, errBadName
	}
	l := location{file: disk.NewFileID(file), name: name}
	if name == ".." {
		l.name, l.parent = "", true
	}
	return l, nil
}
