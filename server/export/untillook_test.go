package export

import (
	"testing"
	"time"

	"github.com/podnas/podnas/server/space"
)

// Volumes that begin at any time look after their charges together.
func TestVolumesLookTogether(t *testing.T) {
	begin := time.Now()
	first := begin.Add(untilLook(begin))
	for _, later := range []time.Duration{0, time.Millisecond, time.Second, first.Sub(begin) - 1} {
		now := begin.Add(later)
		if next := now.Add(untilLook(now)); !next.Equal(first) && later < first.Sub(begin) {
			t.Errorf("%v later: %v, want %v", later, next, first)
		}
	}
	if again := untilLook(first); again != space.LookAfter/8 {
		t.Errorf("the next time is %v later", again)
	}
}
