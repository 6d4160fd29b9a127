package stats

import (
	"slices"
	"sync/atomic"
	"time"
)

// buckets is one per bound, and one for longer durations.
const buckets = 21 + 1

// bounds are the buckets' upper bounds, inclusive; the last bucket has none. The
// first are for calls answered from the kernel's cache, the last for a disk that
// hangs.
var bounds = [buckets - 1]time.Duration{ //nolint:gochecknoglobals // a constant, if Go had such
	2500 * time.Nanosecond, 5 * time.Microsecond, 10 * time.Microsecond, 25 * time.Microsecond, 50 * time.Microsecond,
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// Bounds returns the upper bounds of a Distribution's buckets. The last bucket has
// none.
func Bounds() []time.Duration { return slices.Clone(bounds[:]) }

// Durations is a histogram of durations. The zero Durations is ready for use.
type Durations struct {
	sum     atomic.Int64
	buckets [buckets]atomic.Uint64
}

// Add adds one.
func (d *Durations) Add(took time.Duration) {
	d.sum.Add(int64(took))
	d.buckets[bucket(took)].Add(1)
}

// bucket returns a duration's bucket, mostly after one to three comparisons.
func bucket(took time.Duration) int {
	for i := range bounds {
		if took <= bounds[i] {
			return i
		}
	}
	return buckets - 1
}

// Snapshot returns the current counts.
func (d *Durations) Snapshot() Distribution {
	var s Distribution
	s.add(d)
	return s
}

// Distribution is a snapshot of Durations.
type Distribution struct {
	Count   uint64
	Sum     time.Duration
	Buckets [buckets]uint64 // the count of each, not cumulative
}

func (s *Distribution) add(d *Durations) {
	s.Sum += time.Duration(d.sum.Load())
	for i := range d.buckets {
		n := d.buckets[i].Load()
		s.Buckets[i] += n
		s.Count += n
	}
}

// Add adds another's counts.
func (s *Distribution) Add(other *Distribution) {
	s.Count += other.Count
	s.Sum += other.Sum
	for i, n := range other.Buckets {
		s.Buckets[i] += n
	}
}

// Sub subtracts an earlier snapshot.
func (s *Distribution) Sub(before *Distribution) {
	s.Count -= before.Count
	s.Sum -= before.Sum
	for i, n := range before.Buckets {
		s.Buckets[i] -= n
	}
}

// Quantile estimates from the buckets the duration that a part of them, for example
// 0.99, does not exceed. It is 0 if there are none.
func (s *Distribution) Quantile(part float64) time.Duration {
	left := part * float64(s.Count)
	for i, n := range s.Buckets {
		if n == 0 || float64(n) < left {
			left -= float64(n)
			continue
		}
		if i == len(bounds) {
			return bounds[len(bounds)-1] // or longer
		}
		low := time.Duration(0)
		if i > 0 {
			low = bounds[i-1]
		}
		return low + time.Duration(left/float64(n)*float64(bounds[i]-low))
	}
	return 0
}
