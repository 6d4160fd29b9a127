package tree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

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
// Walk follows no symbolic link and enters no mount and no subvolume. It reads only
// directories, and pauses often to leave the disk to others. The error is ErrTooDeep beyond 65,536 levels.
func Walk(ctx context.Context, root *os.File, enter func(dir *os.File) error, visit func(*Entry) error) error {
	w := entries{visit: visit}
	w.Enter = func(_ string, dir *os.File, _ *unix.Statx_t) error { return enter(dir) }
	return w.run(ctx, root)
}

// entries is a Walker that opens each entry, for a visitor.
type entries struct {
	Walker
	visit func(*Entry) error
	pacer Pacer
}

func (w *entries) run(ctx context.Context, root *os.File) error {
	w.Deepest = cmp.Or(w.Deepest, deepest)
	w.Name = func(_ *os.File, name string) (enter bool, err error) {
		if enter, err = w.one(name); err != nil {
			return false, err
		}
		return enter, w.pacer.Pause(ctx)
	}
	return w.Run(root)
}

// one visits an entry and reports whether it is a directory to enter.
func (w *entries) one(name string) (enter bool, err error) {
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
	if isDir && !w.at.onDevice(&e.Stat) {
		return false, nil
	}
	err = w.visit(&e)
	if isDir && errors.Is(err, fs.SkipDir) {
		return false, nil
	}
	return isDir, err
}
