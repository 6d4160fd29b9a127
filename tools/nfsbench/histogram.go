package nfsbench

import (
	"math"
	"math/bits"
	"time"
)

const (
	// Each power of two has 2^subBits buckets, so a bucket's width, and the error
	// of percentiles, is at most 1/32 of its values.
	subBits = 5
	// Longer durations count as this, 137 s.
	maxBits = 37

	buckets = (maxBits - subBits + 1) << subBits
)

// histogram counts durations. The zero value is empty.
type histogram struct {
	counts [buckets]uint32
	total  uint64
	max    time.Duration
}

func bucket(d time.Duration) int {
	n := uint64(max(d, 0))
	if n >= 1<<maxBits {
		return buckets - 1
	}
	if n < 1<<subBits {
		return int(n)
	}
	shift := bits.Len64(n) - subBits - 1
	return (shift+1)<<subBits + int(n>>shift) - 1<<subBits
}

// middle returns the middle of a bucket's range.
func middle(i int) time.Duration {
	if i < 1<<subBits {
		return time.Duration(i)
	}
	shift := i>>subBits - 1
	low := (1<<subBits + i&(1<<subBits-1)) << shift
	return time.Duration(low + 1<<shift/2)
}

func (h *histogram) add(d time.Duration) {
	h.counts[bucket(d)]++
	h.total++
	h.max = max(h.max, d)
}

func (h *histogram) merge(other *histogram) {
	for i, n := range &other.counts {
		h.counts[i] += n
	}
	h.total += other.total
	h.max = max(h.max, other.max)
}

// quantile returns the smallest duration with at least q*total durations at or
// below it. It is 0 for an empty histogram.
func (h *histogram) quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(h.total)))
	var seen uint64
	for i, n := range &h.counts {
		seen += uint64(n)
		if n > 0 && seen >= rank {
			return min(middle(i), h.max)
		}
	}
	return h.max
}
