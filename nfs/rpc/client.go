package rpc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/podnas/podnas/nfs/xdr"
)

// ErrClosed is the error of calls on a closed client.
var ErrClosed = errors.New("rpc: client closed")

// errGivenUp is the error of other calls on the connection after one was cancelled
// in the middle of its record.
var errGivenUp = errors.New("rpc: connection ended, a call was given up while it was being sent")

// maxReply bounds the client's allocation for a reply. The largest replies are
// those to READ and READDIRPLUS; clients of this package ask for no more than
// 4 MiB.
const maxReply = 4<<20 + 64<<10

// Args are the arguments of a call.
type Args interface {
	Append(b []byte) []byte
}

// Client calls the programs of one server over one TCP connection. Many
// goroutines may make calls concurrently: calls are written one after another,
// and replies may arrive in any order. One goroutine reads until the connection
// ends.
type Client struct {
	conn net.Conn
	done chan struct{} // closed when the reading goroutine has ended

	// writing has the one buffer for encoding calls. Receiving it permits writing
	// to conn. It is a channel so that waiting can be cancelled.
	writing chan []byte

	pending *Pending
	handle  Handler // nil: the server's calls are dropped
}

// Handler answers a call that the server makes: it appends the results to reply, and
// returns it.
type Handler func(h *CallHeader, args *xdr.Decoder, reply []byte) []byte

// Dial connects to a server.
func Dial(ctx context.Context, addr string) (*Client, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return NewClient(conn), nil
}

// NewClient returns a client that owns the connection.
func NewClient(conn net.Conn) *Client { return NewPeer(conn, nil) }

// NewPeer returns a client that owns the connection, and whose server may call it as well
// (RFC 8881 section 2.10.3.1). The handler runs on goroutines of its own.
func NewPeer(conn net.Conn, handle Handler) *Client {
	c := &Client{
		handle:  handle,
		conn:    conn,
		done:    make(chan struct{}),
		writing: make(chan []byte, 1),
		// A replay cache identifies a call by address and xid, and a new
		// connection may get an old one's port.
		pending: NewPending(uint32(time.Now().UnixNano())),
	}
	c.writing <- nil
	go c.read()
	return c
}

// Close ends the connection and waits until the reading goroutine has ended.
// Calls that wait for a reply return ErrClosed.
func (c *Client) Close() error {
	c.fail(ErrClosed)
	<-c.done
	return nil
}

// Call calls a procedure without credentials and returns the encoded results,
// which the caller owns.
func (c *Client) Call(ctx context.Context, prog, vers, proc uint32, args Args) ([]byte, error) {
	return c.Do(ctx, CallHeader{RPCVersion: Version, Prog: prog, Vers: vers, Proc: proc}, args)
}

// Do makes a call with the caller's header, and sets its XID. Args may be nil. If
// the server answers without results the error is an *RPCError.
//
// A call cancelled while it waits for the reply does not affect the connection.
// One cancelled while it is being written ends it, because nothing can be
// written after half a record.
func (c *Client) Do(ctx context.Context, h CallHeader, args Args) ([]byte, error) {
	reply, err := c.pending.Begin(&h)
	if err != nil {
		return nil, err
	}
	if err := c.send(ctx, &h, args); err != nil {
		c.pending.Forget(h.XID)
		return nil, err
	}
	return c.pending.Wait(ctx, h.XID, reply)
}

func (c *Client) send(ctx context.Context, h *CallHeader, args Args) error {
	return c.write(ctx, func(b []byte) []byte {
		b = h.Append(b)
		if args != nil {
			b = args.Append(b)
		}
		return b
	})
}

// write sends a record.
func (c *Client) write(ctx context.Context, content func([]byte) []byte) error {
	var buf []byte
	select {
	case buf = <-c.writing:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
		return c.pending.Err()
	}
	defer func() { c.writing <- buf }()

	rec, at := BeginRecord(buf[:0])
	rec = content(rec)
	EndRecord(rec, at)
	buf = rec

	// A deadline in the past ends a write that is not done yet.
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.conn.SetWriteDeadline(time.Unix(1, 0)) // a closed connection ends it too
		close(interrupted)
	})
	_, err := c.conn.Write(rec)
	if !stop() {
		<-interrupted
		if err == nil {
			return c.conn.SetWriteDeadline(time.Time{})
		}
		c.fail(errGivenUp) // half a record is out
		return ctx.Err()
	}
	if err != nil {
		err = fmt.Errorf("send a call: %w", err)
		c.fail(err)
	}
	return err
}

// fail ends the connection. Calls return the first reason; the reading goroutine
// wakes those that wait.
func (c *Client) fail(err error) {
	c.pending.Fail(err)
	_ = c.conn.Close() // err is the reason already
}

// read reads replies until the connection ends, and then wakes all waiting calls.
func (c *Client) read() {
	defer close(c.done)
	r := bufio.NewReaderSize(c.conn, 64<<10)
	for {
		// Most replies are small; a larger one grows once, to its size.
		rec, err := ReadRecord(r, make([]byte, 0, 256), maxReply)
		if err == nil && len(rec) < 4 {
			err = fmt.Errorf("%w: a reply of %d bytes", ErrRecord, len(rec))
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			c.fail(fmt.Errorf("read a reply: %w", err))
			break
		}
		if !isCall(rec) {
			c.pending.Deliver(rec)
		} else if c.handle != nil {
			go c.answer(rec)
		}
	}
	c.pending.End()
}

// answer answers a call of the server's. One that can't be decoded is dropped.
func (c *Client) answer(rec []byte) {
	d := xdr.NewDecoder(rec)
	var h CallHeader
	if h.Decode(&d); d.Err() != nil {
		return
	}
	head := ReplyHeader{XID: h.XID}
	reply := c.handle(&h, &d, head.Append(nil))
	_ = c.write(context.Background(), func(b []byte) []byte { return append(b, reply...) }) // else the connection ends
}
