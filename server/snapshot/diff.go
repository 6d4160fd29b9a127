package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/podnas/podnas/internal/tree"
)

// Change is a difference between a snapshot and what came later.
type Change struct {
	Kind Kind
	Path string // below the root of the volume, with a "/" at its end if it is a directory; "." is the root
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
// vanish meanwhile are not there. It ends with the first error of emit, or context.Cause of ctx.
func Diff(ctx context.Context, a, b *Earlier, isVolume bool, emit func(*Change) error) error {
	d := differ{ctx: ctx, emit: emit}
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
	if err := d.both("", &named{from, ".", &stA}, &named{to, ".", &stB}, false); err != nil {
		return err
	}
	return d.dirs("", from, to, stB.Ino)
}

// differ is one Diff.
type differ struct {
	ctx     context.Context // of Diff, which waits for all of this
	emit    func(*Change) error
	earlier *earlier // with the catalogue of the earlier one; nil: it is not used
}

// named is a name in a directory.
type named struct {
	dir  *os.File
	name string
	st   *tree.Statx
}

// dirs compares what is in two directories. inode is that of the volume, if that is what the snapshot is compared with.
func (d *differ) dirs(at string, a, b *os.File, inode uint64) error {
	namesA, err := sortedNames(a)
	if err != nil {
		return err
	}
	namesB, err := sortedNames(b)
	if err != nil {
		return err
	}
	block := d.block(at, inode)
	for len(namesA) > 0 || len(namesB) > 0 {
		if d.ctx.Err() != nil {
			return context.Cause(d.ctx)
		}
		var order int
		switch {
		case len(namesA) == 0:
			order = 1
		case len(namesB) == 0:
			order = -1
		default:
			order = strings.Compare(namesA[0], namesB[0])
		}
		var one, other *named
		if order <= 0 {
			if one, err = look(a, namesA[0]); err != nil {
				return err
			}
			namesA = namesA[1:]
		}
		if order >= 0 {
			if other, err = look(b, namesB[0]); err != nil {
				return err
			}
			namesB = namesB[1:]
		}
		if err := d.name(at, one, other, block); err != nil {
			return err
		}
	}
	return nil
}

// block returns what the catalogue has of a directory of the volume, nil if that is not known, or the directory had another path:
// then more is read.
func (d *differ) block(at string, inode uint64) *block {
	if d.earlier == nil {
		return nil
	}
	was, err := d.earlier.catalogue.path(inode)
	if err != nil || path.Clean(was) != path.Clean(at) {
		return nil
	}
	b, err := d.earlier.catalogue.directory(inode)
	if err != nil {
		return nil
	}
	return b
}

// look returns a name with what StatIn says of it, nil if it is gone.
func look(dir *os.File, name string) (*named, error) {
	st, err := tree.StatIn(int(dir.Fd()), name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%q: %w", name, err)
	}
	return &named{dir, name, &st}, nil
}

// name compares one name; nil is one that is not there.
func (d *differ) name(at string, a, b *named, block *block) error {
	switch {
	case a == nil && b == nil:
		return nil
	case a == nil:
		return d.all(at, b, Added)
	case b == nil:
		return d.all(at, a, Removed)
	case a.st.Mode>>12 != b.st.Mode>>12: // the type
		if err := d.all(at, a, Removed); err != nil {
			return err
		}
		return d.all(at, b, Added)
	}
	known := a.st.Ino == b.st.Ino && a.st.IsOn(b.st)
	if block != nil {
		r, ok := block.find(b.st.Ino)
		known = ok && r.is(b.st) && r.name == a.name
	}
	if err := d.both(at, a, b, known && !b.st.IsDir()); err != nil || !b.st.IsDir() {
		return err
	}
	one, err := tree.OpenDir(a.dir, a.name)
	if err != nil {
		return fmt.Errorf("%q: %w", path.Join(at, a.name), err)
	}
	defer func() { _ = one.Close() }() // only read from
	other, err := tree.OpenDir(b.dir, b.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%q: %w", path.Join(at, b.name), err)
	}
	defer func() { _ = other.Close() }() // only read from
	return d.dirs(path.Join(at, b.name), one, other, b.st.Ino)
}

// both compares two files of one type and name. known is whether it is certain that they are the same.
func (d *differ) both(at string, a, b *named, known bool) error {
	if known {
		return nil
	}
	what, err := tree.Compare(a.dir, a.name, a.st, b.dir, b.name, b.st)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was removed meanwhile
	}
	if err != nil {
		return fmt.Errorf("%q: %w", path.Join(at, b.name), err)
	}
	if what == 0 {
		return nil
	}
	return d.emit(b.change(at, Changed, what))
}

// change describes a change of a name.
func (n *named) change(at string, kind Kind, what tree.Difference) *Change {
	c := &Change{Kind: kind, Path: path.Join(at, n.name), What: what}
	switch {
	case n.st.IsDir() && c.Path != ".":
		c.Path += "/"
	case n.st.IsRegular():
		c.Size = int64(n.st.Size)
	}
	return c
}

// all emits a name, and all that is below it.
func (d *differ) all(at string, n *named, kind Kind) error {
	if err := d.emit(n.change(at, kind, 0)); err != nil || !n.st.IsDir() {
		return err
	}
	dir, err := tree.OpenDir(n.dir, n.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%q: %w", path.Join(at, n.name), err)
	}
	defer func() { _ = dir.Close() }() // only read from
	names, err := sortedNames(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if d.ctx.Err() != nil {
			return context.Cause(d.ctx)
		}
		below, err := look(dir, name)
		if err == nil && below != nil {
			err = d.all(path.Join(at, n.name), below, kind)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sortedNames returns the names in a directory.
func sortedNames(dir *os.File) ([]string, error) {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir.Name(), err)
	}
	slices.Sort(names)
	return names, nil
}
