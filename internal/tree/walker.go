package tree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// nameBatch is how many names of a directory are read at a time.
const nameBatch = 256

// Walker walks a tree, one directory at a time, and calls its functions for what it
// finds; only Name must be set. An error that a function returns ends the walk.
//
// It follows no symbolic link and enters no mount. It has one descriptor open at any
// depth, two while it changes directories. Of a directory that it reads it holds a batch of
// names, and the names of the subdirectories that are still to be entered. The tree may
// be in use: a Walker ignores vanished files, and may miss files that are created or
// moved meanwhile. It calls Name for each name of a file with several names.
//
// A Walker is used by one goroutine at a time.
type Walker struct {
	// Enter is called for each directory, including the root as ".", before its names
	// are read.
	Enter func(name string, dir *os.File, st *unix.Statx_t) error
	// Name is called for each name in a directory, and reports whether that is a
	// subdirectory to enter. The Walker enters subdirectories after it has read all names.
	Name func(dir *os.File, name string) (enter bool, err error)
	// Batch is called after each batch of names, with their number. The last batch of
	// each directory is empty.
	Batch func(names int) error
	// Leave is called for each directory after all that is below it.
	Leave func() error
	// Unreadable is called for a directory that can't be opened or listed; "." is the
	// current one. If it returns nil, the walk goes on. If it is not set, the walk ends
	// with the error.
	Unreadable func(name string, err error) error
	// Lost is called when a directory was moved while the walk was in it, so that there is
	// no way back to the one above. The walk omits what is still to be entered there.
	Lost func()

	at position
}

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
	w.at = position{root: root}
	return w.enter(dir, ".")
}

// Step enters the next subdirectory of the current directory, or goes back up if there
// is none left. Call it while Depth is not 0.
func (w *Walker) Step() error {
	if name, ok := w.at.way[w.Depth()-1].next(); ok {
		return w.down(name)
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
	if err := statx(int(dir.Fd()), &st); err != nil {
		_ = dir.Close() // only read from
		return err
	}
	w.at.down(dir, name, inodeOf(&st))
	if w.Enter != nil {
		if err := w.Enter(name, dir, &st); err != nil {
			return err
		}
	}
	at := &w.at.way[w.Depth()-1]
	for {
		names, err := dir.Readdirnames(nameBatch)
		for _, name := range names {
			enter, err := w.Name(dir, name)
			if err != nil {
				return err
			}
			if enter {
				at.add(name)
			}
		}
		if w.Batch != nil {
			if err := w.Batch(len(names)); err != nil {
				return err
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF), errors.Is(err, unix.ENOENT): // the latter if it was removed meanwhile
			return nil
		default:
			return w.unreadable(".", fmt.Errorf("list %q: %w", w.Path("."), err))
		}
	}
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
		w.at.way[w.Depth()-1].below = nil
		if w.Lost != nil {
			w.Lost()
		}
	default:
		return fmt.Errorf("go back to %q: %w", w.Path("."), err)
	}
	return nil
}
