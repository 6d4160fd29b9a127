package oncrpc

import (
	"context"
	"runtime/debug"
	"time"
)

const (
	// letGoEvery is how often unused buffers are let go: so a busy time's are gone
	// about half a minute after it.
	letGoEvery = 5 * time.Second
	// quietBytes is how much must have been let go for the system to be given memory
	// back at once, and how little may be left.
	quietBytes = 1 << 20
	// restAfter is how long after that the rest is given back: what others remember
	// of a busy time (handles, what files are charged for) is forgotten by then.
	restAfter = 3 * time.Minute
)

// giveBack lets go of the buffers that nobody uses any more, until ctx ends. When a
// busy time is over, and with it most of what was allocated, the system gets the
// memory back: the garbage collector would come within two minutes, and then go on to
// hold what the busiest time has taken for some more.
func (s *Server) giveBack(ctx context.Context) {
	tick := time.NewTicker(letGoEvery)
	defer tick.Stop()
	gone, conns := 0, 0
	rest := time.Now().Add(restAfter) // the start is a busy time too; zero: there is none
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
		gone += max(0, before-conns) * readAhead // each had that to itself
		now, left := s.buffers.letGo()
		gone += now
		switch {
		case left >= quietBytes: // it is busy
		case gone >= quietBytes:
			gone, rest = 0, at.Add(restAfter)
			debug.FreeOSMemory()
		case !rest.IsZero() && at.After(rest):
			rest = time.Time{}
			debug.FreeOSMemory()
		}
	}
}
