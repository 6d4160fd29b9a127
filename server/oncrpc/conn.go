package oncrpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/socket"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/stats"
)

const (
	// outMax is how many bytes of replies the reading goroutine collects before it writes
	// them, or two replies if those are more. Four of 128 KiB in one write are faster than
	// one, and than eight, which don't fit the processor's cache.
	outMax = 512 << 10
	// partSize is how many bytes of replies a client reads in one wait for it.
	partSize = 1 << 20
	// outCalls is how many replies wait at most for those of calls that were woken together with theirs.
	outCalls = 32
	// lingerTimeout is how long an ended connection waits for the client to close its
	// side.
	lingerTimeout = 200 * time.Millisecond
)

// conn is a client's connection. One goroutine reads a call, answers it, and reads the next, and
// writes the replies, all of a batch in one write, before it waits for more. A call that waits hands
// the reading on to another goroutine. When it is answered, its goroutine ends, and another one
// writes such replies, as one batch where many calls have waited for the same.
type conn struct {
	*socket.Conn
	server *Server
	client netip.AddrPort
	served *stats.Conn
	in     *input
	// inFlight has a value for each call that was read and whose reply is not written.
	inFlight chan struct{}
	// holding is what its calls hold of the budget.
	holding *Holding
	wake    chan struct{} // tells the writing goroutine that there are replies
	mark    [4]byte       // of the record being read
	inside  bool          // a record is being read
	pieces  [][]byte      // being written, by the goroutine that has set writing
	ended   chan error    // how reading ended
	closed  chan struct{} // closed by Close
	close   sync.Once
	drained chan struct{} // closed by drain
	unread  chan struct{} // inFlight when nothing more is read; only answerAll uses it and free
	free    int           // values in it that are no calls

	looks  sync.Mutex // held by the watchdog while it looks at the waits
	reads  waits      // of the goroutine that reads
	writes waits      // of the goroutine that has set writing, for each part of a batch
	batch  waits      // the same for all of a batch
	part   int        // of a batch, being written by the goroutine that has set writing

	gone    atomic.Bool            // the client reads no more replies
	ahead   atomic.Int32           // goroutines that wait for a permit
	awake   atomic.Int32           // calls that were woken together, and are about to be answered
	reader  atomic.Pointer[reader] // the goroutine that reads
	checked atomic.Bool            // check is running
	check   *time.Timer            // calls checkReader
	found   uint64                 // the number of the call that the last check found; the timer's
	idle    int                    // checks in a row that found none; the timer's

	mu sync.Mutex
	// +checklocks:mu
	out []*Call // finished, to be written
	// +checklocks:mu
	outSize int // bytes in out
	// +checklocks:mu
	written []*Call // empty: the memory for the next out
	// +checklocks:mu
	writing bool // a goroutine writes
	// +checklocks:mu
	broken bool // a write has failed, and nothing more is written
	// +checklocks:mu
	asks [][]byte // calls of the server's own, to be written

	asked *rpc.Pending // calls of the server's own
}

func newConn(s *Server, on *socket.Conn) *conn {
	c := &conn{
		Conn:     on,
		server:   s,
		inFlight: make(chan struct{}, s.limits.connCalls),
		wake:     make(chan struct{}, 1),
		ended:    make(chan error, 1),
		closed:   make(chan struct{}),
		drained:  make(chan struct{}),
	}
	c.Wrote = c.wrote
	c.in = newInput(on, &s.inputs, c.beforeRead)
	c.check = time.AfterFunc(time.Hour, c.checkReader)
	c.check.Stop() // until a call may block
	c.asked = rpc.NewPending(rand.Uint32())
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

// stopReading ends the connection after its current calls.
func (c *conn) stopReading() {
	_ = c.SetReadDeadline(time.Now()) // a closed connection needs none
	_ = c.SetWriteDeadline(time.Now().Add(c.server.limits.drain))
}

// drain ends the connection when its calls have had their time. Those that have not begun are dropped.
func (c *conn) drain() {
	c.gone.Store(true)
	close(c.drained)
	_ = c.Close() // what is not written is lost
}

// serve answers calls until the client is gone or the server stops, and closes the
// connection when all are answered. It does not wait for calls that go on after drain: the goroutine that
// reads may be in such a call, too, or wait for one.
func (c *conn) serve() {
	c.server.readers.begin(c.newReader(0))
	if c.answerAll(c.drained) {
		c.end()
		return
	}
	c.server.log.Warn("rpc: stopped with calls under way", "client", c.client)
	c.endAsking()
	c.server.late.Go(func() { c.answerAll(nil) })
}

// answerAll writes the replies to calls whose goroutines do not read any more, until nothing more is read
// and all calls are answered. It returns false if stop is closed before.
func (c *conn) answerAll(stop <-chan struct{}) bool {
	for c.free < cap(c.inFlight) { // when it is full, no call is in flight
		select {
		case <-c.wake:
			c.flush()
		case err := <-c.ended:
			c.readingEnded(err)
			c.unread = c.inFlight
		case c.unread <- struct{}{}:
			c.free++
		case <-stop:
			return false
		}
	}
	return true
}

// readingEnded is called when nothing more is read.
func (c *conn) readingEnded(err error) {
	c.in.GiveBack()
	c.endAsking()
	if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, errNoMemory) {
		c.server.ends.Log(slog.LevelInfo, "rpc: connection ended", "client", c.client, "err", err)
	}
	c.flush()
}

