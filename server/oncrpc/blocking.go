package oncrpc

import (
	"errors"
	"sync"
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

const (
	// sparesMax is how many goroutines that may read a connection next are kept, and
	// readerCost about how many bytes one takes.
	sparesMax  = 64
	readerCost = 16 << 10
)

// readers are goroutines that read connections, one after the other. One whose call has handed on the
// reading is kept, when the call is answered, for the next that does so: its stack is
// as large as calls need, while that of a new goroutine grows, and is copied, with its first call:
// docs/internals/tried.md.
type readers struct {
	mu sync.Mutex
	// +checklocks:mu
	spare []chan *reader // of goroutines that wait in next
	// +checklocks:mu
	ended bool // none is kept any more
}

// begin has a goroutine read a connection.
func (s *readers) begin(r *reader) {
	s.mu.Lock()
	last := len(s.spare) - 1
	if last < 0 {
		s.mu.Unlock()
		go s.run(r)
		return
	}
	next := s.spare[last]
	s.spare = s.spare[:last]
	s.mu.Unlock()
	next <- r
}

// run is a goroutine.
func (s *readers) run(r *reader) {
	next := make(chan *reader, 1)
	for r != nil {
		r.conn.readOn(r)
		r = s.next(next)
	}
}

// next waits for the next connection to read. It is nil if the goroutine is to end.
func (s *readers) next(next chan *reader) *reader {
	s.mu.Lock()
	if s.ended || len(s.spare) == sparesMax {
		s.mu.Unlock()
		return nil
	}
	s.spare = append(s.spare, next)
	s.mu.Unlock()
	return <-next
}

// release ends the goroutines that read nothing, and returns how many. forGood is whether none will
// have to read.
func (s *readers) release(forGood bool) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, next := range s.spare {
		next <- nil
	}
	n = len(s.spare)
	s.spare, s.ended = nil, s.ended || forGood
	return n
}

const (
	// permitsMax is how many calls may block on the goroutines that read connections: each
	// then needs a thread, and Go never ends threads.
	permitsMax = 128
	// sharedMax of the permits are shared between volumes and clients. To take one of the
	// others takes no lock.
	sharedMax = permitsMax / 2
	// aheadMax and aheadConn are how many goroutines may wait for a permit while another
	// one reads their connections' next calls: in all, and of one connection.
	aheadMax, aheadConn = 1024, 64
)

// semaphore limits the calls that may block, of all connections. A call that
// finds no permit waits for one without a thread.
//
// Half of the permits are for any call. When they are taken, and while any call waits, the
// other half is shared. So the calls of one volume have three quarters of all permits at
// most, and those of one client seven eighths.
type semaphore struct {
	taken   atomic.Int32 // of the permits for any call
	waiting atomic.Int32 // calls; written with mu
	ahead   atomic.Int32 // goroutines that wait

	mu sync.Mutex
	// +checklocks:mu
	shared *shares.Semaphore[chan permit]
}

// permit is which kind of permit a call has.
type permit uint8

const (
	noPermit permit = iota
	anyPermit
	sharedPermit
)

func newSemaphore() *semaphore { return &semaphore{shared: shares.New[chan permit](sharedMax)} }

// acquire takes a permit if one is free. Otherwise it returns a channel on which the call
// gets one.
func (s *semaphore) acquire(o shares.Owner) (taken permit, later chan permit) {
	if s.waiting.Load() == 0 && s.try() {
		return anyPermit, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	later = make(chan permit, 1)
	if s.shared.Enter(o, later) {
		return sharedPermit, nil
	}
	s.waiting.Add(1)
	// A permit that is released from now on is given to a call that waits. This is for one
	// that was released just before.
	if s.try() {
		s.passLocked()
	}
	return noPermit, later
}

// try takes one of the permits for any call.
func (s *semaphore) try() bool {
	for taken := s.taken.Load(); taken < permitsMax-sharedMax; taken = s.taken.Load() {
		if s.taken.CompareAndSwap(taken, taken+1) {
			return true
		}
	}
	return false
}

// release gives a permit back.
func (s *semaphore) release(taken permit, o shares.Owner) {
	if taken == sharedPermit {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.shared.Leave(o)
		for later, ok := s.shared.Next(); ok; later, ok = s.shared.Next() {
			s.waiting.Add(-1)
			later <- sharedPermit
		}
		return
	}
	s.taken.Add(-1)
	if s.waiting.Load() > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.try() {
			s.passLocked()
		}
	}
}

// passLocked gives a permit that try has taken to the next call that waits.
//
// +checklocks:s.mu
func (s *semaphore) passLocked() {
	later, ok := s.shared.Pop()
	if !ok {
		s.taken.Add(-1)
		return
	}
	s.waiting.Add(-1)
	later <- anyPermit
}

// acquirePermit takes a permit for a call, which Wait or the answer releases. Before it
// waits for one, it sends the replies that are ready, and unless too many wait already,
// another goroutine reads the connection's next calls.
func (c *Call) acquirePermit() {
	conn, s := c.conn, c.conn.server.blocking
	taken, later := s.acquire(c.owner)
	if later != nil {
		conn.flush()
		fewHere, few := conn.ahead.Add(1) <= aheadConn, s.ahead.Add(1) <= aheadMax
		if fewHere && few {
			c.handOn()
		}
		taken = <-later
		conn.ahead.Add(-1)
		s.ahead.Add(-1)
	}
	c.permit = taken
}

// releasePermit releases the call's permit, if it has one.
func (c *Call) releasePermit() {
	if c.permit != noPermit {
		c.conn.server.blocking.release(c.permit, c.owner)
		c.permit = noPermit
	}
}
