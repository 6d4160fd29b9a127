// Package socket reads and writes connections with system calls of its own.
//
// A net.Conn reports each system call to Go's scheduler, so that another goroutine can
// run if the call blocks. The first report after the process was idle wakes the
// scheduler's monitor thread (runtime.sysmon), which then wakes by itself every 20 us:
// as much work as a small call. On Go's non-blocking sockets no system call blocks.
// Without the reports a NULL call takes the server 0.68, 0.63 and 0.75 of the processor time with 1, 8
// and 32 calls in flight, and a client gets 1.24, 1.32 and 1.20 times as many answers: podnas
// bench --against, with --loads=null --connections=1 and --depth, a podnas built with
// unix.Syscall for unix.RawSyscall; /proc/PID/task/*/schedstat has the time.
//
// While a goroutine reads and writes without ever waiting, the scheduler polls the other
// connections every 10 ms at least (runtime.sysmon).
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
	// Wrote, unless nil, is called by WriteAll when it has written some more, with the bytes written so far.
	Wrote func(n int)

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
	wrote  func(n int)  // Wrote of the Conn
	iovecs []unix.Iovec // of the current write
	n      int          // bytes so far
	err    error
}

// piecesMax is the maximum number of pieces for writev(2), IOV_MAX of <limits.h>.
const piecesMax = 1024

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
	t.rest, t.wrote, t.n, t.err = pieces, c.Wrote, 0, nil
	err := c.raw.Write(c.writeRest)
	t.rest = nil
	clear(pieces)
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
			if t.wrote != nil {
				t.wrote(t.n)
			}
		case unix.EAGAIN:
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
