package oncrpc

import (
	"context"
	"time"
)

const (
	// letGoEvery is how often unused buffers are let go: so a busy time's are gone
	// about half a minute after it.
	letGoEvery = 5 * time.Second
	// quietBytes is how much must have been let go for the system to be given memory
	// back at once, and how little may be left.
	quietBytes = 1 << 20
	// restEvery is how often a server at rest gives back what it does not need: what
	// others remember of a busy time (handles, what files are charged for) is forgotten
	// within minutes, and informers and probes leave garbage.
	restEvery = time.Minute
	// restPart is at most how much of a processor's time a server at rest takes, one part
	// of so many.
	restPart = 100
	// connCost is about what a connection takes, without a call.
	connCost = 16 << 10
	// fewPieces is how many replies at once leave nothing behind that is worth to be
	// taken.
	fewPieces = 8
)

// giveBack lets go of the buffers that nobody uses any more, until ctx ends. When a
// busy time is over, and with it most of what was allocated, the system gets the
// memory back, and again while the server is at rest: the garbage collector would go on
// to hold what the busiest time has taken, and twice what is used.
func (s *Server) giveBack(ctx context.Context) {
	tick := time.NewTicker(letGoEvery)
	defer tick.Stop()
	conns := 0
	q := quiet{since: time.Now(), used: processorTime()}
	for {
		var at time.Time
		select {
		case <-ctx.Done():
			return
		case at = <-tick.C:
		}
		before := conns
		conns = s.slimDown()
		gone, left := s.letGo()
		gone += max(0, before-conns) * connCost
		if q.begins(at, gone, left, processorTime()) {
			freeMemory()
		}
	}
}

// letGo is that of all memory that is used again.
func (s *Server) letGo() (gone, left int) {
	gone, left = s.buffers.letGo()
	n, kept := s.calls.halve()
	gone, left = gone+n*callCost, left+kept*callCost
	n, kept = s.inputs.free.halve()
	return gone + n*readAhead, left + kept*readAhead
}

// slimDown takes from the connections what a busy time has left to them, and tells how
// many there are.
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
	if c.writing || len(c.out) > 0 || cap(c.pieces) <= fewPieces { // whoever writes has the pieces
		return
	}
	c.out, c.written, c.pieces = nil, nil, nil
	c.Conn.SlimDown()
}

// quiet finds out when memory is to be given back.
type quiet struct {
	since time.Time     // when it was given back last
	gone  int           // bytes that were let go since
	used  time.Duration // of processors, so far
}

// begins is asked every letGoEvery: gone bytes of buffers were let go since, left are
// there, and so long processors have worked for the process so far.
func (q *quiet) begins(at time.Time, gone, left int, used time.Duration) bool {
	q.gone += gone
	atRest := used-q.used < letGoEvery/restPart && at.Sub(q.since) >= restEvery
	q.used = used
	if left >= quietBytes || q.gone < quietBytes && !atRest {
		return false
	}
	q.since, q.gone = at, 0
	return true
}
