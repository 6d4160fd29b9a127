package idle

import (
	"testing"
	"time"
)

// What begins at any time goes off together, and then each time after its period.
func TestUntilTick(t *testing.T) {
	const period = 5 * time.Second
	begin := time.Now()
	first := begin.Add(UntilTick(begin, period))
	if first.Sub(begin) > period {
		t.Errorf("the first time is %v later", first.Sub(begin))
	}
	for _, later := range []time.Duration{0, time.Millisecond, time.Second, first.Sub(begin) - 1} {
		now := begin.Add(min(later, first.Sub(begin)-1))
		if next := now.Add(UntilTick(now, period)); !next.Equal(first) {
			t.Errorf("%v later: %v, want %v", now.Sub(begin), next, first)
		}
	}
	if again := UntilTick(first, period); again != period {
		t.Errorf("the next time is %v later", again)
	}
	if both := first.Add(UntilTick(first, 2*period)); UntilTick(both, period) != period {
		t.Errorf("at %v one goes off, but not the other with half of its period", both)
	}
}
