package export

import (
	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
)

// These have the index of a volume know what its clients do. They do nothing without an index, nil.

// removals is to be read before a name is seen, for saw.
func (x *index) removals() uint64 {
	if x == nil {
		return 0
	}
	return x.names.Removals()
}

// saw says that a directory has a name for an inode.
func (x *index) saw(dir *File, name []byte, ino uint64, isDir bool, removals uint64) {
	if x != nil && dir.Attr.Ino != 0 && disk.ValidName(name) {
		x.learn(dir.fd, dir.Attr.Ino, name, ino, isDir, removals)
	}
}

// move begins a change of names through the server, which moved ends.
func (x *index) move() {
	if x != nil {
		x.renaming.Add(1)
		x.renames.Add(1)
	}
}

func (x *index) moved() {
	if x != nil {
		x.renames.Add(1)
		x.renaming.Add(-1)
	}
}

// renamed says that a file has a new name, and not the old one any more.
func (x *index) renamed(from *File, name string, to *File, newName string, file *disk.FileID) {
	if x == nil {
		return
	}
	ino := from.Volume.disk.NumberIn(file)
	_, st, _ := x.look(to.fd, newName)
	if ino == 0 || st.Ino != ino {
		x.walks.doubt(ino)
		return
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	x.names.Add(ino, to.Attr.Ino, []byte(newName), isDir) // first, so that it has one at any time
	x.names.Remove(ino, from.Attr.Ino, []byte(name))
	if !isDir {
		return
	}
	w := &x.walks
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.walking { // it may be past the new place, and not have been at the old one
		w.moved = append(w.moved, ino)
	}
}
