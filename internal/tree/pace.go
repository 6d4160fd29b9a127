package tree

import (
	"context"
	"runtime"
	"time"
)

// Work on a tree shares the disk with clients: it works for a time, then pauses as
// long. These intervals are short: while a tree was copied in intervals of 5 ms,
// one in a hundred of a client's fsyncs took more than 7 ms, in intervals of 20 ms
// more than 20, without a copy more than 2.
const (
	workFor    = 5 * time.Millisecond
	longestGap = 200 * time.Millisecond // where one step took long
)

// Pacer pauses work that calls it after each step.
type Pacer struct {
	// Part is which part of the time of the work a pause takes; 0: all of it.
	Part  time.Duration
	since time.Time // when the work began; zero: now
}

// Pause pauses if it is time for that. Its error is the cause of the end of ctx.
func (p *Pacer) Pause(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if p.since.IsZero() {
		p.since = time.Now()
		return nil
	}
	worked := time.Since(p.since)
	if worked < workFor {
		// A goroutine that makes one short system call after the other keeps its processor of Go's scheduler, and clients' calls
		// wait for it: with two of them, one write in a hundred took 2.9 ms beside a snapshot, and 0.2 ms with this line.
		runtime.Gosched()
		return nil
	}
	p.since = time.Time{}
	select {
	case <-time.After(min(worked/max(p.Part, 1), longestGap)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
