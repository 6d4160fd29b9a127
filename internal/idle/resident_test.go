package idle

import (
	"testing"
	"time"
)

func TestSchedule(t *testing.T) {
	const much, little = releaseEvery, releaseEvery / idlePart / 2 // of processors, between two calls
	start := time.Unix(1_700_000_000, 0)
	s := schedule{freed: start}
	var used time.Duration
	for _, look := range []struct {
		name       string
		after      time.Duration
		gone, left int
		used       time.Duration
		due        bool
		worked     bool
	}{
		{"just started", 5 * time.Second, 0, 0, little, false, false},
		{"large buffers are in use", 10 * time.Second, freeBytes, freeBytes, much, false, true},
		{"and now are not", 15 * time.Second, 0, 0, much, true, true},
		{"some are let go", 20 * time.Second, freeBytes / 2, 0, much, false, true},
		{"and some more", 25 * time.Second, freeBytes / 2, 0, much, true, true},
		{"not long after", 25*time.Second + idleEvery - 1, 0, 0, little, false, false},
		{"a minute after, with small calls", 25*time.Second + idleEvery, 0, 0, much, false, true},
		{"that have ended", 30*time.Second + idleEvery, 0, 0, little, true, true},
		{"not long after that", 35*time.Second + idleEvery, 0, 0, little, false, false},
		{"a minute after that, at rest", 30*time.Second + 2*idleEvery, 0, 0, little, false, false},
		{"nearly another, at rest", 30*time.Second + idleEvery + restEvery, 0, 0, little, true, false},
		{"as long after that, with large buffers", 30*time.Second + idleEvery + 2*restEvery, 0, freeBytes, little, false, false},
	} {
		used += look.used
		if due, worked := s.due(start.Add(look.after), look.gone, look.left, used); due != look.due || worked != look.worked {
			t.Errorf("%s: due %v, and it has worked %v", look.name, due, worked)
		}
	}
}
