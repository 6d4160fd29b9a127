package oncrpc

import (
	"container/list"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
)

// Budget bounds the memory of calls in flight and of the replies that they have reserved.
// No client can take all of it:
//
//   - The first call of each connection, if it is small, is not counted. There is memory
//     for one of every connection, so a small call never waits for others.
//   - A quarter is reserved for addresses that have at most one call of the largest size.
//   - Of the rest, an address may hold as much as it leaves free, and a connection an eighth
//     of what is free.
//   - The addresses of a network (NetworkOf) hold all but that quarter together.
//   - Memory that is given back goes to the address that holds least among those that wait.
//   - A call waits at most once, for its arguments or for its results: it never holds the memory of one while it waits for
//     the other.
type Budget struct {
	conn    int64 // the most that one connection may hold
	reserve int64 // for addresses that have little
	network int64 // the most that one network may hold

	mu sync.Mutex
	// +checklocks:mu
	free int64
	// +checklocks:mu
	waiting list.List    // of *waiter
	waiters atomic.Int32 // in the list; written with mu
	// short has a value when a wait has begun.
	short chan struct{}
}

const (
	// callBytes is the bytes of a Call, with a small record, a small reply, and the handler's
	// State. callCost is that and the stack of a goroutine, which a call has for itself
	// when it waits: 8 to 12 KiB.
	callBytes = 4 << 10
	callCost  = callBytes + 8<<10
	// largest is the bytes of the largest call.
	largest = callCost + recordMax + replyHead
	// connShare and peerShare are the parts of what is free that one connection and
	// one address may hold.
	connShare = 8
	peerShare = 2
	// reservePart is the part of all, one of so many, for addresses that have little.
	reservePart = 4
	// budgetTotal and budgetConn are those of every server except in tests.
	budgetTotal = 256 << 20
	budgetConn  = 16 << 20 // a client's usual depth of 1 MiB writes
)

// Holding is what one connection holds of a budget.
type Holding struct {
	peer    *Peer
	own     atomic.Bool  // the small call that is not counted is in use
	waiting atomic.Int32 // waiters of this connection; written with Budget.mu
	bytes   int64        // guarded by Budget.mu
}

// waiter waits for memory.
type waiter struct {
	holding *Holding
	n       int64
	small   bool // any memory will do: that of the small call too
	own     bool // it is that of the small call; read after ready
	ready   chan struct{}
}

// errNoMemory means that the connection ended while it waited for memory.
var errNoMemory = errors.New("oncrpc: ended while it waited for memory")

// NewBudget returns the budget of a server.
func NewBudget() *Budget { return newBudget(budgetTotal, budgetConn) }

func newBudget(total, conn int64) *Budget {
	return &Budget{free: total, reserve: total / reservePart, network: total - total/reservePart, conn: conn, short: make(chan struct{}, 1)}
}

// NewHolding returns the empty Holding of a connection.
func NewHolding(peer *Peer) *Holding { return &Holding{peer: peer} }

// TryTake takes n bytes if the connection may.
func (b *Budget) TryTake(h *Holding, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.mayLocked(h, n) {
		return false
	}
	b.accountLocked(h, n)
	return true
}

// Take waits until the connection may take n bytes, or is gone. Before it, the caller must send
// the replies that only its goroutine sends: the client may wait for them.
func (b *Budget) Take(h *Holding, n int64, gone <-chan struct{}) error {
	_, err := b.wait(&waiter{holding: h, n: n}, gone)
	return err
}

// tryTakeCall takes the memory of a Call. own reports whether it is that of the
// connection's small call.
func (b *Budget) tryTakeCall(h *Holding) (own, ok bool) {
	if h.own.CompareAndSwap(false, true) {
		return true, true
	}
	return false, b.TryTake(h, callCost)
}

// takeCall is tryTakeCall that waits.
func (b *Budget) takeCall(h *Holding, gone <-chan struct{}) (own bool, err error) {
	return b.wait(&waiter{holding: h, n: callCost, small: true}, gone)
}

