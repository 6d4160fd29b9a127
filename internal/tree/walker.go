package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Walker walks a tree, one directory at a time, and calls its functions for what it
// finds; only Name must be set. An error that a function returns ends the walk.
//
// It follows no symbolic link and enters no mount. It has one descriptor open at any
// depth, two while it changes directories. It holds the names of subdirectories that are still to
// be entered, but at most belowMax bytes of them and one of each directory on its way: if
// there are more, it enters those, comes back, and reads on in the directory.
//
// The tree may be in use: a Walker ignores vanished files, may miss files that are created or
// moved meanwhile, and may call Name twice for one that is renamed. A directory has the same
// offsets while names come and go, on ext4, XFS and btrfs, so it misses no name that is there
// all the time. It calls Name for each name of a file with several names.
//
// A Walker is used by one goroutine at a time.
type Walker struct {
	// Enter is called for each directory, including the root as ".", before its names
	// are read.
	Enter func(name string, dir *os.File, st *unix.Statx_t) error
	// Name is called for each name in a directory, and reports whether that is a
	// subdirectory to enter. The Walker enters subdirectories after it has read all names, or many.
	Name func(dir *os.File, name string) (enter bool, err error)
	// Batch is called after each batch of names, with their number. The last batch of
	// a directory is empty.
	Batch func(names int) error
	// Leave is called for each directory after all that is below it.
	Leave func() error
	// Unreadable is called for a directory that can't be opened or listed; "." is the
	// current one. If it returns nil, the walk goes on. If it is not set, the walk ends
	// with the error.
	Unreadable func(name string, err error) error
	// Lost is called when a directory was moved while the walk was in it, so that there is
	// no way back to the one above. The walk omits what is still to be entered and read there.
	Lost func()
	// Deepest is how many directories there may be on the way, or 0 for no bound: one that is deeper ends the walk with
	// ErrTooDeep. The way takes memory.
	Deepest int

	at   position
	held int    // bytes that the below of all directories on the way take
	buf  []byte // for getdents64(2)
}

// deepest is how deep what Copy copies, and what Walk walks, may be. A path has 2,048 directories at most (PATH_MAX), but
// who goes from one to the next can make them deeper, and would take the memory of all.
const deepest = 64 << 10

// ErrTooDeep is the error of a tree whose directories are nested deeper than a Walker's bound.
var ErrTooDeep = errors.New("directories are nested too deep")

// Run walks the tree to its end. root stays the caller's, and must stay open.
func (w *Walker) Run(root *os.File) error {
	defer w.Close()
	err := w.Begin(root)
	for err == nil && w.Depth() > 0 {
		err = w.Step()
	}
	return err
}

// Begin enters the root, which stays the caller's and must stay open. Step does the rest
// of the walk.
func (w *Walker) Begin(root *os.File) error {
	dir, err := openDir(root, ".")
	if err != nil {
		return fmt.Errorf("open %s: %w", root.Name(), err)
	}
	w.at, w.held = position{root: root}, 0
	return w.enter(dir, ".")
}

// Step enters the next subdirectory of the current directory, or reads on in it, or goes back up
// if nothing is left. Call it while Depth is not 0.
func (w *Walker) Step() error {
	at := &w.at.way[w.Depth()-1]
	if len(at.below) > 0 {
		takes := cap(at.below)
		name := at.below.next()
		w.held -= takes - cap(at.below)
		return w.down(name)
	}
	if at.unread {
		return w.readOn()
	}
	return w.up()
}

// Depth is the number of directories from the root to the current one: 1 in the root, 0
// at the end of the walk.
func (w *Walker) Depth() int { return len(w.at.way) }

// Path is the path of a name in the current directory from the root, for people: a long
// path is truncated.
func (w *Walker) Path(name string) string { return w.at.pathOf(name) }

// Close ends the walk, wherever it is.
func (w *Walker) Close() { w.at.close() }

// down enters a subdirectory, if it is still there.
func (w *Walker) down(name string) error {
	if w.Deepest > 0 && w.Depth() >= w.Deepest {
		return fmt.Errorf("%q: %w: at most %d are possible", w.Path(name), ErrTooDeep, w.Deepest)
	}
	dir, err := openDir(w.at.dir, name)
	switch {
	case err == nil:
		return w.enter(dir, name)
	case vanished(err):
		return nil
	}
	return w.unreadable(name, fmt.Errorf("open %q: %w", w.Path(name), err))
}

// enter enters a directory, which it then owns, and reads its names.
func (w *Walker) enter(dir *os.File, name string) error {
	var st unix.Statx_t
	if err := w.at.down(dir, name, &st); err != nil {
		return err
	}
	if w.Enter != nil {
		if err := w.Enter(name, dir, &st); err != nil {
			return err
		}
	}
	return w.read()
}

// readOn reads on where read has stopped.
func (w *Walker) readOn() error {
	if _, err := unix.Seek(int(w.at.dir.Fd()), w.at.way[w.Depth()-1].offset, unix.SEEK_SET); err != nil {
		return w.unreadable(".", fmt.Errorf("list %q: %w", w.Path("."), err))
	}
	return w.read()
}

// read reads the names in the current directory, to the end or until it has many to enter.
func (w *Walker) read() error {
	at := &w.at.way[w.Depth()-1]
	most := (belowMax - w.held) / 2 // what is below gets as much in all
	defer func() { w.held += cap(at.below) }()
	if w.buf == nil {
		w.buf = make([]byte, direntsAtOnce)
	}
	for at.unread = true; at.unread; {
		n, err := getdents(w.at.dir, w.buf)
		if err != nil {
			at.unread = false
			return w.unreadable(".", fmt.Errorf("list %q: %w", w.Path("."), err))
		}
		at.unread = n > 0
		names, full, err := w.readBatch(at, w.buf[:n], most)
		if err == nil && w.Batch != nil {
			err = w.Batch(names)
		}
		if err != nil || full {
			return err
		}
	}
	return nil
}

// readBatch reads the names that getdents64(2) has returned. full is whether it has stopped because more than so many bytes
// are to be entered.
func (w *Walker) readBatch(at *step, dirents []byte, most int) (names int, full bool, err error) {
	for len(dirents) > 0 && !full {
		d := DirentIn(dirents)
		dirents = dirents[d.Size:]
		// Names with one hash have one offset on ext4. To read on from there would return them again.
		goesOn := d.Next != at.offset
		at.offset = d.Next
		name := string(d.Name)
		if name == "." || name == ".." {
			continue
		}
		names++
		enter, err := w.Name(w.at.dir, name)
		if err != nil {
			return names, false, err
		}
		if enter {
			at.below.add(name)
		}
		full = goesOn && len(at.below) > max(most, 0)
	}
	return names, full, nil
}

func (w *Walker) unreadable(name string, err error) error {
	if w.Unreadable == nil {
		return err
	}
	return w.Unreadable(name, err)
}

// up leaves the current directory.
func (w *Walker) up() error {
	if w.Leave != nil {
		if err := w.Leave(); err != nil {
			return err
		}
	}
	err := w.at.up()
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		at := &w.at.way[w.Depth()-1]
		w.held -= cap(at.below)
		at.below, at.unread = nil, false
		if w.Lost != nil {
			w.Lost()
		}
	default:
		return fmt.Errorf("go back to %q: %w", w.Path("."), err)
	}
	return nil
}
