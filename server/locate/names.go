package locate

import (
	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
)

// These have the index of a volume know what its clients do. They do nothing without an index, nil.

// Removals is to be read before a name is seen, for Saw.
func (x *Index) Removals() uint64 {
	if x == nil {
		return 0
	}
	return x.names.Removals()
}

// Saw says that an open directory has a name for an inode.
func (x *Index) Saw(dir int, dirIno uint64, name []byte, ino uint64, isDir bool, removals uint64) {
	if x != nil && dirIno != 0 && disk.ValidName(name) {
		x.learn(dir, dirIno, name, ino, isDir, removals)
	}
}

// Moving begins a change of names through the server, which Moved ends.
func (x *Index) Moving() {
	if x != nil {
		x.renaming.Add(1)
		x.renames.Add(1)
	}
}

// Moved ends a change of names.
func (x *Index) Moved() {
	if x != nil {
		x.renames.Add(1)
		x.renaming.Add(-1)
	}
}

// Removed says that a file does not have a name any more.
func (x *Index) Removed(dirIno uint64, name string, file *disk.FileID) {
	x.names.Remove(x.volume.FS.NumberIn(file), dirIno, []byte(name))
}

// Renamed says that a file has a new name, in an open directory, and not the old one any more.
func (x *Index) Renamed(fromIno uint64, name string, to int, toIno uint64, newName string, file *disk.FileID) {
	if x == nil {
		return
	}
	ino := x.volume.FS.NumberIn(file)
	_, st, _ := x.look(to, newName)
	if ino == 0 || st.Ino != ino {
		x.Doubt(ino)
		return
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	x.names.Add(ino, toIno, []byte(newName), isDir) // first, so that it has one at any time
	x.names.Remove(ino, fromIno, []byte(name))
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
