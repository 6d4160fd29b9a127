package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// nameBatch is how many names of a directory are read at a time.
const nameBatch = 256

// Entry is a directory entry, held by a descriptor: it stays the same file
// whatever happens to its name.
type Entry struct {
	Dir  *os.File // the directory it was found in
	Name string
	FD   int // opened with O_PATH and O_NOFOLLOW, valid during the call only
	Stat unix.Statx_t
	at   *position
}

// Path is the entry's path from the root of the tree, for people: a long path is
// truncated.
func (e *Entry) Path() string { return e.at.pathOf(e.Name) }

// Type is the file's type, one of unix.S_IFREG and so on.
func (e *Entry) Type() uint32 { return uint32(e.Stat.Mode) & unix.S_IFMT }

// Walk calls visit for everything below root, a directory before its entries, and
// enter for every directory, including root, just before its names are read. If
// visit returns fs.SkipDir for a directory, Walk does not enter it. The tree may be
// in use: Walk ignores vanished files, and may miss files that are created or moved
// meanwhile.
//
// Walk follows no symbolic link and enters no mount. It reads only directories,
// and pauses often to leave the disk to others.
func Walk(ctx context.Context, root *os.File, enter func(dir *os.File) error, visit func(*Entry) error) error {
	w := walker{
		visit: visit,
		enter: func(_ string, dir *os.File, _ *unix.Statx_t) error { return enter(dir) },
		leave: func() error { return nil },
	}
	return w.run(ctx, root)
}

// walker is a walk with hooks for directories.
type walker struct {
	visit func(*Entry) error
	enter func(name string, dir *os.File, st *unix.Statx_t) error // before what is in it
	leave func() error                                            // after that
	pacer pacer

	at position
	// subdirs has, for every directory on the path to at, the names of its
	// subdirectories that are still to be entered.
	subdirs [][]string
}

func (w *walker) run(ctx context.Context, root *os.File) error {
	if err := w.at.begin(root); err != nil {
		return err
	}
	defer w.at.close()
	var st unix.Statx_t
	if err := statx(int(w.at.dir.Fd()), &st); err != nil {
		return err
	}
	if err := w.list(ctx, ".", &st); err != nil {
		return err
	}
	for {
		last := len(w.subdirs) - 1
		if names := w.subdirs[last]; len(names) > 0 {
			name := names[len(names)-1]
			w.subdirs[last] = names[:len(names)-1]
			if err := w.down(ctx, name); err != nil {
				return err
			}
			continue
		}
		if err := w.leave(); err != nil {
			return err
		}
		w.subdirs = w.subdirs[:last]
		if last == 0 {
			return nil
		}
		err := w.at.up()
		if errors.Is(err, fs.ErrNotExist) {
			// The directory above is not where it was: it vanished, with
			// what is still to be entered in it.
			w.subdirs[last-1] = nil
		} else if err != nil {
			return err
		}
	}
}

// down enters a directory, if it is still there.
func (w *walker) down(ctx context.Context, name string) error {
	dir, err := openDir(w.at.dir, name)
	if vanished(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %q: %w", w.at.pathOf(name), err)
	}
	var st unix.Statx_t
	if err := statx(int(dir.Fd()), &st); err != nil {
		_ = dir.Close() // only read from
		return err
	}
	w.at.down(dir, name, st.Ino)
	return w.list(ctx, name, &st)
}

// list visits what is in the directory that was just entered.
func (w *walker) list(ctx context.Context, name string, st *unix.Statx_t) error {
	if err := w.enter(name, w.at.dir, st); err != nil {
		return err
	}
	var subdirs []string
	for {
		names, err := w.at.dir.Readdirnames(nameBatch)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("list %q: %w", w.at.pathOf("."), err)
		}
		for _, name := range names {
			enter, err := w.one(name)
			if err != nil {
				return err
			}
			if enter {
				subdirs = append(subdirs, name)
			}
			if err := w.pacer.pause(ctx); err != nil {
				return err
			}
		}
		if len(names) == 0 {
			w.subdirs = append(w.subdirs, subdirs)
			return nil
		}
	}
}

// one visits an entry and reports whether it is a directory to enter.
func (w *walker) one(name string) (enter bool, err error) {
	fd, err := openAt(w.at.dir, name, unix.O_PATH)
	if vanished(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open %q: %w", w.at.pathOf(name), err)
	}
	defer unix.Close(fd)
	e := Entry{Dir: w.at.dir, Name: name, FD: fd, at: &w.at}
	if err := statx(fd, &e.Stat); err != nil {
		return false, fmt.Errorf("stat %q: %w", e.Path(), err)
	}
	isDir := e.Type() == unix.S_IFDIR
	if isDir && !w.at.sameDevice(&e.Stat) {
		return false, nil
	}
	err = w.visit(&e)
	if isDir && errors.Is(err, fs.SkipDir) {
		return false, nil
	}
	return isDir, err
}
