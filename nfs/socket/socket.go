// Package socket reads and writes connections by system calls of its own.
//
// A net.Conn tells Go's scheduler of each system call, so that another goroutine can run
// if the call blocks, and the first one after all was idle wakes the thread that watches for
// that (runtime.sysmon), which then wakes by itself every 20 us: as much work as a
// small call. On a socket that Go has made, no system call blocks.
//
// But the scheduler then learns of nothing while a goroutine reads and writes all the
// time and never waits: nobody looks which other connections can be read. So it is
// told so every now and then.
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

// Conn is a connection. One goroutine may read, and one may write at a time.
type Conn struct {
	net.Conn
	raw     syscall.RawConn
	in, out transfer

	// Methods as values, which would be allocated for each call.
	readOnce, readLent, writeRest func(fd uintptr) (done bool)
}

// transfer is one direction of a Conn.
type transfer struct {
	p      []byte       // to be read into
	lender Lender       // of p, or nil
	rest   [][]byte     // to be written
	iovecs []unix.Iovec // the memory of what is written at once
	n      int          // bytes, so far
	err    error
	busy   int // bytes since the last wait, with roundBytes for each system call
}

const (
	// piecesMax is how many pieces writev(2) takes, IOV_MAX of <limits.h>.
	piecesMax = 1024
	// roundBytes is how much is copied in the time that it takes to answer a batch of
	// small calls.
	roundBytes = 64 << 10
	// busyMax is after how much the scheduler is told: a few milliseconds.
	busyMax = 8 << 20
)

// New makes a Conn of a connection of TCP, or on a Unix socket.
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

// Read is that of net.Conn.
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

// ReadLent reads once, like Read, and returns what was read. The memory is the lender's,
// asked for it when there may be something to read, and given back where there is not.
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

// WriteAll writes some pieces, in their order, and forgets them: pieces has none after
// it. The error tells why not all are written.
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

// SlimDown drops the memory that WriteAll has left for the next one. It counts as writing.
func (c *Conn) SlimDown() { c.out.iovecs = nil }

// readLent is false if there is nothing to read yet.
func (t *transfer) readLent(fd uintptr) (done bool) {
	t.p = t.lender.Lend()
	if done = t.readOnce(fd); !done {
		t.lender.GiveBack()
	}
	return done
}

// readOnce is false if there is nothing to read yet.
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

// writeRest is false if there is no more room yet.
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

// written takes n bytes from the rest.
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

// ended tells the scheduler that there is work, if that has gone on for a while.
func (t *transfer) ended() {
	if t.busy += roundBytes + t.n; t.busy < busyMax {
		return
	}
	t.busy = 0
	// A processor that has nothing to do wakes for the goroutine, and looks at the
	// network after it. Where all are busy, the thread that watches does so: it wakes
	// at a system call that it is told of.
	go func() {}()
	_, _, _ = unix.Syscall(unix.SYS_GETPPID, 0, 0, 0)
}
