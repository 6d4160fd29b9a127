package oncrpc

import (
	"container/list"
	"errors"
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
