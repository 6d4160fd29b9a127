package inodeindex

import "sync/atomic"

// Memory is what several indexes may take together. Its methods may be called concurrently.
type Memory struct {
	max     int64 // words
	words   atomic.Int64
	indexes atomic.Int64
}

// NewMemory returns a Memory of some bytes.
func NewMemory(bytes int) *Memory { return &Memory{max: int64(bytes / wordSize)} }

// part is how many words a shard may have: while there is room, as if its index had the memory alone, and
// then an equal part, so that one index with many names does not leave others without any.
func (m *Memory) part() int {
	words := m.max
	if m.words.Load() >= m.max {
		words /= max(1, m.indexes.Load())
	}
	return max(int(words/shards), shardMin)
}
