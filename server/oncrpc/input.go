package oncrpc

import (
	"sync/atomic"

	"github.com/podnas/podnas/nfs/socket"
)

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
