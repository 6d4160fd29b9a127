package nfsbench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/socket"
)

// maxReply bounds the bench's allocation for a reply.
const maxReply = nfs3.MaxData + 64<<10

const connectTimeout = 10 * time.Second

var errClosed = errors.New("the connection was closed")

// conn is a connection that the calls of many lanes share.
type conn struct {
	nc      *socket.Conn
	patient patient
	ended   sync.WaitGroup // the two goroutines
	wake    chan struct{}  // queue is not empty

	mu sync.Mutex
	// +checklocks:mu
	xid uint32 // of the last call
	// +checklocks:mu
	pending map[uint32]*lane // waiting lanes by xid
	// +checklocks:mu
	queue [][]byte // calls to write
	// +checklocks:mu
	err error // why no more calls can be made
}

// patient reads a connection, with a timeout while calls wait for replies.
type patient struct {
	conn *conn
	wait time.Duration
}

func dial(ctx context.Context, address string, wait time.Duration) (*conn, error) {
	nc, err := rpc.DialReserved(ctx, net.Dialer{Timeout: connectTimeout}, address)
	if err != nil {
		return nil, err
	}
	on, err := socket.New(nc)
	if err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	c := &conn{
		nc:   on,
		wake: make(chan struct{}, 1),
		// A replay cache identifies a call by address and xid, and a new
		// connection may have an old one's port.
		xid:     rand.Uint32(),
		pending: make(map[uint32]*lane),
	}
	c.patient = patient{c, wait}
	c.ended.Add(2)
	go c.write()
	go c.read()
	return c, nil
}

// close ends the connection and its goroutines. Calls that wait end with an error.
func (c *conn) close() {
	c.fail(errClosed)
	c.ended.Wait()
}

// fail ends the connection. Calls return the first reason.
func (c *conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	_ = c.nc.Close() // err is the reason already
	close(c.wake)
	for xid, l := range c.pending {
		delete(c.pending, xid)
		l.done <- err
	}
}

// start gives a lane's call its xid and queues it.
func (c *conn) start(l *lane) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.xid++
	for c.pending[c.xid] != nil {
		c.xid++
	}
	c.pending[c.xid] = l
	binary.BigEndian.PutUint32(l.out[4:], c.xid) // after the record's mark
	c.queue = append(c.queue, l.out)
	if len(c.queue) == 1 {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// write sends all calls queued since the last write at once.
func (c *conn) write() {
	defer c.ended.Done()
	var batch [][]byte
	for range c.wake {
		// Replies come in batches, and each wakes a worker that makes its next call
		// at once. Let them run first: one write for all is three times the rate.
		runtime.Gosched()
		c.mu.Lock()
		batch, c.queue = c.queue, batch[:0]
		c.mu.Unlock()
		if err := c.nc.WriteAll(batch); err != nil {
			c.fail(fmt.Errorf("send a call: %w", err))
			return
		}
	}
}

// read reads replies until the connection ends.
func (c *conn) read() {
	defer c.ended.Done()
	r := bufio.NewReaderSize(&c.patient, 64<<10)
	for {
		if err := c.deliver(r); err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the server ended the connection")
			}
			c.fail(err)
			return
		}
	}
}

// deliver reads one reply into the buffer of the lane that waits for it.
func (c *conn) deliver(r *bufio.Reader) error {
	head, err := r.Peek(8) // the record's mark, the xid
	if err != nil {
		return err
	}
	xid := binary.BigEndian.Uint32(head[4:])
	c.mu.Lock()
	l := c.pending[xid]
	c.mu.Unlock()
	if l == nil {
		return fmt.Errorf("the server answered a call that wasn't made, or answered it twice (xid %08x)", xid)
	}
	l.in, err = rpc.ReadRecord(r, l.in[:0], maxReply)
	if err != nil {
		return fmt.Errorf("read a reply: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending[xid] == nil {
		return c.err // the connection failed, and the call with it
	}
	delete(c.pending, xid)
	l.done <- nil
	return nil
}

func (p *patient) Read(b []byte) (int, error) {
	for silent := false; ; {
		if err := p.conn.nc.SetReadDeadline(time.Now().Add(p.wait)); err != nil {
			return 0, err
		}
		n, err := p.conn.nc.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		p.conn.mu.Lock()
		waiting := len(p.conn.pending)
		p.conn.mu.Unlock()
		if silent && waiting > 0 {
			return 0, fmt.Errorf("no answer to %d calls for more than %v", waiting, p.wait)
		}
		silent = waiting > 0 // they may be new
	}
}
