package oncrpc

// connCost is about how many bytes a connection takes, without a call.
const connCost = 16 << 10

// fewPieces is how many replies in one write leave nothing behind that is worth releasing.
const fewPieces = 8

// idleCalls is for how many calls at a time the memory is kept: clients that do nothing renew their leases, which would
// make it anew each time.
const idleCalls = 1

// releaser returns a function that releases half of the memory that is kept to be used
// again, and what a busy time has left to the connections. It returns the bytes released,
// and those that are left.
func (s *Server) releaser() func() (released, left int) {
	conns := 0
	return func() (released, left int) {
		before := conns
		conns = s.slimDown()
		released, left = s.buffers.halve()
		n, kept := s.calls.halve(idleCalls)
		released, left = released+n*callBytes, left+kept*callBytes
		n, kept = s.inputs.free.halve(idleCalls)
		released, left = released+n*readAhead, left+kept*readAhead
		released += s.readers.release(false) * readerCost
		return released + max(0, before-conns)*connCost, left
	}
}

// slimDown releases what the connections have kept of a busy time, and returns how many
// there are.
func (s *Server) slimDown() (conns int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.slimDown()
	}
	return len(s.conns)
}

func (c *conn) slimDown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writing || len(c.out) > 0 || cap(c.pieces) <= fewPieces { // the writer uses the pieces
		return
	}
	c.out, c.written, c.pieces = nil, nil, nil
	c.Conn.SlimDown()
}
