package oncrpc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/socket"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/stats"
)

const (
	// outMax is how much the reading goroutine lets replies add up before it writes
	// them, in bytes, or two of them if those are more: four of 128 KiB at once are
	// faster than each by itself, and than eight, which are not in the processor's
	// cache any more.
	outMax = 512 << 10
	// lingerTimeout is how long an ended connection waits for the client to end
	// its side.
	lingerTimeout = 200 * time.Millisecond
)

// conn is a client's connection. One goroutine reads and decodes calls, and
// writes the replies to those that it answers itself: all that were at hand leave
// in one write. Another writes the replies to calls that were answered elsewhere,
// so that a client who does not read its replies blocks nobody else.
type conn struct {
	*socket.Conn
	server *Server
	near   uint32 // which group of places is
	client netip.AddrPort
	served *stats.Conn
	in     *input
	calls  *semaphore.Weighted // in flight
	// holding is what its calls hold of the budget.
	holding *Holding
	wake    chan struct{} // tells the writing goroutine that there are replies
	done    chan struct{} // closed when there will be none
	mark    [4]byte       // of the record being read
	inside  bool          // a record is being read
	pieces  [][]byte      // being written, by who has set writing
	ended   chan error    // how reading ended
	closed  chan struct{} // closed by Close
	close   sync.Once

	looks  sync.Mutex // held for a look at the waits
	reads  waits      // of who reads
	writes waits      // of who has set writing

	gone    atomic.Bool          // the client takes no more replies
	ahead   atomic.Int32         // goroutines that wait for a place
	turn    atomic.Pointer[turn] // of who reads
	watched atomic.Bool          // look is set
	look    *time.Timer
	looked  uint64 // the number of the call that waited at the last look; the timer's
	idle    int    // looks in a row at which none waited; the timer's

	mu      sync.Mutex
	out     []*Call // finished, to be written
	outSize int     // bytes in out
	written []*Call // empty: the memory for the next out
	writing bool    // somebody is
	broken  bool    // a write has failed, nothing more is written
}

func newConn(s *Server, on *socket.Conn) *conn {
	c := &conn{
		Conn:   on,
		server: s,
		near:   s.places.conns.Add(1),
		calls:  semaphore.NewWeighted(s.limits.connCalls),
		wake:   make(chan struct{}, 1),
		done:   make(chan struct{}),
		ended:  make(chan error, 1),
		closed: make(chan struct{}),
	}
	c.in = newInput(on, &s.inputs, c.beforeRead)
	c.look = time.AfterFunc(time.Hour, c.lookAt)
	c.look.Stop() // until a call may wait
	if a, ok := on.RemoteAddr().(*net.TCPAddr); ok {
		c.client = netip.AddrPortFrom(AddrOf(a), uint16(a.Port))
	}
	return c
}

// Close ends the connection at once.
func (c *conn) Close() error {
	c.close.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// stopReading ends the connection after the calls under way.
func (c *conn) stopReading() {
	_ = c.SetReadDeadline(time.Now()) // a closed connection needs none
	_ = c.SetWriteDeadline(time.Now().Add(drainTimeout))
}

// serve reads calls until the client is gone or the server stops, and closes the
// connection when all are answered.
func (c *conn) serve() {
	go c.writeLater()
	defer close(c.done)
	first := &turn{}
	c.turn.Store(first)
	c.readOn(first)
	err := <-c.ended
	if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, errNoMemory) {
		c.server.log.Info("rpc: connection ended", "client", c.client, "err", err)
	}
	c.flush()
	// Every place taken: no call is in flight. After shutdown there is an end to
	// waiting.
	if err := c.calls.Acquire(c.server.drained, c.server.limits.connCalls); err != nil {
		c.server.log.Warn("rpc: stopped with calls under way", "client", c.client)
		_ = c.Close()
		return
	}
	c.end()
}

// end closes a connection whose replies are all written. What the client has sent
// and nobody has read would turn the close into a reset, and cost it the last
// replies.
func (c *conn) end() {
	if tcp, ok := c.Conn.Conn.(*net.TCPConn); ok && tcp.CloseWrite() == nil {
		_ = tcp.SetReadDeadline(time.Now().Add(lingerTimeout))
		_, _ = io.Copy(io.Discard, tcp) // until the client closes its side
	}
	_ = c.Close() // all is written
}

// readOn reads until the turn is taken or there are no more calls.
func (c *conn) readOn(t *turn) {
	if err := c.read(t); !errors.Is(err, errTurnTaken) {
		if errors.Is(err, syscall.ECONNRESET) {
			c.gone.Store(true)
		}
		c.ended <- err
	}
}

// read answers calls until there is an error.
func (c *conn) read(t *turn) error {
	for {
		if c.gone.Load() { // though calls of it were received
			return net.ErrClosed
		}
		call, err := c.next(t)
		if err == nil {
			err = c.dispatch(call)
		}
		if err != nil {
			if call != nil {
				c.release(call)
			}
			return err
		}
		if !t.answered() {
			c.writeSoon()
			return errTurnTaken
		}
	}
}

