package gonfs

import (
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/stats"
)

const (
	// recordMax bounds a call, in bytes. Clients write at most 1 MiB at once,
	// whatever FSINFO offers (the library offers 1 GiB); twice that leaves room.
	recordMax = 2 << 20
	// idleTimeout ends a connection without calls. A client that is mounted but
	// idle connects again by itself.
	idleTimeout = 10 * time.Minute
	// writeTimeout ends a connection whose client does not read its replies.
	writeTimeout = time.Minute
	// drainTimeout is that at shutdown.
	drainTimeout = 2 * time.Second
)

// listener hands the library connections that it can trust.
type listener struct {
	net.Listener
	log    *slog.Logger
	allows func(client net.Conn, handle []byte) bool
	volume func(handle []byte) *stats.Volume // whose calls are counted
	stats  *stats.Server

	mu    sync.Mutex
	conns map[*conn]bool // open ones
	down  bool           // no call is read any more
	open  sync.WaitGroup // conns
}

// Accept waits for a client.
func (l *listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: nc, listener: l, served: served{Conn: l.stats.Connect(addressOf(nc).Addr())}}
	c.written = sync.NewCond(&c.mu)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		c.served.Close()
		return nil, errors.Join(net.ErrClosed, nc.Close())
	}
	if l.conns == nil {
		l.conns = map[*conn]bool{}
	}
	l.conns[c] = true
	l.open.Add(1)
	return c, nil
}

// shutdown stops accepting and reading.
func (l *listener) shutdown() {
	_ = l.Close() // it may be closed already
	l.mu.Lock()
	defer l.mu.Unlock()
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
// allocates it), looks at no version, forgets to close a connection that it
// can't follow, and hangs on one whose writes have failed. So a record is
// joined and checked here, what is not for the library is answered here, and
// the next is read when the reply is written.
type conn struct {
	net.Conn
	listener *listener
	record   []byte // the call being handed out; its buffer is used again
	rest     []byte // what of it the library has still to read
	once     sync.Once

	mu      sync.Mutex
	written *sync.Cond // signals the end of a reply, and broken
	pending bool       // the library has a call that is not answered
	broken  bool       // a write has failed
	mark    []byte     // of the reply being written, as far as it is
	left    uint32     // bytes of the reply after its mark
	served  served
}

// Read gives the bytes of one record at most, since the library takes a short
// read in the middle of a call for its end.
func (c *conn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		if err := c.next(); err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
				c.listener.log.Warn("nfs: connection ended", "client", c.RemoteAddr(), "err", err)
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
		c.listener.deadline(c.SetReadDeadline, idleTimeout)
		record, at := oncrpc.BeginRecord(c.record[:0])
		record, err := oncrpc.ReadRecord(c.Conn, record, recordMax)
		c.record = record
		if err != nil {
			return err
		}
		reply, err := check(record[at+4:], func(handle []byte) bool { return c.listener.allows(c.Conn, handle) })
		if err != nil {
			return err
		}
		if reply == nil {
			oncrpc.EndRecord(record, at)
			c.rest = record
			c.mu.Lock()
			c.pending = true
			c.served.begin(record[at+4:], c.listener.volume)
			c.mu.Unlock()
			return nil
		}
		c.listener.stats.Rejected.Add(1)
		b, at := oncrpc.BeginRecord(nil)
		b = reply.Append(b)
		oncrpc.EndRecord(b, at)
		if _, err := c.Conn.Write(b); err != nil {
			return err
		}
	}
}

// answered waits for the reply to the library's call. It is false if there will
// be none.
func (c *conn) answered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.pending && !c.broken {
		c.written.Wait()
	}
	return !c.broken
}

// Write sends a piece of a reply. The library calls it from a goroutine of its
// own.
func (c *conn) Write(p []byte) (int, error) {
	c.listener.deadline(c.SetWriteDeadline, writeTimeout)
	n, err := c.Conn.Write(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.broken = true
		c.written.Signal()
	}
	c.follow(p[:n])
	return n, err
}

// follow finds the end of a reply. The library writes each as one fragment. The
// caller holds c.mu.
func (c *conn) follow(p []byte) {
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
		c.listener.forget(c)
		c.served.Close()
		err = c.Conn.Close()
		c.listener.open.Done()
	})
	return err
}
