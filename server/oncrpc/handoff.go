package oncrpc

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/podnas/podnas/server/shares"
)

// The goroutine that reads a connection answers most calls itself, because handing a
// call to another goroutine takes longer than the call. But a call that waits for the
// disk must not delay the calls behind it. So while a call runs that may block, a timer
// checks the connection. If two checks in a row find the same call, another goroutine
// becomes the reader. The first one ends when its call is answered.

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
	// blocking is the number of the call that may block, 0 if there is none, or replaced
	// for good.
	blocking atomic.Uint64
	numbers  uint64 // given so far; only the goroutine itself uses it
}

const replaced = 1<<64 - 1

// MayWait must be called before a call, which is for a volume, does what may block, so
// that it does not delay the connection's other calls. The handler calls it on the
// goroutine that it was called on, or, once it has promised an answer, on any: then nothing
// waits for the call. While too many calls are blocked, it waits for one of them to end. It
// returns false if the client has gone meanwhile: the call must not be begun then.
func (c *Call) MayWait(volume uint64) bool {
	if c.slot == noSlot {
		c.owner = shares.Owner{Volume: volume, Client: c.Client.Addr()}
		c.acquireSlot()
	}
	if c.Abandoned() {
		return false
	}
	c.watch()
	return true
}

// watch has the timer check the connection, unless the call was promised an answer: then the
// reader, which has gone on, is not the goroutine that may block, and two would read.
func (c *Call) watch() {
	if c.later {
		return
	}
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
		if r.blocking.Load() == 0 || !c.checked.CompareAndSwap(false, true) {
			return // the next call that may block starts the timer, or has just done so
		}
	case n == c.found && r.blocking.CompareAndSwap(n, replaced):
		next := &reader{}
		c.reader.Store(next)
		c.found, c.idle = 0, 0
		c.check.Reset(checkEvery)
		c.flush() // the replies to the calls before the one that blocks
		c.readOn(next)
		return
	}
	if n != 0 {
		c.idle = 0
	}
	c.found = n
	c.check.Reset(checkEvery)
}