// end closes a connection whose replies are all written. It first reads what the client
// has sent: with unread data the kernel would send a reset, and the client would lose the
// last replies.
func (c *conn) end() {
	if tcp, ok := c.Conn.Conn.(*net.TCPConn); ok && tcp.CloseWrite() == nil {
		_ = tcp.SetReadDeadline(time.Now().Add(lingerTimeout))
		_, _ = io.Copy(io.Discard, tcp) // until the client closes its side
	}
	_ = c.Close() // all is written
}

// readOn reads until the goroutine is replaced or there are no more calls.
func (c *conn) readOn(r *reader) {
	if err := c.read(r); !errors.Is(err, errReplaced) {
		if errors.Is(err, syscall.ECONNRESET) {
			c.gone.Store(true)
		}
		c.ended <- err
	}
}

// read answers calls until there is an error.
func (c *conn) read(r *reader) error {
	for {
		if c.gone.Load() { // even if more of its calls were received
			return net.ErrClosed
		}
		call, err := c.next(r)
		if err == nil {
			err = c.dispatch(call)
		}
		if err != nil {
			if call != nil {
				c.release(call)
			}
			return err
		}
		if !r.answered() {
			if c.awake.Load() == 0 { // else another call's goroutine does it
				c.writeSoon()
			}
			return errReplaced
		}
	}
}

// next reads a call. It reserves memory for a call when the first bytes are there.
func (c *conn) next(r *reader) (*Call, error) {
	if c.server.stopping.Load() {
		return nil, io.EOF
	}
	defer c.reads.end()
	c.inside = false
	if _, err := io.ReadFull(c.in, c.mark[:]); err != nil {
		return nil, err
	}
	c.inside = true
	select {
	case c.inFlight <- struct{}{}:
	default:
		c.server.stats.CallWaits.Add(1)
		c.reads.end()
		c.flush()
		c.inFlight <- struct{}{}
		if c.gone.Load() {
			<-c.inFlight
			return nil, net.ErrClosed
		}
	}
	call, err := c.newCall(r)
	if err != nil {
		<-c.inFlight
		return nil, err
	}
	call.record, err = rpc.JoinRecord(c.in, binary.BigEndian.Uint32(c.mark[:]), call.record, recordMax, call)
	call.last = c.in.buffered() == 0
	return call, err
}

// beforeRead is called before the connection waits for the client. It writes the replies
// that are ready. All waits for the rest of one record count as one wait.
func (c *conn) beforeRead() {
	c.flush()
	switch {
	case !c.inside:
		c.reads.begin(waitCall)
	case !c.reads.in(waitRecord):
		c.reads.begin(waitRecord)
	}
}

