package oncrpc

import (
	"slices"
	"testing"
	"time"
)

func TestWaitsOver(t *testing.T) {
	l := &limits{idle: 100 * time.Second, record: 10 * time.Second, write: 20 * time.Second}
	begin := func(kind uint64) func(*waits) { return func(w *waits) { w.begin(kind) } }
	stay := func(*waits) {}
	for name, test := range map[string]struct {
		steps []func(*waits) // one before each look; the looks are 10 s apart
		over  int            // the look that ends the wait, from 0; -1: none
	}{
		"no wait":                 {[]func(*waits){stay, stay, stay}, -1},
		"half a record":           {[]func(*waits){begin(waitRecord), stay, stay}, 1},
		"replies are not taken":   {[]func(*waits){begin(waitWrite), stay, stay}, 2},
		"no call":                 {append([]func(*waits){begin(waitCall)}, slices.Repeat([]func(*waits){stay}, 10)...), 10},
		"a call, then none":       {append([]func(*waits){begin(waitCall), begin(waitCall)}, slices.Repeat([]func(*waits){stay}, 10)...), 11},
		"a record after another":  {slices.Repeat([]func(*waits){begin(waitRecord)}, 5), -1},
		"the call takes its time": {append([]func(*waits){begin(waitRecord), (*waits).end}, slices.Repeat([]func(*waits){stay}, 20)...), -1},
		"a call, then half a one": {[]func(*waits){begin(waitCall), begin(waitRecord), stay, stay}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var w waits
			over := -1
			now := time.Now()
			for i, step := range test.steps {
				step(&w)
				if w.over(now, l) {
					over = i
					break
				}
				now = now.Add(10 * time.Second)
			}
			if over != test.over {
				t.Errorf("over at look %d, want %d", over, test.over)
			}
		})
	}
}
