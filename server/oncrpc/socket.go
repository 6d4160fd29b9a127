package oncrpc

import (
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Socket is a connection that is read and written without a word to Go's scheduler.
// A net.Conn tells it of each system call, so that another goroutine can run if the
// call blocks, and the first one after all was idle wakes the thread that watches for
// that (runtime.sysmon), which then wakes by itself every 20 us: as much work as a
// small call. On a socket that Go has made, no system call blocks.
//
// But the scheduler then learns of nothing while a goroutine reads and writes all the
// time and never waits: nobody looks which other connections can be read. So it is
// told so every now and then.
//
// One goroutine may read, and one may write at a time.
type Socket struct {
	net.Conn
	raw     syscall.RawConn
	in, out transfer

	// Methods as values, which would be allocated for each call.
	readOnce, writeRest func(fd uintptr) (done bool)
}

// transfer is one direction of a Socket.
type transfer struct {
	p      []byte       // to be read into
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

// NewSocket makes a Socket of a connection of TCP, or on a Unix socket.
func NewSocket(nc net.Conn) (*Socket, error) {
	conn, ok := nc.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("oncrpc: a connection of type %T has no socket", nc)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &Socket{Conn: nc, raw: raw}
	s.readOnce, s.writeRest = s.in.readOnce, s.out.writeRest
	return s, nil
}

// Read is that of net.Conn.
func (s *Socket) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.in.p = p
	n, err := s.readBy(s.readOnce)
	s.in.p = nil
	return n, err
}

// readBy is Read with a readOnce of the caller's, which chooses where to.
func (s *Socket) readBy(once func(fd uintptr) bool) (int, error) {
	t := &s.in
	t.n, t.err = 0, nil
	err := s.raw.Read(once)
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
func (s *Socket) WriteAll(pieces [][]byte) error {
	t := &s.out
	t.rest, t.n, t.err = pieces, 0, nil
	err := s.raw.Write(s.writeRest)
	t.rest = nil
	clear(pieces)
	t.ended()
	if err != nil { // closed, or a deadline
		return err
	}
	return t.err
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