// giveCall gives the memory of a Call back.
func (b *Budget) giveCall(h *Holding, own bool) {
	if !own {
		b.Give(h, callCost)
		return
	}
	h.own.Store(false)
	if h.waiting.Load() > 0 { // a wait that begins after this finds that own is not set
		b.mu.Lock()
		b.grantLocked()
		b.mu.Unlock()
	}
}

// Give gives n bytes back.
func (b *Budget) Give(h *Holding, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.bytes -= n
	h.peer.bytes -= n
	h.peer.network.bytes -= n
	b.free += n
	if b.waiters.Load() > 0 {
		b.grantLocked()
	}
}

// force takes n bytes that are used already.
func (b *Budget) force(h *Holding, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.accountLocked(h, n)
}

// accountLocked adds n bytes to what the connection has.
//
// +checklocks:b.mu
func (b *Budget) accountLocked(h *Holding, n int64) {
	h.bytes += n
	h.peer.bytes += n
	h.peer.network.bytes += n
	b.free -= n
}

// mayLocked reports whether the connection may take n bytes more.
//
// +checklocks:b.mu
func (b *Budget) mayLocked(h *Holding, n int64) bool {
	if held := h.peer.network.bytes; held > 0 && held+n > b.network {
		return false
	}
	if h.peer.bytes+n <= largest {
		return n <= b.free
	}
	free := b.free - b.reserve
	return n <= free && h.bytes+n <= min(b.conn, (free+h.bytes)/connShare) && h.peer.bytes+n <= (free+h.peer.bytes)/peerShare
}

// wait waits until there is memory for w.
func (b *Budget) wait(w *waiter, gone <-chan struct{}) (own bool, err error) {
	w.ready = make(chan struct{})
	b.mu.Lock()
	b.waiters.Add(1)
	w.holding.waiting.Add(1)
	at := b.waiting.PushBack(w)
	b.grantLocked() // some may have been given back since TryTake
	b.mu.Unlock()
	select {
	case b.short <- struct{}{}:
	default: // it has a value
	}
	select {
	case <-w.ready:
		return w.own, nil
	case <-gone:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.ready: // just now
		return w.own, nil
	default:
	}
	b.removeLocked(at)
	return false, errNoMemory
}

// removeLocked ends a wait.
//
// +checklocks:b.mu
func (b *Budget) removeLocked(at *list.Element) {
	b.waiters.Add(-1)
	b.waiting.Remove(at).(*waiter).holding.waiting.Add(-1)
}

// grantLocked gives memory to those that wait for it.
//
// +checklocks:b.mu
func (b *Budget) grantLocked() {
	for {
		var best *list.Element
		for e := b.waiting.Front(); e != nil; e = e.Next() {
			w := e.Value.(*waiter)
			if w.small && w.holding.own.CompareAndSwap(false, true) {
				w.own = true
				best = e
				break
			}
			if best != nil && best.Value.(*waiter).holding.peer.bytes <= w.holding.peer.bytes {
				continue
			}
			if b.mayLocked(w.holding, w.n) {
				best = e
			}
		}
		if best == nil {
			return
		}
		w := best.Value.(*waiter)
		if !w.own {
			b.accountLocked(w.holding, w.n)
		}
		b.removeLocked(best)
		close(w.ready)
	}
}

// Scarce reports whether a connection must hurry: others wait for memory, it has some, and
// its address holds much, which is more than one large call and than a third of what others
// could have. When even the reserve is used, any memory is much.
func (b *Budget) Scarce(h *Holding) bool {
	if b.waiters.Load() == 0 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	held := h.peer.bytes
	return h.bytes > 0 && (b.free < largest || held > largest && 3*held > b.free-b.reserve)
}

// bufferSizes are the classes of buffers: for a call or reply with 4 KiB, 64 KiB, 256 KiB
// and 1 MiB of data, and its headers. The memory of smaller ones is in the Call.
var bufferSizes = [...]int{5 << 10, 66 << 10, 260 << 10, recordMax + replyHead} //nolint:gochecknoglobals // a constant, if Go had such

