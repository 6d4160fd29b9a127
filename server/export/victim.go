package export

import (
	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/space"
)

// victim is a file that is about to lose a name. If that is its last name, its
// cached descriptors must be closed to free its space, and its charge ends.
type victim struct {
	dir    *File
	id     FileID    // zero: nothing there, or nothing that could be open
	kept   *openFile // of the file, nil: none
	fd     int       // -1, or opened to look at it
	taking space.Taking
}

func (f *File) victim(name string) victim {
	v := victim{dir: f, fd: -1}
	id, err := f.Volume.finder.identify(f.fd, []byte(name))
	if err != nil {
		return v
	}
	v.id = id
	a := f.Volume.account
	if a == nil {
		return v
	}
	if v.kept = f.opener.files.get(fileKey{f.Volume, id}, UseAttr); v.kept != nil && v.kept.charge != nil {
		v.taking = v.kept.charge.Take(v.kept.fd)
	} else {
		v.fd, err = unix.Openat(f.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == nil {
			v.taking = a.Take(v.fd)
		}
	}
	return v
}

// taken ends it. err is the result of removing the name.
func (v *victim) taken(err error) error {
	files := v.dir.opener.files
	v.taking.Done(err)
	if v.fd >= 0 {
		_ = unix.Close(v.fd) // O_PATH
	}
	if err == nil {
		files.drop(v.dir.Volume, v.id)
	}
	if v.kept != nil {
		files.release(v.kept)
	}
	return err
}
