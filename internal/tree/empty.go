package tree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The pace of emptying. At 100 removals per 20 ms an fsync of a neighbour takes
// as long as without them; unpaced it takes several times as long.
const (
	emptyBatch = 100
	emptyPause = 20 * time.Millisecond
)

// emptyDeepest is how deep Empty goes. What is deeper it moves to the top, and empties later.
const emptyDeepest = 16 << 10

// Empty removes everything in a directory, and returns the number of entries. It
// changes modes and flags that prevent it.
func Empty(ctx context.Context, dir *os.File) (int, error) {
	e := emptier{top: dir, deepest: emptyDeepest}
	return e.empty(ctx)
}

func (e *emptier) empty(ctx context.Context) (int, error) {
	e.Name = func(dir *os.File, name string) (bool, error) { return e.name(ctx, dir, name) }
	for {
		found, removed := e.found, e.removed
		switch err := e.pass(e.top); {
		case err != nil, e.found == found:
			return e.removed, err
		case e.removed == removed:
			return e.removed, fmt.Errorf("empty %s: %w", e.top.Name(), unix.ENOTEMPTY)
		}
	}
}

// emptier removes what a Walker finds, and each directory when the Walker has left it. What it
// misses, because a directory was listed while names were removed from it, another pass finds.
type emptier struct {
	Walker
	top     *os.File
	deepest int // how many directories there may be on the way
	found   int // names
	removed int
	raised  int // directories that were moved to the top
}

// pass walks the tree once.
func (e *emptier) pass(root *os.File) error {
	defer e.Close()
	err := e.Begin(root)
	for err == nil && e.Depth() > 0 {
		depth, name := e.Depth(), e.at.way[e.Depth()-1].name
		if err = e.Step(); err == nil && e.Depth() < depth && e.at.dir != nil {
			_, err = e.remove(e.at.dir, name)
		}
	}
	return err
}

// name removes a file or an empty directory; others are to be entered.
func (e *emptier) name(ctx context.Context, dir *os.File, name string) (enter bool, err error) {
	if e.found++; e.found%emptyBatch == 0 {
		select {
		case <-time.After(emptyPause):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	full, err := e.remove(dir, name)
	if full && err == nil {
		err = unlock(dir, name)
	}
	if full && err == nil && e.Depth() >= e.deepest {
		return false, e.raise(dir, name)
	}
	return full, err
}

// raise moves a directory to the top, where another pass finds it.
func (e *emptier) raise(dir *os.File, name string) error {
	for ; ; e.raised++ {
		err := unix.Renameat2(int(dir.Fd()), name, int(e.top.Fd()), fmt.Sprintf("deep-%d", e.raised), unix.RENAME_NOREPLACE)
		switch {
		case err == nil, errors.Is(err, unix.ENOENT):
			return nil
		case !errors.Is(err, unix.EEXIST):
			return fmt.Errorf("move %q up: %w", e.Path(name), err)
		}
	}
}

// remove removes a file or a directory; full is whether that has entries.
func (e *emptier) remove(dir *os.File, name string) (full bool, err error) {
	fd := int(dir.Fd())
	err = remove(fd, name)
	if errors.Is(err, unix.EPERM) && mutableEntry(dir, name) == nil {
		err = remove(fd, name)
	}
	switch {
	case err == nil:
		e.removed++
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		return true, nil
	case !errors.Is(err, unix.ENOENT):
		return false, fmt.Errorf("remove %q: %w", e.Path(name), err)
	}
	return false, nil
}

// remove removes a file or an empty directory.
func remove(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	}
	return err
}
