package oncrpc

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/podnas/podnas/server/shares"
)

// The goroutine that reads a connection's calls answers most of them itself: to
// hand one to another goroutine takes longer than the call. A call that turns out
// to wait for the disk must not hold up those behind it. So the connection is
// looked at while calls that may wait are made, and when the same one is still
// there at the next look, another goroutine takes the turn and reads on. The first
// ends when its call is answered.

const (
	// lookEvery is how often a connection is looked at. A call holds up others for
	// twice as long at most.
	lookEvery = time.Millisecond
	// idleLooks is after how many looks at nothing it is not looked at any more. To
	// begin anew wakes a thread.
	idleLooks = 10
)

// errTurnTaken ends a goroutine whose turn was taken.
var errTurnTaken = errors.New("another goroutine reads the connection")

// turn is one goroutine's time of reading the connection.
type turn struct {
	// waiting is the number of the call that may wait, 0 if there is none, or
	// turnTaken for good.
	waiting atomic.Uint64
	numbers uint64 // given so far; the reading goroutine's
}

const turnTaken = 1<<64 - 1

// MayWait says that answering the call, which is for a volume, may have to wait, so that
// the connection's other calls are not held up. The handler calls it on the goroutine
// that it was called on. While too many
// calls wait already, it waits for one of them to end. It is false if the client has gone
// meanwhile: the call is not to be begun then.
func (c *Call) MayWait(volume uint64) bool {
	if c.place == 0 {
		c.owner = shares.Owner{Volume: volume, Client: c.Client.Addr()}
		c.enter()
	}
	if c.Abandoned() {
		return false
	}
	c.watch()
	return true
}

// watch has the connection looked at, whether the call holds it up.
func (c *Call) watch() {
	conn, t := c.conn, c.turn
	t.numbers++
	if !t.waiting.CompareAndSwap(0, t.numbers) {
		return // it was said before
	}
	if !conn.watched.Load() && conn.watched.CompareAndSwap(false, true) {
		conn.look.Reset(lookEvery)
	}
}

// answered says that the call is, and is false if the turn was taken meanwhile.
func (t *turn) answered() bool {
	n := t.waiting.Load()
	return n == 0 || n != turnTaken && t.waiting.CompareAndSwap(n, 0)
}

// lookAt takes the turn from a goroutine that waits, and goes on reading. The
// timer calls it, once at a time.
func (c *conn) lookAt() {
	t := c.turn.Load()
	n := t.waiting.Load()
	switch {
	case n == 0:
		if c.idle++; c.idle < idleLooks {
			break
		}
		c.idle = 0
		c.watched.Store(false)
		if t.waiting.Load() == 0 || !c.watched.CompareAndSwap(false, true) {
			return // who waits next, or just began to, has the connection watched
		}
	case n == c.looked && t.waiting.CompareAndSwap(n, turnTaken):
		next := &turn{}
		c.turn.Store(next)
		c.looked, c.idle = 0, 0
		c.look.Reset(lookEvery)
		c.flush() // what was answered before the call that waits
		c.readOn(next)
		return
	}
	if n != 0 {
		c.idle = 0
	}
	c.looked = n
	c.look.Reset(lookEvery)
}
