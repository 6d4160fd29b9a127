package idle

import "time"

// UntilTick returns the time until the next multiple of period, for a timer that is set again each time. With
// it periodic work is done together: each timer that goes off on its own wakes several threads of Go's scheduler
// (make idle; docs/internals/measurements.md).
func UntilTick(now time.Time, period time.Duration) time.Duration {
	return period - now.Sub(now.Truncate(period))
}
