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
)

// giveBack lets go of the buffers that nobody uses any more, until ctx ends. When a
// busy time is over, and with it most of what was allocated, the system gets the
// memory back: the garbage collector would come within two minutes, and then go on to
// hold what the busiest time has taken for some more.
func (s *Server) giveBack(ctx context.Context) {
	tick := time.NewTicker(letGoEvery)
	defer tick.Stop()
	gone, conns := 0, 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		before := conns
		s.mu.Lock()
		conns = len(s.conns)
		s.mu.Unlock()
		gone += max(0, before-conns) * readAhead // each had that to itself
		now, left := s.buffers.letGo()
		if gone += now; gone >= quietBytes && left < quietBytes {
			gone = 0
			debug.FreeOSMemory()
		}
	}
}
