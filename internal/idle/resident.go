// Package idle keeps a process cheap that has nothing to do. It wakes seldom: periodic work is done
// together (aligned.go), and no garbage is collected (rest.go). Its resident set is small (resident.go,
// free.go): the garbage collector would go on to hold what the busiest time has taken, and twice what is
// used. docs/internals/measurements.md has what this gains, and how to measure it.
package idle

import (
	"context"
	"runtime/debug"
	"time"
)

const (
	// releaseEvery is the time between two releases of unused buffers. As each releases
	// half of them, a busy time's are gone about half a minute after it.
	releaseEvery = 5 * time.Second
	// freeBytes is how many bytes must have been released for memory to be freed at once,
	// and how many the unused buffers may still have then.
	freeBytes = 1 << 20
	// idleEvery is the time after a busy time at which an idle process frees memory again: caches forget it
	// within minutes. restEvery is the time between two such times while it stays idle, since informers
	// and probes leave garbage.
	idleEvery = time.Minute
	restEvery = 5 * time.Minute
	// idlePart is the most processor time that an idle process takes, one part of so many.
	idlePart = 100
)

// TrimMemory has unused buffers released every few seconds until ctx ends, and frees memory when
// a busy time is over, and now and then while the process is idle. release gives some unused
// buffers to the garbage collector, and returns their bytes, and those of the ones that are
// left.
func TrimMemory(ctx context.Context, release func() (released, left int)) {
	tick := time.NewTimer(UntilTick(time.Now(), releaseEvery))
	defer tick.Stop()
	s := schedule{freed: time.Now(), used: processorTime(), worked: true}
	var r rest
	defer r.end()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			tick.Reset(UntilTick(now, releaseEvery))
			released, left := release()
			due, worked := s.due(now, released, left, processorTime())
			if due || !s.rests {
				r.end()
			}
			if !due {
				continue
			}
			debug.FreeOSMemory()
			if worked {
				dropProgram()
			}
			if s.rests {
				r.begin()
			}
		}
	}
}

// schedule decides when to free memory.
type schedule struct {
	freed    time.Time     // the last time
	released int           // bytes since then
	used     time.Duration // processor time of the process so far
	worked   bool          // it was not idle all the time since then
	rests    bool          // it has been idle since the last call
}

// due is called every releaseEvery, with the bytes that were released since the last call,
// those of the unused buffers that are left, and the processor time so far. worked is whether the
// process has worked since the last time that it was due.
func (s *schedule) due(now time.Time, released, left int, used time.Duration) (due, worked bool) {
	s.released += released
	s.rests = used-s.used < releaseEvery/idlePart
	s.used, s.worked = used, s.worked || !s.rests
	every := restEvery
	if s.worked {
		every = idleEvery
	}
	idle := s.rests && now.Sub(s.freed) >= every
	if left >= freeBytes || s.released < freeBytes && !idle {
		return false, s.worked
	}
	worked = s.worked
	s.freed, s.released, s.worked = now, 0, false
	return true, worked
}
