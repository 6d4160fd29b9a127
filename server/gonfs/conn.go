package gonfs

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/podnas/podnas/internal/heartbeat"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/stats"
)

const (
	// recordMax bounds a call, in bytes. Clients write at most 1 MiB at once,
	// whatever FSINFO offers (the library offers 1 GiB); twice that leaves room.
	recordMax = 2 << 20
	// replyMax bounds the replies of READ and listings.
	replyMax = 1 << 20
	// idleTimeout ends a connection without calls. A client that is mounted but
	// idle connects again by itself.
	idleTimeout = 10 * time.Minute
	// recordTimeout ends one that has sent only part of a call.
	recordTimeout = 30 * time.Second
	// writeTimeout ends a connection whose client does not read its replies.
	writeTimeout = time.Minute
	// drainTimeout is writeTimeout at shutdown.
	drainTimeout = 2 * time.Second
	// smallMax is the largest call or reply, in bytes, in the connection's own memory.
	smallMax = 1 << 10
	// readLittle is the size of a read of the marks of small fragments.
	readLittle = 512
	// callCopies and replyCopies are how many copies of a call, including its record,
	// and of a reply are in memory.
	callCopies, replyCopies = 3, 4
)

// listener gives the library connections that it can trust. Order of locks: listener.mu, that of the
// Peers, conn.mu.
type listener struct {
	net.Listener
	log    *slog.Logger
	ends   *stats.Lines // connections that end with an error
	allows func(client net.Conn, handle []byte) bool
	volume func(handle []byte) *stats.Volume // the counters of its volume
	stats  *stats.Server
	peers  *oncrpc.Peers
	budget *oncrpc.Budget
	full   rate.Sometimes // logs too many connections
	beats  *heartbeat.Heartbeat

	mu sync.Mutex
	// +checklocks:mu
	conns map[*conn]bool // open ones
	// +checklocks:mu
	down bool           // no more calls are read
	open sync.WaitGroup // conns
	// stopping is closed with down.
	stopping chan struct{}
}

// Accept waits for a client. It shadows that of net.Listener.
func (l *listener) Accept() (*conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: nc, listener: l, activity: oncrpc.Working, in: bufio.NewReaderSize(nc, readLittle), ended: make(chan struct{})}
		c.written = sync.NewCond(&c.mu)
		peer, closed := l.peers.Admit(c)
		l.stats.Closed.Add(uint64(closed))
		if peer == nil {
			l.stats.Refused.Add(1)
		}
		if peer == nil || closed > 0 {
			l.full.Do(func() { l.log.Warn("nfs: too many connections, idle ones are closed", "client", nc.RemoteAddr()) })
		}
		if peer == nil {
			_ = nc.Close() // nothing was sent
			continue
		}
		if err := l.peers.LimitSocket(peer, nc); err != nil {
			l.log.Debug("nfs: limit a socket's memory", "client", nc.RemoteAddr(), "err", err) // it may be closed already
		}
		c.peer, c.holding = peer, oncrpc.NewHolding(peer)
		return c, l.enter(c)
	}
}

// enter adds a connection to the open ones.
func (l *listener) enter(c *conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		l.peers.Leave(c.peer, c)
		return errors.Join(net.ErrClosed, c.Conn.Close())
	}
	if l.conns == nil {
		l.conns = map[*conn]bool{}
	}
	c.served.Conn = l.stats.Connect(addressOf(c.Conn))
	l.conns[c] = true
	l.open.Add(1)
	c.become(oncrpc.Idle)
	return nil
}

// hurry ends stuck connections that hold much memory while others wait for some, and all when the disk is lost, until
// ctx ends.
func (l *listener) hurry(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if l.beats.Lost() {
				l.closeAll()
			}
			l.mu.Lock()
			for c := range l.conns {
				activity, since := c.Activity()
				if activity == oncrpc.Stuck && now.Sub(since) > recordTimeout/oncrpc.Hurry && l.budget.Scarce(c.holding) {
					_ = c.SetDeadline(now) // a closed connection needs none
				}
			}
			l.mu.Unlock()
		}
	}
}

// closeAll closes all connections, those too whose call hangs on the disk.
func (l *listener) closeAll() {
	l.mu.Lock()
	all := slices.Collect(maps.Keys(l.conns))
	l.mu.Unlock()
	for _, c := range all {
		_ = c.Close() // what is not written is lost
	}
}

