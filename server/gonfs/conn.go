package gonfs

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/podnas/podnas/server/oncrpc"
)

const (
	// recordMax bounds a call, in bytes. Clients write at most 1 MiB at once,
	// whatever FSINFO offers (the library offers 1 GiB); twice that leaves room.
	recordMax = 2 << 20
	// idleTimeout ends a connection without calls. A client that is mounted but
	// idle connects again by itself.
	idleTimeout = 10 * time.Minute
	// linger is how long a connection stays open for the reply under way when
	// reading from it has ended: the library writes in a goroutine of its own.
	linger = 200 * time.Millisecond
)

// listener hands the library connections that it can trust.
type listener struct {
	net.Listener
	log *slog.Logger

	mu    sync.Mutex
	conns map[*conn]bool // open ones; nil after shutdown
	down  bool
	open  sync.WaitGroup
}

// Accept waits for a client.
func (l *listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: nc, listener: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
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
		_ = c.SetReadDeadline(time.Now()) // a closed connection needs none
	}
}

// wait returns when every connection is closed.
func (l *listener) wait() { l.open.Wait() }

func (l *listener) forget(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// conn gives the library a stream of calls that it can decode. The library
// refuses records of several fragments, trusts every length in a call (and
// allocates it), and forgets to close a connection that it can't follow; so
// records are joined and checked here, and a bad one ends the connection.
type conn struct {
	net.Conn
	listener *listener
	record   []byte // the call being handed out; its buffer is used again
	rest     []byte // what of it is still to be read
	close    sync.Once
}

// Read gives the bytes of one record at most, since the library takes a short
// read in the middle of a call for its end.
func (c *conn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		if err := c.next(); err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
				c.listener.log.Warn("nfs: connection ended", "client", c.RemoteAddr(), "err", err)
			}
			time.AfterFunc(linger, func() { _ = c.Close() })
			return 0, io.EOF
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// next reads and checks a record.
func (c *conn) next() error {
	c.listener.mu.Lock()
	down := c.listener.down
	if !down {
		_ = c.SetReadDeadline(time.Now().Add(idleTimeout)) // a closed connection fails at the read
	}
	c.listener.mu.Unlock()
	if down {
		return io.EOF
	}
	record, at := oncrpc.BeginRecord(c.record[:0])
	record, err := oncrpc.ReadRecord(c.Conn, record, recordMax)
	c.record = record
	if err != nil {
		return err
	}
	if err := checkCall(record[at+4:]); err != nil {
		return err
	}
	oncrpc.EndRecord(record, at)
	c.rest = record
	return nil
}

// Close ends the connection. The library and the end of the stream both call it.
func (c *conn) Close() (err error) {
	c.close.Do(func() {
		c.listener.forget(c)
		err = c.Conn.Close()
		c.listener.open.Done()
	})
	return err
}
