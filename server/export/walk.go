package export

import (
	"errors"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/tree"
)

// Walk calls visit for the volume's root, ".", and for each file that can be reached by a path,
// with the FileID of Dir.Identify. It ends with the export, which waits for one directory of it. all
// is false if a directory was moved meanwhile, so that some files may have been missed.
func (v *Volume) Walk(visit func(path string, id FileID)) (all bool, err error) {
	if !v.begin() {
		return false, os.ErrClosed
	}
	defer v.calls.Done()
	id, err := Identify(v.root)
	if err != nil {
		return false, err
	}
	visit(".", id)
	all = true
	at := "" // the path of the current directory
	w := tree.Walker{
		Enter: func(name string, _ *os.File, _ *unix.Statx_t) error {
			at = path.Join(at, name)
			return nil
		},
		Name: func(dir *os.File, name string) (enter bool, err error) {
			id, st, err := inodes{}.look(int(dir.Fd()), name)
			if errors.Is(err, fs.ErrNotExist) {
				return false, nil // removed meanwhile
			}
			if err != nil {
				return false, err
			}
			below := path.Join(at, name)
			visit(below, id)
			return st.Mode&unix.S_IFMT == unix.S_IFDIR && len(below) < unix.PathMax, nil
		},
		Leave: func() error {
			at = path.Dir(at)
			return nil
		},
		Unreadable: func(_ string, err error) error {
			if errors.Is(err, unix.EACCES) {
				return nil // what is in it can't be served
			}
			return err
		},
		Lost: func() { all = false },
	}
	defer w.Close()
	for err = w.Begin(v.root); err == nil && w.Depth() > 0; err = w.Step() {
		if v.hasEnded() {
			return false, os.ErrClosed
		}
	}
	return all, err
}
