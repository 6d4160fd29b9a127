package server

import (
	"os"
	"runtime"
)

// UseProcessors sets the number of threads that run Go code at a time, unless the
// environment does: a thread that waits for the disk counts among them until Go's
// scheduler notices, so there are four for each processor. On two processors that gives
// twice as many synced writes a second.
func UseProcessors() {
	if os.Getenv("GOMAXPROCS") != "" {
		return
	}
	runtime.SetDefaultGOMAXPROCS() // this may not be the process's first server
	runtime.GOMAXPROCS(4 * runtime.GOMAXPROCS(0))
}
