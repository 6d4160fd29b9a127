package idle

import (
	"runtime"
	"runtime/debug"
	"sync"
)

// restBytes is how much garbage there may be while the process rests.
const restBytes = 8 << 20

// collector guards the settings of Go's garbage collector (debug.SetGCPercent and debug.SetMemoryLimit). Go has one for
// the process, so there is one of this, too.
var collector struct { //nolint:gochecknoglobals // it guards what is global in package runtime/debug
	sync.Mutex
	resting *rest // or nil
}

// SetMemoryLimit sets Go's soft limit of memory, as debug.SetMemoryLimit does, which nothing else may call beside TrimMemory. A rest ends
// with it, as it has a limit of its own, and was begun under another one.
func SetMemoryLimit(bytes int64) {
	collector.Lock()
	defer collector.Unlock()
	if collector.resting != nil {
		collector.resting.endLocked()
	}
	debug.SetMemoryLimit(bytes)
}

// rest keeps Go from collecting garbage every two minutes while the process is idle, as there is hardly any: that
// wakes threads a hundred times and takes 15 to 25 ms (docs/internals/measurements.md). What bounds it meanwhile is the limit
// on memory, and the first collection for that ends the rest: a busy time that begins must not be slowed down by one after
// another.
//
// collector's lock guards it.
type rest struct {
	times   int   // it has begun, to tell the collections of this one from those of others
	percent int   // of debug.SetGCPercent before
	limit   int64 // of debug.SetMemoryLimit before
}

// begin is called just after a collection. It does nothing if the user has turned collections off, or if
// this or another rest of the process is under way.
func (r *rest) begin() {
	collector.Lock()
	defer collector.Unlock()
	if collector.resting != nil {
		return
	}
	percent := debug.SetGCPercent(-1)
	if percent < 0 {
		return
	}
	collector.resting = r
	r.times++
	r.percent, r.limit = percent, debug.SetMemoryLimit(-1)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	debug.SetMemoryLimit(min(r.limit, int64(m.Sys-m.HeapReleased)+restBytes))
	runtime.AddCleanup(new(*rest), r.collected, r.times) // of something that nobody uses: the next collection finds it
}

// collected ends the rest that a collection has taken place in.
func (r *rest) collected(times int) {
	collector.Lock()
	defer collector.Unlock()
	if times == r.times {
		r.endLocked()
	}
}

func (r *rest) end() {
	collector.Lock()
	defer collector.Unlock()
	r.endLocked()
}

func (r *rest) endLocked() {
	if collector.resting != r {
		return
	}
	collector.resting = nil
	debug.SetGCPercent(r.percent)
	debug.SetMemoryLimit(r.limit)
}
