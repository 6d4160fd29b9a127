package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/podnas/podnas/internal/tree"
)

// Change is a difference between a snapshot and what came later.
type Change struct {
	Kind Kind

	// Path is below the root of the volume, with a "/" at its end if it is a directory; "." is the root. The beginning of a very long
	// one is "...".
	Path string
	What tree.Difference
	Size int64 // of the later one, or of the one that was removed; 0 if it is not a regular file
}

// Kind is the kind of a Change.
type Kind string

// The kinds.
const (
	Added   Kind = "added"
	Removed Kind = "removed"
	Changed Kind = "changed"
)

// Diff calls emit for each difference between a snapshot and a later one of the same volume, or with isVolume the volume as it is now,
// of which only Tree is set. Each directory comes before what is in it, in the order of the names' bytes. A name whose type
// has changed is removed and added, and so is a file that was renamed. It reads no content of files that it knows to be the
// same: two snapshots have one file, or the catalogue of the earlier one says that the volume's has not changed. Files that
// vanish meanwhile are not there. It ends with the first error of emit, with context.Cause of ctx, or with tree.ErrTooDeep.
func Diff(ctx context.Context, a, b *Earlier, isVolume bool, emit func(*Change) error) error {
	d := &differ{ctx: ctx, emit: emit}
	if isVolume {
		d.earlier = a.open(time.Now())
		defer d.earlier.close()
	}
	from, err := os.Open(a.Tree)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.Open(b.Tree)
	if err != nil {
		return err
	}
	defer to.Close()
	stA, err := tree.Stat(int(from.Fd()))
	if err != nil {
		return err
	}
	stB, err := tree.Stat(int(to.Fd()))
	if err != nil {
		return err
	}
	if err := d.both(&named{from, ".", &stA}, &named{to, ".", &stB}, false); err != nil {
		return err
	}
	return d.run(from, to, stB.Ino)
}

// named is a name in a directory.
type named struct {
	dir  *os.File
	name string
	st   *tree.Statx
}

// look returns a name with what StatIn says of it, nil if it is gone.
func look(dir *os.File, name string) (*named, error) {
	st, err := tree.StatIn(int(dir.Fd()), name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &named{dir, name, &st}, nil
}

// name compares one name of a level; nil is one that is not there.
func (d *differ) name(l *level, a, b *named) error {
	switch {
	case a == nil && b == nil:
		return nil
	case a == nil:
		return d.all(b, Added)
	case b == nil:
		return d.all(a, Removed)
	case a.st.Mode>>12 != b.st.Mode>>12: // the type
		l.twice = true
		return d.all(a, Removed)
	}
	known := a.st.Ino == b.st.Ino && a.st.IsOn(b.st)
	if l.block != nil {
		r, ok := l.block.find(b.st.Ino)
		known = ok && r.is(b.st) && r.name == a.name
	}
	if err := d.both(a, b, known && !b.st.IsDir()); err != nil || !b.st.IsDir() {
		return err
	}
	if err := d.sides[before].Down(a.name); err != nil {
		return fmt.Errorf("%q: %w", d.path(a.name), err)
	}
	err := d.sides[after].Down(b.name)
	if errors.Is(err, fs.ErrNotExist) {
		return d.sides[before].Up()
	}
	if err != nil {
		return fmt.Errorf("%q: %w", d.path(b.name), err)
	}
	d.push(level{name: b.name, inode: b.st.Ino})
	return nil
}

// both compares two files of one type and name. known is whether it is certain that they are the same.
func (d *differ) both(a, b *named, known bool) error {
	if known {
		return nil
	}
	what, err := tree.Compare(a.dir, a.name, a.st, b.dir, b.name, b.st)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was removed meanwhile
	}
	if err != nil {
		return fmt.Errorf("%q: %w", d.path(b.name), err)
	}
	if what == 0 {
		return nil
	}
	return d.emit(d.change(b, Changed, what))
}

// change describes a change of a name.
func (d *differ) change(n *named, kind Kind, what tree.Difference) *Change {
	c := &Change{Kind: kind, Path: d.path(n.name), What: what}
	switch {
	case n.st.IsDir() && c.Path != ".":
		c.Path += "/"
	case n.st.IsRegular():
		c.Size = int64(n.st.Size)
	}
	return c
}

// all emits a name, and has all that is below it be emitted.
func (d *differ) all(n *named, kind Kind) error {
	if err := d.emit(d.change(n, kind, 0)); err != nil || !n.st.IsDir() {
		return err
	}
	side := after
	if kind == Removed {
		side = before
	}
	err := d.sides[side].Down(n.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%q: %w", d.path(n.name), err)
	}
	d.push(level{name: n.name, kind: kind})
	return nil
}
