// Package socket reads and writes connections with system calls of its own.
//
// A net.Conn reports each system call to Go's scheduler, so that another goroutine can
// run if the call blocks. The first report after the process was idle wakes the
// scheduler's monitor thread (runtime.sysmon), which then wakes by itself every 20 us:
// as much work as a small call. On Go's non-blocking sockets no system call blocks.
//
// But without reports, while a goroutine reads and writes without ever waiting, the
// scheduler does not poll the other connections. So this package starts a poll now and
// then.
package socket

import (
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Conn is a connection. One goroutine may read and one may write at a time.
type Conn struct {
	net.Conn
	raw     syscall.RawConn
	in, out transfer

	// Methods as values, which would be allocated for each call.
	readOnce, readLent, writeRest func(fd uintptr) (done bool)
}

// transfer is one direction of a Conn.
type transfer struct {
	p      []byte       // to read into
	lender Lender       // of p, or nil
	rest   [][]byte     // to write
	iovecs []unix.Iovec // of the current write
	n      int          // bytes so far
	err    error
	busy   int // bytes since the last wait, with roundBytes for each system call
}

const (
	// piecesMax is the maximum number of pieces for writev(2), IOV_MAX of <limits.h>.
	piecesMax = 1024
	// roundBytes is how much can be copied in the time of answering a batch of small
	// calls.
	roundBytes = 64 << 10
	// busyMax is how much is copied between polls: a few milliseconds.
	busyMax = 8 << 20
)

// New returns a Conn for a TCP or Unix socket connection.
func New(nc net.Conn) (*Conn, error) {
	conn, ok := nc.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("a connection of type %T has no socket", nc)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: nc, raw: raw}
	c.readOnce, c.readLent, c.writeRest = c.in.readOnce, c.in.readLent, c.out.writeRest
	return c, nil
}

// Read is like Read of net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.in.p = p
	n, err := c.read(c.readOnce)
	c.in.p = nil
	return n, err
}

// Lender lends memory to read into.
type Lender interface {
	Lend() []byte
	GiveBack()
}

// ReadLent reads once, like Read, and returns the data. It borrows the memory from the
// lender when there may be data, and returns it if there is none.
func (c *Conn) ReadLent(memory Lender) ([]byte, error) {
	c.in.lender = memory
	n, err := c.read(c.readLent)
	p := c.in.p
	c.in.lender, c.in.p = nil, nil
	if err != nil {
		return nil, err
	}
	return p[:n], nil
}

func (c *Conn) read(once func(fd uintptr) bool) (int, error) {
	t := &c.in
	t.n, t.err = 0, nil
	err := c.raw.Read(once)
	t.ended()
	switch {
	case err != nil: // closed, or a deadline
		return 0, err
	case t.n == 0 && t.err == nil:
		return 0, io.EOF
	}
	return t.n, t.err
}

// WriteAll writes all pieces in order, and clears pieces. The error is why it did not
// write all.
func (c *Conn) WriteAll(pieces [][]byte) error {
	t := &c.out
	t.rest, t.n, t.err = pieces, 0, nil
	err := c.raw.Write(c.writeRest)
	t.rest = nil
	clear(pieces)
	t.ended()
	if err != nil { // closed, or a deadline
		return err
	}
	return t.err
}

// SlimDown frees the memory that WriteAll reuses. It counts as writing.
func (c *Conn) SlimDown() { c.out.iovecs = nil }

// readLent returns false if there is nothing to read yet.
func (t *transfer) readLent(fd uintptr) (done bool) {
	t.p = t.lender.Lend()
	if done = t.readOnce(fd); !done {
		t.lender.GiveBack()
	}
	return done
}

// readOnce returns false if there is nothing to read yet.
func (t *transfer) readOnce(fd uintptr) (done bool) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(t.p))), uintptr(len(t.p)))
	switch errno {
	case 0:
		t.n = int(n)
	case unix.EAGAIN:
		t.busy = 0
		return false
	default:
		t.err = os.NewSyscallError("read", errno)
	}
	return true
}

// writeRest returns false if the socket's buffer is full.
func (t *transfer) writeRest(fd uintptr) (done bool) {
	for len(t.rest) > 0 {
		t.iovecs = t.iovecs[:0]
		for _, p := range t.rest[:min(len(t.rest), piecesMax)] {
			iovec := unix.Iovec{Base: unsafe.SliceData(p)}
			iovec.SetLen(len(p))
			t.iovecs = append(t.iovecs, iovec)
		}
		n, _, errno := unix.RawSyscall(unix.SYS_WRITEV, fd, uintptr(unsafe.Pointer(unsafe.SliceData(t.iovecs))), uintptr(len(t.iovecs)))
		clear(t.iovecs)
		switch errno {
		case 0:
			t.written(int(n))
		case unix.EAGAIN:
			t.busy = 0
			return false
		default:
			t.err = os.NewSyscallError("writev", errno)
			return true
		}
	}
	return true
}

// written removes n bytes from the rest.
func (t *transfer) written(n int) {
	t.n += n
	for len(t.rest) > 0 && n >= len(t.rest[0]) {
		n -= len(t.rest[0])
		t.rest = t.rest[1:]
	}
	if n > 0 {
		t.rest[0] = t.rest[0][n:]
	}
}

// ended makes the scheduler poll once busy reaches busyMax.
func (t *transfer) ended() {
	if t.busy += roundBytes + t.n; t.busy < busyMax {
		return
	}
	t.busy = 0
	// An idle processor wakes for the new goroutine, and polls the network after it. If
	// all are busy, the monitor thread polls: it wakes at a system call that is reported
	// to the scheduler.
	go func() {}()
	_, _, _ = unix.Syscall(unix.SYS_GETPPID, 0, 0, 0)
}
