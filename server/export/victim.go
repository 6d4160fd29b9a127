package export

import "github.com/podnas/podnas/server/space"

// victim is a file that is about to lose a name. If that is its last name, its
// cached descriptors must be closed to free its space, and its charge ends.
type victim struct {
	dir    *File
	id     FileID     // zero: nothing there, or nothing that could be open
	kept   *openFile  // of the file, nil: none
	own    descriptor // opened to look at it, or none
	taking space.Taking
}

func (f *File) victim(name string) victim {
	v := victim{dir: f}
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
		v.own, err = openEntry(f.fd, name)
		if err == nil {
			v.taking = a.Take(v.own.fd())
		}
	}
	return v
}

// taken ends it. err is the result of removing the name.
func (v *victim) taken(err error) error {
	files := v.dir.opener.files
	v.taking.Done(err)
	v.own.close()
	if err == nil {
		v.dir.opener.changes.changed(v.dir.Volume, v.id)
		files.drop(v.dir.Volume, v.id)
	}
	if v.kept != nil {
		files.release(v.kept)
	}
	return err
}