// next reads a call. A connection has memory for it only when it has begun.
func (c *conn) next(t *turn) (*Call, error) {
	if c.server.stopping.Load() {
		return nil, io.EOF
	}
	defer c.reads.end()
	c.inside = false
	if _, err := io.ReadFull(c.in, c.mark[:]); err != nil {
		return nil, err
	}
	c.inside = true
	if !c.calls.TryAcquire(1) {
		c.server.stats.CallWaits.Add(1)
		c.reads.end()
		c.flush()
		_ = c.calls.Acquire(context.Background(), 1) // never fails
	}
	call, err := c.newCall(t)
	if err != nil {
		c.calls.Release(1)
		return nil, err
	}
	call.record, err = rpc.JoinRecord(c.in, binary.BigEndian.Uint32(c.mark[:]), call.record, recordMax, call)
	call.last = c.in.buffered() == 0
	return call, err
}

// beforeRead is called before the connection waits for the client: replies go out
// first. All waits for the rest of a record are one.
func (c *conn) beforeRead() {
	c.flush()
	switch {
	case !c.inside:
		c.reads.begin(waitCall)
	case !c.reads.in(waitRecord):
		c.reads.begin(waitRecord)
	}
}

// dispatch decodes a call and hands it to its procedure. Its error means that
// the record is no call, and nothing was answered.
func (c *conn) dispatch(call *Call) error {
	call.Args = xdr.NewDecoder(call.record)
	h := &call.Header
	h.Decode(&call.Args)
	switch err := call.Args.Err(); {
	case errors.Is(err, rpc.ErrReply): // to a call that this server has not made
		c.release(call)
		return nil
	case err != nil:
		return fmt.Errorf("decode a call: %w", err)
	}
	var reply rpc.ReplyHeader
	if h.RPCVersion != rpc.Version {
		call.reject(&rpc.ReplyHeader{Stat: rpc.MsgDenied, Reject: rpc.RPCMismatch, Low: rpc.Version, High: rpc.Version})
		return nil
	}
	proc := c.server.procedure(h, &reply)
	if proc == nil {
		call.reject(&reply)
		return nil
	}
	if stat := call.authenticate(proc); stat != rpc.AuthOK {
		call.reject(&rpc.ReplyHeader{Stat: rpc.MsgDenied, Reject: rpc.AuthError, Auth: stat})
		return nil
	}
	call.proc = proc
	p := call.promise()
	defer p.Recover()
	if proc.Repeated != nil {
		if a, ok := proc.Repeated(call); ok {
			c.server.stats.Replayed.Add(1)
			p.Finish(a)
			return nil
		}
	}
	call.counted = true
	c.served.Begin(&call.Served, proc.number)
	p.Finish(proc.Handle(call))
	return nil
}

// authenticate decodes the credential. AUTH_SYS is believed, as RFC 1813 has it.
func (c *Call) authenticate(proc *Procedure) rpc.AuthStat {
	switch c.Header.Cred.Flavor {
	case rpc.AuthSys:
		d := xdr.NewDecoder(c.Header.Cred.Body)
		if c.Cred.Decode(&d); d.Finish() != nil {
			return rpc.AuthBadCred
		}
	case rpc.AuthNone:
		if !proc.AnyAuth {
			return rpc.AuthTooWeak
		}
	default:
		return rpc.AuthRejectedCred
	}
	return rpc.AuthOK
}

// send puts a reply out. It is written by the goroutine that reads, before that
// waits, or if the call was answered elsewhere, by the one that writes.
func (c *conn) send(call *Call) {
	later := call.later // once it is out, the call may be another one
	c.mu.Lock()
	c.out = append(c.out, call)
	c.outSize += len(call.Reply)
	full := c.outSize > max(outMax, 2*len(call.Reply))
	c.mu.Unlock()
	switch {
	case later:
		c.writeSoon()
	case full:
		c.flush()
	}
}

// writeSoon has the replies that are put out written by the other goroutine.
func (c *conn) writeSoon() {
	select {
	case c.wake <- struct{}{}:
	default: // it is told already
	}
}

// writeLater writes the replies to calls that are answered elsewhere.
func (c *conn) writeLater() {
	for {
		select {
		case <-c.wake:
			c.flush()
		case <-c.done:
			return
		}
	}
}

// flush writes the replies that are put out. If somebody is writing, they are
// left to them.
func (c *conn) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writing {
		return
	}
	c.writing = true
	for len(c.out) > 0 {
		batch := c.out
		c.out, c.outSize = c.written[:0], 0
		broken := c.broken
		c.mu.Unlock()
		if !broken {
			broken = c.write(batch) != nil
		}
		for _, call := range batch {
			c.release(call)
		}
		c.mu.Lock()
		clear(batch)
		c.written = batch
		c.broken = c.broken || broken
	}
	c.writing = false
}

// write writes a batch of replies. After an error the connection is of no use.
func (c *conn) write(batch []*Call) error {
	c.writes.begin(waitTake)
	defer c.writes.end()
	c.pieces = c.pieces[:0]
	for _, call := range batch {
		c.pieces = append(c.pieces, call.Reply)
	}
	err := c.WriteAll(c.pieces)
	if err != nil {
		c.gone.Store(true)
		_ = c.Close() // wakes the reading goroutine
	}
	return err
}
