package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/podnas/podnas/internal/tree"
)

// differ is one Diff. It has few descriptors open at any depth, and holds at most heldMax bytes of names and blocks, besides
// those of the directory that it is in: what those farther up had is read again on the way back.
type differ struct {
	ctx     context.Context // of Diff, which waits for all of this
	emit    func(*Change) error
	earlier *earlier // with the catalogue of the earlier one; nil: it is not used

	sides   [2]tree.Cursor // the earlier one, the later one
	way     []level        // from the root to where it is
	held    int            // bytes that the levels hold
	dropped int            // this many levels from the root hold nothing
}

// The sides of a differ.
const before, after = 0, 1

const (
	// heldMax is as much as a directory with 100,000 names and its block take, and more.
	heldMax = 32 << 20
	// batchMax is how many bytes of names are read of a directory at a time. A larger one is read several times.
	batchMax = 2 << 20
	// nameCost is what a name takes besides its bytes, and recordCost a record of a block.
	nameCost, recordCost = 32, 64
	// pathMax bounds the path of a Change.
	pathMax = 16 << 10
)

// level is a directory on the way.
type level struct {
	name  string // "": the root
	inode uint64 // of the later one
	kind  Kind   // Added or Removed: so is all that is below, and it is on one side; "": it is on both
	// inPlace is whether the catalogue has had this directory at this path.
	inPlace bool

	last  string      // the last name that was compared
	twice bool        // it is to be looked at again, on the later side
	names [2][]string // that come next, in order
	read  [2]bool     // there are no more names than those
	block *block      // what the catalogue has of it; nil: nothing is known
	known bool        // block is set
	held  int         // bytes that names and block take
}

// has reports whether the directory is on a side.
func (l *level) has(side int) bool {
	return l.kind == "" || side == before && l.kind == Removed || side == after && l.kind == Added
}

// run compares what is in the roots.
func (d *differ) run(from, to *os.File, inode uint64) error {
	defer func() {
		d.sides[before].Close()
		d.sides[after].Close()
	}()
	for side, root := range []*os.File{from, to} {
		if err := d.sides[side].Begin(root); err != nil {
			return err
		}
	}
	d.push(level{inode: inode})
	for len(d.way) > 0 {
		if d.ctx.Err() != nil {
			return context.Cause(d.ctx)
		}
		if err := d.step(); err != nil {
			return err
		}
	}
	return nil
}

// step compares the next name, or leaves the directory if there is none.
func (d *differ) step() error {
	l := &d.way[len(d.way)-1]
	d.remember(l)
	on, ok, err := d.next(l)
	if err != nil {
		return fmt.Errorf("list %q: %w", d.path(""), err)
	}
	if !ok {
		return d.up()
	}
	var found [2]*named
	for side := range found {
		if !on[side] {
			continue
		}
		if found[side], err = look(d.sides[side].Dir(), l.last); err != nil {
			return fmt.Errorf("%q: %w", d.path(l.last), err)
		}
	}
	return d.name(l, found[before], found[after])
}

// next sets the last name of a level to the next one, and reports on which sides that is.
func (d *differ) next(l *level) (on [2]bool, ok bool, err error) {
	if l.twice {
		l.twice = false
		return [2]bool{after: true}, true, nil
	}
	for side := range l.names {
		if l.has(side) && len(l.names[side]) == 0 && !l.read[side] {
			if err := d.readNames(l, side); err != nil {
				return on, false, err
			}
		}
	}
	a, b := l.names[before], l.names[after]
	switch {
	case len(a) == 0 && len(b) == 0:
		return on, false, nil
	case len(a) == 0:
		on[after] = true
	case len(b) == 0:
		on[before] = true
	default:
		order := strings.Compare(a[0], b[0])
		on[before], on[after] = order <= 0, order >= 0
	}
	for side := range on {
		if on[side] {
			l.last = l.names[side][0]
			l.names[side] = l.names[side][1:]
		}
	}
	return on, true, nil
}

