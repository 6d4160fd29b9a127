package resident

import (
	"runtime"
	"runtime/debug"
	"sync"
)

// restBytes is how much garbage there may be while the process rests.
const restBytes = 8 << 20

// rest keeps Go from collecting garbage every two minutes while the process is idle, as there is hardly any: that
// wakes threads a hundred times and takes 15 to 25 ms (docs/internals/measurements.md). What bounds it meanwhile is the limit on memory (debug.SetMemoryLimit), and the first collection for that ends the rest:
// a busy time that begins must not be slowed down by one after another.
type rest struct {
	mu      sync.Mutex
	times   int // it has begun, to tell the collections of this one from those of others
	on      bool
	percent int   // of debug.SetGCPercent before
	limit   int64 // of debug.SetMemoryLimit before
	rests   int64 // of debug.SetMemoryLimit meanwhile
}

// begin is called just after a collection. It does nothing if the user, or another rest of this process, has
// turned collections off.
func (r *rest) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.on {
		return
	}
	percent := debug.SetGCPercent(-1)
	if percent < 0 {
		return
	}
	r.times++
	r.on, r.percent, r.limit = true, percent, debug.SetMemoryLimit(-1)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	r.rests = min(r.limit, int64(m.Sys-m.HeapReleased)+restBytes)
	debug.SetMemoryLimit(r.rests)
	runtime.AddCleanup(new(*rest), r.collected, r.times) // of something that nobody uses: the next collection finds it
}

// collected ends the rest that a collection has taken place in.
func (r *rest) collected(times int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if times == r.times {
		r.endLocked()
	}
}

func (r *rest) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endLocked()
}

func (r *rest) endLocked() {
	if !r.on {
		return
	}
	r.on = false
	debug.SetGCPercent(r.percent)
	if debug.SetMemoryLimit(-1) == r.rests { // and has no other by now, see cmd/podnas/memory.go
		debug.SetMemoryLimit(r.limit)
	}
}
