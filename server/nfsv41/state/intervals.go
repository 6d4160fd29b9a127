package state

import "math/rand/v2"

// intervals finds among many ranges those that exclude another, in O(log n) and a little for each that
// it finds. It is a treap by the first byte, whose nodes know how far the ranges below them reach.
type intervals[T any] struct {
	root  *interval[T]
	spare *interval[T] // the one that was removed last: who locks and unlocks again and again allocates none
}

// interval is a range of one that has it. Two of one first byte have different numbers.
type interval[T any] struct {
	lockRange
	of          T
	number      uint64
	priority    uint32
	writes      bool // whether it or one below is for writing
	left, right *interval[T]
	reach       uint64 // the last byte of it and those below
	writeReach  uint64 // of those for writing, if there are
}

// update computes what n knows of those below.
func (n *interval[T]) update() {
	n.reach, n.writes, n.writeReach = n.last, n.write, n.last
	if !n.write {
		n.writeReach = 0
	}
	for _, below := range [...]*interval[T]{n.left, n.right} {
		if below != nil {
			n.reach = max(n.reach, below.reach)
			n.writes = n.writes || below.writes
			n.writeReach = max(n.writeReach, below.writeReach)
		}
	}
}

func (n *interval[T]) before(first, number uint64) bool {
	return n.first < first || n.first == first && n.number < number
}

// add adds a range. It returns the steps that it took, as the others do.
func (t *intervals[T]) add(r lockRange, number uint64, of T) (steps int) {
	added := t.spare
	if t.spare = nil; added == nil {
		added = &interval[T]{}
	}
	*added = interval[T]{lockRange: r, of: of, number: number, priority: rand.Uint32()}
	at := &t.root
	for *at != nil && (*at).priority >= added.priority {
		n := *at
		n.reach = max(n.reach, r.last)
		if r.write {
			n.writes, n.writeReach = true, max(n.writeReach, r.last)
		}
		if at = &n.right; !n.before(r.first, number) {
			at = &n.left
		}
		steps++
	}
	added.left, added.right = split(*at, r.first, number, &steps)
	added.update()
	*at = added
	return steps + 1
}

// split parts the ranges below n into those before a key and those after it.
func split[T any](n *interval[T], first, number uint64, steps *int) (left, right *interval[T]) {
	if n == nil {
		return nil, nil
	}
	*steps++
	if n.before(first, number) {
		n.right, right = split(n.right, first, number, steps)
		n.update()
		return n, right
	}
	left, n.left = split(n.left, first, number, steps)
	n.update()
	return left, n
}

// remove removes the range that begins at first and has this number, if there is one.
func (t *intervals[T]) remove(first, number uint64) (steps int) {
	t.root = t.removeBelow(t.root, first, number, &steps)
	return steps
}

func (t *intervals[T]) removeBelow(n *interval[T], first, number uint64, steps *int) *interval[T] {
	if n == nil {
		return nil
	}
	*steps++
	switch {
	case n.first == first && n.number == number:
		below := join(n.left, n.right, steps)
		*n = interval[T]{} // it holds on to nothing
		t.spare = n
		return below
	case n.before(first, number):
		n.right = t.removeBelow(n.right, first, number, steps)
	default:
		n.left = t.removeBelow(n.left, first, number, steps)
	}
	n.update()
	return n
}

// join joins two parts, of which the left is before the right.
func join[T any](left, right *interval[T], steps *int) *interval[T] {
	switch {
	case left == nil:
		return right
	case right == nil:
		return left
	}
	*steps++
	if left.priority >= right.priority {
		left.right = join(left.right, right, steps)
		left.update()
		return left
	}
	right.left = join(left, right.left, steps)
	right.update()
	return right
}

// excluding calls visit for each range that excludes r, until it returns false.
func (t *intervals[T]) excluding(r lockRange, steps *int, visit func(*interval[T]) bool) {
	t.root.excluding(r, steps, visit)
}

func (n *interval[T]) excluding(r lockRange, steps *int, visit func(*interval[T]) bool) bool {
	if n == nil {
		return true
	}
	*steps++
	if n.reach < r.first || !r.write && (!n.writes || n.writeReach < r.first) {
		return true
	}
	if !n.left.excluding(r, steps, visit) {
		return false
	}
	if n.first > r.last {
		return true
	}
	return (!n.excludes(r) || visit(n)) && n.right.excluding(r, steps, visit)
}