// readNames reads the next names of a level on a side.
func (d *differ) readNames(l *level, side int) error {
	names, all, err := namesAfter(d.sides[side].Dir(), l.last, batchMax)
	if err != nil {
		return err
	}
	l.names[side], l.read[side] = names, all
	d.measure(l)
	return nil
}

// measure counts again what a level holds.
func (d *differ) measure(l *level) {
	d.held -= l.held
	l.held = costOf(l.names[before]) + costOf(l.names[after])
	if l.block != nil {
		for i := range l.block.records {
			l.held += recordCost + len(l.block.records[i].name)
		}
	}
	d.held += l.held
}

func costOf(names []string) (cost int) {
	for _, name := range names {
		cost += nameCost + len(name)
	}
	return cost
}

// push goes on in a directory, where the sides are already, and drops what those farthest up hold, if that is much.
func (d *differ) push(l level) {
	d.way = append(d.way, l)
	for ; d.held > heldMax && d.dropped < len(d.way)-1; d.dropped++ {
		l := &d.way[d.dropped]
		d.held -= l.held
		for side := range l.names {
			l.read[side] = l.read[side] && len(l.names[side]) == 0
		}
		l.names, l.block, l.known, l.held = [2][]string{}, nil, false, 0
	}
}

// up leaves the directory.
func (d *differ) up() error {
	l := &d.way[len(d.way)-1]
	for side := range d.sides {
		if !l.has(side) {
			continue
		}
		err := d.sides[side].Up()
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("it was moved meanwhile; try again")
		}
		if err != nil {
			return fmt.Errorf("leave %q: %w", d.path(""), err)
		}
	}
	d.held -= l.held
	d.way = d.way[:len(d.way)-1]
	d.dropped = min(d.dropped, len(d.way))
	return nil
}

// remember sets what the catalogue has of a directory, if it had this path: else more is read.
func (d *differ) remember(l *level) {
	if l.known || l.kind != "" {
		return
	}
	l.known = true
	if d.earlier == nil || len(d.way) > 1 && !d.way[len(d.way)-2].inPlace {
		return
	}
	b, err := d.earlier.catalogue.directory(l.inode)
	if err != nil {
		return
	}
	above := uint64(0)
	if len(d.way) > 1 {
		above = d.way[len(d.way)-2].inode
	}
	if l.inPlace = b.above == above && b.name == l.name; l.inPlace {
		l.block = b
		d.measure(l)
	}
}

// path is the path of a name in the current directory; "" is the directory. Of one that is longer than any program can use, the
// beginning is replaced by "...".
func (d *differ) path(name string) string {
	parts, size := []string{}, 0
	if name != "" {
		parts, size = append(parts, name), len(name)
	}
	for i := len(d.way) - 1; i > 0; i-- {
		if size > pathMax {
			parts = append(parts, "...")
			break
		}
		parts = append(parts, d.way[i].name)
		size += 1 + len(d.way[i].name)
	}
	if len(parts) == 0 {
		return "."
	}
	slices.Reverse(parts)
	return strings.Join(parts, "/")
}

// namesAfter returns the names in a directory that come after one in the order of their bytes, as far as they take at most so
// many bytes, but at least the first. all is whether there are no more.
func namesAfter(dir *os.File, last string, most int) (names []string, all bool, err error) {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return nil, false, err
	}
	all = true
	size, end := 0, "" // names after end, if it is set, are beyond most
	trim := func() {
		slices.Sort(names)
		names = slices.Compact(names) // of one that was renamed meanwhile
		size = 0
		for i, name := range names {
			if size += nameCost + len(name); size > most && i > 0 {
				all, end = false, names[i-1]
				clear(names[i:])
				names = names[:i]
				size = most
				return
			}
		}
	}
	for {
		some, err := dir.Readdirnames(1000)
		for _, name := range some {
			if name > last && (end == "" || name < end) {
				names = append(names, name)
				size += nameCost + len(name)
			}
		}
		if size > 2*most {
			trim()
		}
		if errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist) { // it is removed
			trim()
			return names, all, nil
		}
		if err != nil {
			return nil, false, err
		}
	}
}
