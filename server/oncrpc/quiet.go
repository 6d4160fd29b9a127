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
		s.mu.Lock()
		conns = len(s.conns)
		s.mu.Unlock()
		gone, left := s.buffers.letGo()
		gone += max(0, before-conns) * readAhead // each had that to itself
		if q.begins(at, gone, left, processorTime()) {
			freeMemory()
		}
	}
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
