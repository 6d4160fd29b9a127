// Package aligned has periodic work done together, at the multiples of its period. Each timer that goes
// off on its own wakes several threads of Go's scheduler, so an idle process wakes less often if its
// timers go off at once (make idle; docs/internals/measurements.md).
package aligned

import "time"

// Until is the time until the next multiple of period, for a timer that is set again each time.
func Until(now time.Time, period time.Duration) time.Duration {
	return period - now.Sub(now.Truncate(period))
}
