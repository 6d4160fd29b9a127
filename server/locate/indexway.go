package locate

import "encoding/binary"

// pending is a directory that a walk is in, and where the walk has seen it.
type pending struct {
	ino  uint64
	name string
	in   *pending // nil: its name is not known, or it is the root
}

// branch is a directory that a walk is in, and what is still to be done there.
type branch struct {
	*pending
	below  unentered
	unread bool  // there are more names, from offset
	offset int64 // in the directory, see getdents64(2)
}

// unentered has the subdirectories that are still to be entered, each as its name, its inode's number, and the length of its
// name: there can be millions of them.
type unentered []byte

func (u *unentered) add(ino uint64, name []byte) {
	*u = binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint64(append(*u, name...), ino), uint16(len(name)))
}

// next removes the last one. There must be one.
func (u *unentered) next() (ino uint64, name string) {
	b := *u
	lengthAt := len(b) - 2
	numberAt := lengthAt - 8
	start := numberAt - int(binary.NativeEndian.Uint16(b[lengthAt:]))
	ino, name = binary.NativeEndian.Uint64(b[numberAt:]), string(b[start:numberAt])
	if *u = b[:start]; start == 0 {
		*u = nil // its memory, too
	}
	return ino, name
}

// belowMax is how many bytes of subdirectories that are still to be entered a walk holds in all, and one more in each directory on its
// way. If there are more, it enters those, and then reads on in the directory. A directory gets half of what those above it have left.
const belowMax = 128 << 10

// way is where a walk is: the directories from where it has begun to the current one.
type way struct {
	dirs []branch
	held int // bytes that the below of all of them take
}

func (w *way) enter(p *pending) { w.dirs = append(w.dirs, branch{pending: p, unread: true}) }

// next goes to the directory whose names are to be read next. It returns nil at the end of the walk.
func (w *way) next() *branch {
	for len(w.dirs) > 0 {
		at := &w.dirs[len(w.dirs)-1]
		switch {
		case len(at.below) > 0:
			takes := cap(at.below)
			ino, name := at.below.next()
			w.held -= takes - cap(at.below)
			w.enter(&pending{ino, name, at.pending})
		case at.unread:
			return at
		default:
			*at = branch{}
			w.dirs = w.dirs[:len(w.dirs)-1]
		}
	}
	return nil
}

// room is how many bytes the directory that next has returned may hold; it may go beyond it once.
func (w *way) room() int { return max(belowMax-w.held, 0) / 2 }

// hold counts what was read in the directory that next has returned.
func (w *way) hold(dir *branch) { w.held += cap(dir.below) }
