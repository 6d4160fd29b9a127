package oncrpc

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/podnas/podnas/server/shares"
)

// The goroutine that reads a connection answers most calls itself, because handing a
// call to another goroutine takes longer than the call. But a call that waits must not delay the
// calls behind it. One that knows that it will wait hands on the reading of the connection
// to another goroutine (Wait). One that may block, or not, is watched (MayWait): a timer
// checks the connection, and if two checks in a row find the same call, it hands on the reading
// for it. In both cases the first goroutine ends when its call is answered.

const (
	// checkEvery is the time between two checks. A call delays others for twice as long
	// at most.
	checkEvery = time.Millisecond
	// idleChecks is how many checks in a row that find no such call stop the timer. To
	// start it wakes a thread.
	idleChecks = 10
)

// errReplaced ends a goroutine that another has replaced as the reader.
var errReplaced = errors.New("another goroutine reads the connection")

// reader is a goroutine while it reads the connection.
type reader struct {
	conn *conn
	// blocking is the number of the call that may block, 0 if there is none, or replaced
	// for good.
	blocking atomic.Uint64
	numbers  uint64 // given so far; only the goroutine itself uses it
}

const replaced = 1<<64 - 1

// MayWait must be called before a call, which is for a volume, makes system calls that may block, so
// that it does not delay the connection's other calls for long. surely is whether it is likely to
// block, or to take as long as many calls. While too many calls are blocked, MayWait
// waits for one of them to end. It returns false if the client has gone meanwhile: the call must
// not be begun then. The call must hold no lock: the calls that it waits for may wait for that.
func (c *Call) MayWait(volume uint64, surely bool) bool {
	c.asleep()
	if c.permit == noPermit {
		c.owner = shares.Owner{Volume: volume, Client: c.Client.Addr()}
		c.acquirePermit()
	}
	if c.Abandoned() {
		return false
	}
	if surely && !c.Alone() {
		c.handOn()
	} else {
		c.watch()
	}
	return true
}

// Wait must be called before the call waits for another goroutine, so that it delays no other
// call. It ends what MayWait has begun: a call that waits without a thread must not keep others from
// blocking.
func (c *Call) Wait() {
	c.asleep()
	c.releasePermit()
	c.handOn()
}

// Woken may be called by the goroutine that a call waits for, before it wakes several such
// calls: their replies then leave in one write, with the last of them. The call may be about to wait still.
func (c *Call) Woken() {
	c.woken.Add(1)
	c.conn.awake.Add(1)
}

// asleep ends Woken for a call that is not answered yet.
func (c *Call) asleep() {
	if n := c.woken.Swap(0); n > 0 && c.conn.awake.Add(-n) == 0 {
		c.conn.writeSoon()
	}
}

// handOn has another goroutine read the connection from here on.
func (c *Call) handOn() {
	r := c.reader
	if n := r.blocking.Load(); n != replaced && r.blocking.CompareAndSwap(n, replaced) {
		c.conn.server.readers.begin(c.conn.newReader(r.numbers))
	}
}

// newReader returns the next reader. Its calls have other numbers than those of the one before.
func (c *conn) newReader(numbers uint64) *reader {
	next := &reader{conn: c, numbers: numbers}
	c.reader.Store(next)
	return next
}

// watch has the timer check the connection, unless another goroutine reads it already.
func (c *Call) watch() {
	conn, r := c.conn, c.reader
	r.numbers++
	if !r.blocking.CompareAndSwap(0, r.numbers) {
		return // it does already
	}
	if !conn.checked.Load() && conn.checked.CompareAndSwap(false, true) {
		conn.check.Reset(checkEvery)
	}
}

// answered ends a call. It returns false if the goroutine was replaced meanwhile.
func (r *reader) answered() bool {
	n := r.blocking.Load()
	return n == 0 || n != replaced && r.blocking.CompareAndSwap(n, 0)
}

// checkReader replaces the reader if its call blocks, and reads on. The timer calls it,
// once at a time.
func (c *conn) checkReader() {
	r := c.reader.Load()
	n := r.blocking.Load()
	switch {
	case n == 0:
		if c.idle++; c.idle < idleChecks {
			break
		}
		c.idle = 0
		c.checked.Store(false)
		if c.reader.Load().blocking.Load() == 0 || !c.checked.CompareAndSwap(false, true) {
			return // the next call that may block starts the timer, or has just done so
		}
	case n != replaced && n == c.found && r.blocking.CompareAndSwap(n, replaced):
		next := c.newReader(n)
		c.found, c.idle = 0, 0
		c.check.Reset(checkEvery)
		c.flush() // the replies to the calls before the one that blocks
		c.server.readers.begin(next)
		return
	}
	if n != 0 {
		c.idle = 0
	}
	c.found = n
	c.check.Reset(checkEvery)
}
