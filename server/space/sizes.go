package space

import "math"

// Sizes and offsets come from clients and may be all that 63 bits hold, so sums of
// them stop at the largest number.

// blockSize is what space is allocated in, in bytes, on every file system that matters
// here.
const blockSize = 4096

// addSizes adds numbers of which the second is not negative.
func addSizes(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// roundUp is the end of the block that ends a size, which is not negative.
func roundUp(bytes int64) int64 { return addSizes(bytes, blockSize-1) &^ (blockSize - 1) }

// BytesOf is what a number of units has in bytes, at most the largest number.
func BytesOf(count uint64, unit int64) int64 {
	if unit <= 0 || count > uint64(math.MaxInt64/unit) {
		return math.MaxInt64
	}
	return int64(count) * unit
}
