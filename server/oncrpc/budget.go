package oncrpc

import "sync"

// budget is the memory that calls in flight, and the replies they have reserved,
// may take together. A connection may hold an eighth of what is free: so however
// many clients are stuck, there is something left for the small calls of the
// next, and no single one can take it all.
type budget struct {
	mu   sync.Mutex
	more *sync.Cond // signals that memory was given back
	free int64
	conn int64 // the most that one connection may hold
}

// share is the part of what is free that one connection may hold.
const share = 8

func newBudget(total, conn int64) *budget {
	b := &budget{free: total, conn: conn}
	b.more = sync.NewCond(&b.mu)
	return b
}

// tryTake takes n bytes for a connection that holds some, if it may.
func (b *budget) tryTake(held *int64, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.takeLocked(held, n)
}

// take waits until it may.
func (b *budget) take(held *int64, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.takeLocked(held, n) {
		b.more.Wait()
	}
}

// takeLocked is tryTake for who holds b.mu, which also guards *held.
func (b *budget) takeLocked(held *int64, n int64) bool {
	if *held+n > min(b.conn, (b.free+*held)/share) {
		return false
	}
	*held += n
	b.free -= n
	return true
}

// give gives n bytes back.
func (b *budget) give(held *int64, n int64) {
	b.mu.Lock()
	*held -= n
	b.free += n
	b.mu.Unlock()
	b.more.Broadcast()
}