// shutdown stops accepting and reading.
func (l *listener) shutdown() {
	_ = l.Close() // it may be closed already
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.down {
		close(l.stopping)
	}
	l.down = true
	for c := range l.conns {
		// A connection that is closed already needs none.
		_ = c.SetReadDeadline(time.Now())
		_ = c.SetWriteDeadline(time.Now().Add(drainTimeout))
	}
}

// wait returns when every connection is closed.
func (l *listener) wait() { l.open.Wait() }

// deadline sets one of a connection's deadlines, unless shutdown has set it.
func (l *listener) deadline(set func(time.Time) error, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.down {
		_ = set(time.Now().Add(after)) // a closed connection fails at its use
	}
}

func (l *listener) forget(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// conn gives the library a stream of calls that it can answer. The library
// refuses records of several fragments, trusts every length in a call (and
// allocates it), checks no version, does not close a connection with a bad
// stream, and hangs on one whose writes have failed. So conn joins and checks a
// record, answers calls that are not for the library, and reads the next when
// the reply is written.
type conn struct {
	net.Conn
	listener *listener
	peer     *oncrpc.Peer
	holding  *oncrpc.Holding
	in       *bufio.Reader  // small, for the marks of fragments
	small    [smallMax]byte // memory of a small record
	rest     []byte         // of the call, for the library to read
	ended    chan struct{}  // closed by Close
	once     sync.Once

	mu      sync.Mutex
	written *sync.Cond // signals the end of a reply, and broken
	// +checklocks:mu
	pending bool // the library has an unanswered call
	// +checklocks:mu
	broken bool // a write has failed
	// +checklocks:mu
	mark []byte // of the reply being written, as far as known
	// +checklocks:mu
	left   uint32 // bytes of the reply after its mark
	served served
	// +checklocks:mu
	charged int64 // of the budget, for the current call

	activity oncrpc.Activity
	since    time.Time // of the activity
}

// gone reports whether nobody waits for the answer to a call any more: the client has closed its connection, or the server ends. Then it
// closes the connection, so that the client sends the call again.
func (c *conn) gone() bool {
	select {
	case <-c.ended:
		return true
	case <-c.listener.stopping:
	default:
		if !c.closedByClient() {
			return false
		}
	}
	_ = c.Close() // there is no answer to write
	return true
}

// tcpEstablished is TCP_ESTABLISHED of the kernel's tcp_states.h.
const tcpEstablished = 1

// closedByClient looks at the state of the TCP connection: a read would have to read the calls that are before the end.
func (c *conn) closedByClient() bool {
	socket, ok := c.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	closed := false
	err = raw.Control(func(fd uintptr) {
		// tcp_info begins with the state, and the kernel gives as much of it as there is room for, tcp(7).
		info, err := syscall.GetsockoptInet4Addr(int(fd), syscall.IPPROTO_TCP, syscall.TCP_INFO)
		closed = err == nil && info[0] != tcpEstablished
	})
	return closed || err != nil
}

// Activity returns what the connection does, and since when.
func (c *conn) Activity() (oncrpc.Activity, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.activity, c.since
}

func (c *conn) become(a oncrpc.Activity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.activity, c.since = a, time.Now()
}

// Read returns bytes of at most one record, because the library considers a call complete
// after a short read.
func (c *conn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		if err := c.next(); err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
				c.listener.ends.Log(slog.LevelWarn, "nfs: connection ended", "client", c.RemoteAddr(), "err", err)
			}
			_ = c.Close() // nothing is being written
			return 0, io.EOF
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// next reads records until one is for the library.
func (c *conn) next() error {
	for {
		if !c.answered() {
			return net.ErrClosed
		}
		c.giveBack()
		record, err := c.read()
		if err != nil {
			return err
		}
		reply, err := check(record[4:], func(handle []byte) bool { return c.listener.allows(c.Conn, handle) })
		if err != nil {
			return err
		}
		if reply == nil {
			if size := bound(record[4:]); size > smallMax {
				if err := c.charge(replyCopies * size); err != nil {
					return err
				}
			}
			c.become(oncrpc.Working)
			rpc.EndRecord(record, 0)
			c.rest = record
			c.mu.Lock()
			c.pending = true
			c.served.begin(record[4:], c.listener.volume)
			c.mu.Unlock()
			return nil
		}
		c.served.Reject()
		b, at := rpc.BeginRecord(nil)
		b = reply.Append(b)
		rpc.EndRecord(b, at)
		if err := c.listener.beats.Wait(c.ended); err != nil {
			return err
		}
		if _, err := c.Conn.Write(b); err != nil {
			return err
		}
	}
}

// read reads a record, with space for its mark before it.
func (c *conn) read() ([]byte, error) {
	c.become(oncrpc.Idle)
	c.listener.deadline(c.SetReadDeadline, idleTimeout)
	record, at := rpc.BeginRecord(c.small[:0])
	if _, err := io.ReadFull(c.in, record[at:]); err != nil {
		return nil, err
	}
	c.become(oncrpc.Stuck)
	c.listener.deadline(c.SetReadDeadline, recordTimeout)
	return rpc.JoinRecord(c.in, binary.BigEndian.Uint32(record[at:]), record, recordMax, c)
}

// Grow reserves memory for a record, and for the library's copies of it. A record of several
// fragments gets the maximum at once, as in the native engine.
func (c *conn) Grow(record []byte, size int, more bool) ([]byte, error) {
	need := len(record) + size
	if need <= cap(record) {
		return record, nil
	}
	if more || len(record) > 4 {
		need = 4 + recordMax + 4 // the next mark is read with a fragment
	}
	if err := c.charge(callCopies * need); err != nil {
		return record, err
	}
	c.listener.deadline(c.SetReadDeadline, recordTimeout)
	return append(make([]byte, 0, need), record...), nil
}

// charge reserves memory for the current call, and waits while there is none.
func (c *conn) charge(n int) error {
	if !c.listener.budget.TryTake(c.holding, int64(n)) {
		c.listener.stats.MemoryWaits.Add(1)
		if err := c.listener.budget.Take(c.holding, int64(n), c.ended); err != nil {
			return net.ErrClosed
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.charged += int64(n)
	return nil
}

// giveBack releases the memory of the last call.
func (c *conn) giveBack() {
	c.mu.Lock()
	n := c.charged
	c.charged = 0
	c.mu.Unlock()
	if n > 0 {
		c.listener.budget.Give(c.holding, n)
	}
}

// answered waits for the reply to the library's call. It returns false if there
// will be none.
func (c *conn) answered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.pending && !c.broken {
		c.written.Wait()
	}
	return !c.broken
}

// Write sends a piece of a reply, when the disk is known to have been ours. The library calls it from its own goroutine.
func (c *conn) Write(p []byte) (n int, err error) {
	if err = c.listener.beats.Wait(c.ended); err == nil {
		c.become(oncrpc.Stuck) // if the client does not read
		c.listener.deadline(c.SetWriteDeadline, writeTimeout)
		n, err = c.Conn.Write(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.broken = true
		c.written.Signal()
	}
	c.followLocked(p[:n])
	return n, err
}

// followLocked finds the end of a reply. The library writes each as one fragment.
//
// +checklocks:c.mu
func (c *conn) followLocked(p []byte) {
	for len(p) > 0 {
		if len(c.mark) < 4 {
			n := min(4-len(c.mark), len(p))
			c.mark = append(c.mark, p[:n]...)
			p = p[n:]
			if len(c.mark) < 4 {
				return
			}
			c.left = binary.BigEndian.Uint32(c.mark) &^ (1 << 31)
		}
		n := min(c.left, uint32(len(p)))
		c.left -= n
		c.served.add(p[:n])
		p = p[n:]
		if c.left == 0 {
			c.mark = c.mark[:0]
			c.pending = false
			c.served.end()
			c.written.Signal()
		}
	}
}

// Close ends the connection. The library calls it too.
func (c *conn) Close() (err error) {
	c.once.Do(func() {
		c.mu.Lock()
		c.broken = true
		c.written.Signal()
		c.mu.Unlock()
		close(c.ended)
		c.listener.forget(c)
		c.served.Close()
		err = c.Conn.Close()
		c.listener.peers.Leave(c.peer, c)
		c.listener.open.Done()
	})
	c.giveBack() // each time: a call may have been read meanwhile
	return err
}
