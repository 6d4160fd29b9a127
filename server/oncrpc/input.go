package oncrpc

import "sync/atomic"

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
	socket *Socket
	memory *inputBuffers
	wait   func()           // before it waits for the client
	buf    []byte           // what was read and nobody has taken
	lent   []byte           // memory of buf, nil: little, or nothing was read
	little [readLittle]byte // if there is none

	// A method as a value, which would be allocated for each call.
	once func(fd uintptr) bool
}

func newInput(socket *Socket, memory *inputBuffers, wait func()) *input {
	in := &input{socket: socket, memory: memory, wait: wait}
	in.once = in.readOnce
	return in
}

// Read is that of io.Reader.
func (in *input) Read(p []byte) (int, error) {
	if len(in.buf) == 0 {
		in.wait()
		if len(p) >= readAhead {
			in.giveBack()
			return in.socket.Read(p)
		}
		n, err := in.socket.readBy(in.once)
		if err != nil {
			in.giveBack()
			return 0, err
		}
		in.buf = in.socket.in.p[:n]
		in.socket.in.p = nil
	}
	n := copy(p, in.buf)
	in.buf = in.buf[n:]
	return n, nil
}

// buffered is how much was read and not taken.
func (in *input) buffered() int { return len(in.buf) }

// readOnce is false if there is nothing to read yet.
func (in *input) readOnce(fd uintptr) (done bool) {
	if in.lent == nil {
		in.lent = in.memory.take()
	}
	t := &in.socket.in
	if t.p = in.lent; t.p == nil {
		t.p = in.little[:]
	}
	if done = t.readOnce(fd); !done {
		in.giveBack()
	}
	return done
}

// giveBack gives the memory back, in which nothing is left.
func (in *input) giveBack() {
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
