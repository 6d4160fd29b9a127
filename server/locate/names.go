package locate

import (
	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
)

// The index of a volume, if it has one, is told of each name that a client's call sees or changes.

// Observation is from before a name was seen.
type Observation struct {
	index    *Index // nil: none
	removals uint64
}

// Observe begins an Observation.
func (v *Volume) Observe() Observation {
	if v.index == nil {
		return Observation{}
	}
	return Observation{v.index, v.index.names.Removals()}
}

// Saw tells that an open directory has a name for an inode.
func (o Observation) Saw(dir int, dirIno uint64, name []byte, ino uint64, isDir bool) {
	if o.index != nil && dirIno != 0 && disk.ValidName(name) {
		o.index.learn(dir, dirIno, name, ino, isDir, o.removals)
	}
}

// NameChange is a change of names by a client's call.
type NameChange struct{ index *Index } // nil: none

// ChangeNames begins a NameChange. It must be called before the system call, and End after it: a file that is not found
// meanwhile may be on its way.
func (v *Volume) ChangeNames() NameChange {
	x := v.index
	if x != nil {
		x.renaming.Add(1)
		x.renames.Add(1)
	}
	return NameChange{x}
}

// End ends it.
func (c NameChange) End() {
	if x := c.index; x != nil {
		x.renames.Add(1)
		x.renaming.Add(-1)
	}
}

// Unlinked tells that a file does not have a name any more.
func (c NameChange) Unlinked(dirIno uint64, name string, file *disk.FileID) {
	if x := c.index; x != nil && !file.IsZero() {
		x.names.Remove(x.volume.FS.NumberIn(file), dirIno, []byte(name))
	}
}

// Renamed tells that a file has a new name, in an open directory, and not the old one any more.
func (c NameChange) Renamed(fromIno uint64, name string, to int, toIno uint64, newName string, file *disk.FileID) {
	x := c.index
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
	if w.walking { // it may be past the new name, and not have been at the old one
		w.moved = append(w.moved, ino)
	}
}
