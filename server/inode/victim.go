package inode

import (
	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/space"
)

// victim is a file that is about to lose a name. If that is its last name, its
// cached descriptors must be closed to free its space, and its charge ends.
type victim struct {
	dir    *File
	name   string
	id     disk.FileID     // zero: nothing there, or nothing that is open or could be
	kept   *openFile       // of the file, nil: none
	own    disk.Descriptor // opened to look at it, or none
	taking space.Taking
	held   *inode // nil: no client has it open
	linked bool   // held got its name for this
	same   bool   // it does not lose the name, because a rename gives it the same
}

// victim begins it, before the name is removed.
func (f *File) victim(name string) victim {
	v := victim{dir: f, name: name}
	v.id, _ = f.Volume.Files.Identify(f.fd, []byte(name))
	return v
}

// take looks at the file where the server counts.
func (v *victim) take() {
	a := v.dir.Volume.Account
	if a == nil || v.id.IsZero() {
		return
	}
	if v.kept = v.dir.opener.inodes.get(v.dir.Volume, &v.id, UseAttr); v.kept != nil {
		if v.kept.charge != nil {
			v.taking = v.kept.charge.Take(v.kept.fd)
		} else {
			v.taking = a.Take(v.kept.fd)
		}
		return
	}
	var err error
	if v.own, err = disk.OpenEntry(v.dir.fd, v.name); err == nil {
		v.taking = a.Take(v.own.FD())
	}
}

// keep gives a file that clients hold open another name, if it is about to lose its last one. It
// does nothing where that fails, as on a full disk: then the file stays as long as this process has it
// open. Not checked: taken unlocks the names, if there are any.
//
// +checklocksignore
func (v *victim) keep(as actas.Thread, name string) {
	dir := v.dir
	if v.id.IsZero() {
		return
	}
	if v.held = dir.opener.removing(fileKey{dir.Volume.ID, v.id}); v.held == nil {
		return
	}
	v.held.lastName.Lock()
	if dir.Access(as, MayWrite|MayExec) == nil { // else it will not be removed
		v.linked = dir.opener.linkOrphan(v.held, dir, name)
	}
}

// taken ends it. err is the result of removing the name. Not checked: keep has locked the names, if there are any.
//
// +checklocksignore
func (v *victim) taken(err error) error {
	o := v.dir.opener
	if v.linked && err != nil {
		o.unlinkOrphan(v.held)
	}
	v.taking.Done(err)
	v.own.Close()
	if err == nil {
		o.inodes.drop(v.dir.Volume, v.id)
	}
	if v.kept != nil {
		o.inodes.release(v.kept)
	}
	if v.held != nil {
		v.held.lastName.Unlock()
		o.release(v.held)
	}
	return err
}
