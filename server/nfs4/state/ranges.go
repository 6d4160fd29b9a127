package state

import (
	"math"
	"slices"
)

// lockRange is a range of bytes that is locked. It includes last, so that it can go
// to the end of the largest file.
type lockRange struct {
	first, last uint64
	write       bool
}

// newRange returns the range of a request, RFC 8881 section 18.10.3. A length of all
// ones is to the end of the file, whatever its size.
func newRange(offset, length uint64, write bool) (lockRange, Error) {
	switch {
	case length == math.MaxUint64:
		return lockRange{offset, math.MaxUint64, write}, OK
	case length == 0, length > math.MaxUint64-offset:
		return lockRange{}, ErrInval
	}
	return lockRange{offset, offset + length - 1, write}, OK
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

// setRange locks r as POSIX does: what the owner had of these bytes changes its
// type, and ranges of one type that touch become one. It uses the memory of ranges.
func setRange(ranges []lockRange, r lockRange) []lockRange {
	// From the one that ends just before r to the one that begins just after it.
	i := search(ranges, r.first-min(r.first, 1))
	j := i
	var pieces [3]lockRange
	n := 0
	var right *lockRange
	// Those of the other type reach at least to r.first-1, or begin at r.last+1 at most.
	for ; j < len(ranges) && (r.last == math.MaxUint64 || ranges[j].first <= r.last+1); j++ {
		old := ranges[j]
		if old.write == r.write {
			r.first, r.last = min(r.first, old.first), max(r.last, old.last)
			continue
		}
		if old.first < r.first {
			pieces[n] = lockRange{old.first, r.first - 1, old.write}
			n++
		}
		if old.last > r.last {
			right = &lockRange{r.last + 1, old.last, old.write}
		}
	}
	pieces[n] = r
	n++
	if right != nil {
		pieces[n] = *right
		n++
	}
	return slices.Replace(ranges, i, j, pieces[:n]...)
}

// clearRange unlocks the bytes of r, of both types. It uses the memory of ranges.
func clearRange(ranges []lockRange, r lockRange) []lockRange {
	i := search(ranges, r.first)
	j := i
	var pieces [2]lockRange
	n := 0
	for ; j < len(ranges) && ranges[j].first <= r.last; j++ {
		old := ranges[j]
		if old.first < r.first {
			pieces[n] = lockRange{old.first, r.first - 1, old.write}
			n++
		}
		if old.last > r.last {
			pieces[n] = lockRange{r.last + 1, old.last, old.write}
			n++
		}
	}
	return slices.Replace(ranges, i, j, pieces[:n]...)
}
