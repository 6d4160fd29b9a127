package state

import (
	"math"
	"slices"

	"github.com/podnas/podnas/nfs/nfs4"
)

// lockRange is a range of bytes that is locked. It includes last, so that it can go
// to the end of the largest file.
type lockRange struct {
	first, last uint64
	write       bool
}

// newRange returns the range of a request, RFC 8881 section 18.10.3. A length of all
// ones is to the end of the file, whatever its size.
func newRange(offset, length uint64, write bool) (lockRange, nfs4.Status) {
	switch {
	case length == math.MaxUint64:
		return lockRange{offset, math.MaxUint64, write}, nfs4.OK
	case length == 0, length > math.MaxUint64-offset:
		return lockRange{}, nfs4.ErrInval
	}
	return lockRange{offset, offset + length - 1, write}, nfs4.OK
}

// length is that of newRange.
func (r lockRange) length() uint64 {
	if r.last == math.MaxUint64 {
		return math.MaxUint64
	}
	return r.last - r.first + 1
}

// comesAfter reports whether it is a range that can be the next of those of an owner.
func (r lockRange) comesAfter(ranges []lockRange) bool {
	if r.first > r.last || len(ranges) == 0 {
		return r.first <= r.last
	}
	before := ranges[len(ranges)-1]
	return r.first > before.last && (r.first > before.last+1 || r.write != before.write)
}

func (r lockRange) overlaps(o lockRange) bool { return r.first <= o.last && o.first <= r.last }

// excludes reports whether two owners can't have both.
func (r lockRange) excludes(o lockRange) bool { return (r.write || o.write) && r.overlaps(o) }

// search returns the index of the first of the ranges that ends at first or later.
func search(ranges []lockRange, first uint64) int {
	i, _ := slices.BinarySearchFunc(ranges, first, func(r lockRange, first uint64) int {
		if r.last < first {
			return -1
		}
		return 1
	})
	return i
}

// firstExcluded returns the first of the ranges that excludes r, or nil.
func firstExcluded(ranges []lockRange, r lockRange) *lockRange {
	for i := search(ranges, r.first); i < len(ranges) && ranges[i].first <= r.last; i++ {
		if ranges[i].excludes(r) {
			return &ranges[i]
		}
	}
	return nil
}

// edit is a change of an owner's ranges: those from one index to before another become pieces.
type edit struct {
	from, to int
	pieces   [3]lockRange
	n        int // of pieces
}

// more is how many ranges more there are after the change.
func (e *edit) more() int { return e.n - (e.to - e.from) }

// apply uses the memory of ranges.
func (e *edit) apply(ranges []lockRange) []lockRange {
	return slices.Replace(ranges, e.from, e.to, e.pieces[:e.n]...)
}

func (e *edit) add(r lockRange) {
	e.pieces[e.n] = r
	e.n++
}

// setRange locks r as POSIX does: what the owner had of these bytes changes its
// type, and ranges of one type that touch become one.
func setRange(ranges []lockRange, r lockRange) (e edit) {
	// From the one that ends just before r to the one that begins just after it.
	e.from = search(ranges, r.first-min(r.first, 1))
	e.to = e.from
	var right *lockRange
	// Those of the other type reach at least to r.first-1, or begin at r.last+1 at most.
	for ; e.to < len(ranges) && (r.last == math.MaxUint64 || ranges[e.to].first <= r.last+1); e.to++ {
		old := ranges[e.to]
		if old.write == r.write {
			r.first, r.last = min(r.first, old.first), max(r.last, old.last)
			continue
		}
		if old.first < r.first {
			e.add(lockRange{old.first, r.first - 1, old.write})
		}
		if old.last > r.last {
			right = &lockRange{r.last + 1, old.last, old.write}
		}
	}
	e.add(r)
	if right != nil {
		e.add(*right)
	}
	return e
}

// clearRange unlocks the bytes of r, of both types.
func clearRange(ranges []lockRange, r lockRange) (e edit) {
	e.from = search(ranges, r.first)
	e.to = e.from
	for ; e.to < len(ranges) && ranges[e.to].first <= r.last; e.to++ {
		old := ranges[e.to]
		if old.first < r.first {
			e.add(lockRange{old.first, r.first - 1, old.write})
		}
		if old.last > r.last {
			e.add(lockRange{r.last + 1, old.last, old.write})
		}
	}
	return e
}
