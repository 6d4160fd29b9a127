package tree

import (
	"context"
	"time"
)

// Work on a tree goes on beside the serving of others. It takes turns with it:
// some work, then a pause as long. The turns are short: while a tree was copied in
// turns of 5 ms, one in a hundred of a neighbour's fsyncs took more than 7 ms, in
// turns of 20 ms more than 20, without a copy more than 2.
const (
	workFor    = 5 * time.Millisecond
	longestGap = 200 * time.Millisecond // where one step took long
)

// pacer pauses work that calls it after each step.
type pacer struct {
	since time.Time // when the work began; zero: now
}

// pause returns at once, or after a pause if it is time for one. Its error is
// that of ctx.
func (p *pacer) pause(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.since.IsZero() {
		p.since = time.Now()
		return nil
	}
	worked := time.Since(p.since)
	if worked < workFor {
		return nil
	}
	p.since = time.Time{}
	select {
	case <-time.After(min(worked, longestGap)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
