package oncrpc

import (
	"sync/atomic"

	"github.com/podnas/podnas/nfs/socket"
)

const (
	// readAhead is how much is read at once: a batch of small calls.
	readAhead = 32 << 10
	// readAheads is how many connections have so much at a time, and readLittle what
	// the others read.
	readAheads = 512
	readLittle = 512
)

// input reads a connection ahead, so that small calls that come together cost one
// system call. The memory for it is taken when there is something to read and given
// back when there is not, so a connection without a call has none.
//
// One goroutine may read.
type input struct {
	socket *socket.Conn
	memory *inputBuffers
	wait   func()           // before it waits for the client
	buf    []byte           // what was read and nobody has taken
	lent   []byte           // memory of buf, nil: little, or nothing was read
	little [readLittle]byte // if there is none
}

func newInput(s *socket.Conn, memory *inputBuffers, wait func()) *input {
	return &input{socket: s, memory: memory, wait: wait}
}

// Read is that of io.Reader.
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

// buffered is how much was read and not taken.
func (in *input) buffered() int { return len(in.buf) }

// Lend is that of socket.Lender.
func (in *input) Lend() []byte {
	if in.lent == nil {
		in.lent = in.memory.take()
	}
	if in.lent == nil {
		return in.little[:]
	}
	return in.lent
}

// GiveBack gives the memory back, in which nothing is left.
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

// take is nil if others have all.
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