// dispatch decodes a call and passes it to its procedure. An error means that the record is
// no call, and that nothing was answered.
func (c *conn) dispatch(call *Call) error {
	call.Args = xdr.NewDecoder(call.record)
	h := &call.Header
	h.Decode(&call.Args)
	switch err := call.Args.Err(); {
	case errors.Is(err, rpc.ErrReply):
		c.answered(call.record)
		c.release(call)
		return nil
	case err != nil && h.Bad == rpc.AuthOK:
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
	call.finish(call.handle())
	return nil
}

// authenticate decodes the credential. AUTH_SYS has nothing to verify, RFC 5531 appendix A.
func (c *Call) authenticate(proc *Procedure) rpc.AuthStat {
	if c.Header.Bad != rpc.AuthOK {
		return c.Header.Bad
	}
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

// send queues a reply. The goroutine that reads writes it, before it waits. If another one
// reads by now, the goroutine that writes does, see read.
func (c *conn) send(call *Call) {
	c.mu.Lock()
	c.out = append(c.out, call)
	c.outSize += len(call.Reply)
	full := c.outSize > max(outMax, 2*len(call.Reply))
	if n := call.woken.Load(); n > 0 {
		c.awake.Add(-n)
		full = full || len(c.out) >= outCalls
	}
	c.mu.Unlock()
	if full {
		c.flush()
	}
}

// writeSoon has answerAll write the queued replies.
func (c *conn) writeSoon() {
	select {
	case c.wake <- struct{}{}:
	default: // it knows already
	}
}

// flush writes the queued replies. If another goroutine is writing, that one does.
func (c *conn) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writing {
		return
	}
	c.writing = true
	for len(c.out) > 0 || len(c.asks) > 0 {
		batch, asks := c.out, c.asks
		c.out, c.outSize, c.asks = c.written[:0], 0, nil
		broken := c.broken
		c.mu.Unlock()
		if !broken {
			broken = c.write(batch, asks) != nil
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

// write writes a batch of replies, and calls of the server's own, when the disk is known to have been ours while they
// were executed. After an error it closes the connection.
func (c *conn) write(batch []*Call, asks [][]byte) error {
	err := c.server.beats.Wait(c.closed)
	if err == nil {
		err = c.writeNow(batch, asks)
	}
	if err != nil {
		c.gone.Store(true)
		_ = c.Close() // wakes the reading goroutine
	}
	return err
}

// writeNow writes a batch.
func (c *conn) writeNow(batch []*Call, asks [][]byte) error {
	c.pieces = append(c.pieces[:0], asks...)
	for _, call := range batch {
		c.pieces = append(c.pieces, call.Reply)
	}
	c.part = 0
	c.batch.begin(waitWrite)
	defer c.batch.end()
	c.writes.begin(waitWrite)
	defer c.writes.end()
	return c.WriteAll(c.pieces)
}

// wrote is told that n bytes of a batch are written. Each part is a wait of its own, so that a client that reads slowly,
// but all the time, is not taken for one that reads nothing.
func (c *conn) wrote(n int) {
	if part := n / partSize; part > c.part {
		c.part = part
		c.writes.begin(waitWrite)
	}
}

const (
	// readAhead is how much is read at once: a batch of small calls.
	readAhead = 32 << 10
	// readAheads is how many connections can have that much at a time. The others read
	// readLittle at once.
	readAheads = 512
	readLittle = 512
)

// input reads a connection ahead, so that small calls that arrive together cost one system
// call. It has memory only while there is something to read, so an idle connection has none.
//
// Only one goroutine at a time may use it.
type input struct {
	socket *socket.Conn
	memory *inputBuffers
	wait   func()           // before it waits for the client
	buf    []byte           // read from the connection, but not by Read yet
	lent   []byte           // memory of buf; nil: little, or there is nothing
	little [readLittle]byte // memory of buf if the others have all
}

func newInput(s *socket.Conn, memory *inputBuffers, wait func()) *input {
	return &input{socket: s, memory: memory, wait: wait}
}

// Read implements io.Reader.
func (in *input) Read(p []byte) (int, error) {
	if len(in.buf) == 0 {
		in.wait()
		if len(p) >= readAhead {
			in.GiveBack()
			return in.socket.Read(p)
		}
		read, err := in.socket.ReadLent(in)
		if err != nil {
			in.GiveBack()
			return 0, err
		}
		in.buf = read
	}
	n := copy(p, in.buf)
	in.buf = in.buf[n:]
	return n, nil
}

// buffered returns the number of bytes that were read ahead.
func (in *input) buffered() int { return len(in.buf) }

// Lend implements socket.Lender.
func (in *input) Lend() []byte {
	if in.lent == nil {
		in.lent = in.memory.take()
	}
	if in.lent == nil {
		return in.little[:]
	}
	return in.lent
}

// GiveBack implements socket.Lender.
func (in *input) GiveBack() {
	if in.lent != nil {
		in.memory.put(in.lent)
		in.lent = nil
	}
}

// inputBuffers are the memory of all inputs.
type inputBuffers struct {
	free freeList[[]byte]
	lent atomic.Int32
}

// take returns nil if others have all.
func (b *inputBuffers) take() []byte {
	if b.lent.Add(1) > readAheads {
		b.lent.Add(-1)
		return nil
	}
	if buf, ok := b.free.take(); ok {
		return buf
	}
	return make([]byte, readAhead)
}

func (b *inputBuffers) put(buf []byte) {
	b.free.put(buf, readAheads)
	b.lent.Add(-1)
}