// buffers is a bounded free list. A sync.Pool would give large buffers to the garbage
// collector just when there is much to do.
type buffers struct {
	classes [len(bufferSizes)]freeList[[]byte]
}

// freeList has what can be used again. take returns what was put last: it is still in the
// processor's cache.
type freeList[T any] struct {
	mu sync.Mutex
	// +checklocks:mu
	free []T
	_    [32]byte // the next list is on another cache line
}

// keptBytes is how much memory each list keeps.
const keptBytes = 8 << 20

// class finds the smallest class that has room for size bytes.
func class(size int) int {
	for class, capacity := range bufferSizes {
		if size <= capacity {
			return class
		}
	}
	return len(bufferSizes) - 1
}

// get returns a buffer for up to size bytes.
func (b *buffers) get(size int) []byte {
	class := class(size)
	if buf, ok := b.classes[class].take(); ok {
		return buf[:0]
	}
	return make([]byte, 0, max(size, bufferSizes[class]))
}

// put adds a buffer to the list.
func (b *buffers) put(buf []byte) {
	class := class(cap(buf))
	if size := bufferSizes[class]; cap(buf) == size {
		b.classes[class].put(buf, keptBytes/size)
	}
}

// halve releases half of the unused buffers to the garbage collector, and returns their
// bytes, and those of the ones that are left. In a busy time few are unused, and to make
// some again takes less than to count which are needed.
func (b *buffers) halve() (released, left int) {
	for class, size := range bufferSizes {
		n, kept := b.classes[class].halve(0)
		released += n * size
		left += kept * size
	}
	return released, left
}

// take removes what was put last. ok is false if the list is empty.
func (l *freeList[T]) take() (v T, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := len(l.free) - 1
	if last < 0 {
		return v, false
	}
	v, l.free[last] = l.free[last], v
	l.free = l.free[:last]
	return v, true
}

// put adds something to the list, unless that has so many.
func (l *freeList[T]) put(v T, most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.free) < most {
		l.free = append(l.free, v)
	}
}

// halve releases half of the list to the garbage collector, unless only a few are left that are to be
// kept. It returns how many it has released, and how many are left.
func (l *freeList[T]) halve(few int) (released, left int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left = min(len(l.free), max(few, len(l.free)/2))
	released = len(l.free) - left
	if released == 0 {
		return 0, left
	}
	l.free = slices.Clone(l.free[released:])
	return released, left
}

// taken is how much memory get takes for size bytes.
func taken(size int) int64 { return int64(max(size, bufferSizes[class(size)])) }

// connCost is about how many bytes a connection takes, without a call.
const connCost = 16 << 10

// fewPieces is how many replies in one write leave nothing behind that is worth releasing.
const fewPieces = 8

// idleCalls is for how many calls at a time the memory is kept: clients that do nothing renew their leases, which would
// make it anew each time.
const idleCalls = 1

// releaser returns a function that releases half of the memory that is kept to be used
// again, and what a busy time has left to the connections. It returns the bytes released,
// and those that are left.
func (s *Server) releaser() func() (released, left int) {
	conns := 0
	return func() (released, left int) {
		before := conns
		conns = s.slimDown()
		released, left = s.buffers.halve()
		n, kept := s.calls.halve(idleCalls)
		released, left = released+n*callBytes, left+kept*callBytes
		n, kept = s.inputs.free.halve(idleCalls)
		released, left = released+n*readAhead, left+kept*readAhead
		released += s.readers.release(false) * readerCost
		return released + max(0, before-conns)*connCost, left
	}
}

// slimDown releases what the connections have kept of a busy time, and returns how many
// there are.
func (s *Server) slimDown() (conns int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.slimDown()
	}
	return len(s.conns)
}

func (c *conn) slimDown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writing || len(c.out) > 0 || cap(c.pieces) <= fewPieces { // the writer uses the pieces
		return
	}
	c.out, c.written, c.pieces = nil, nil, nil
	c.Conn.SlimDown()
}
