package oncrpc

import (
	"testing"
	"time"
)

func TestQuiet(t *testing.T) {
	const much, little = letGoEvery, letGoEvery / restPart / 2 // of processors, between two looks
	start := time.Unix(1_700_000_000, 0)
	q := quiet{since: start}
	var used time.Duration
	for _, look := range []struct {
		name       string
		after      time.Duration
		gone, left int
		used       time.Duration
		begins     bool
	}{
		{"just started", 5 * time.Second, 0, 0, little, false},
		{"large buffers are in use", 10 * time.Second, quietBytes, quietBytes, much, false},
		{"and now are not", 15 * time.Second, 0, 0, much, true},
		{"some are let go", 20 * time.Second, quietBytes / 2, 0, much, false},
		{"and some more", 25 * time.Second, quietBytes / 2, 0, much, true},
		{"not long after", 25*time.Second + restEvery - 1, 0, 0, little, false},
		{"a minute after, with small calls", 25*time.Second + restEvery, 0, 0, much, false},
		{"that have ended", 30*time.Second + restEvery, 0, 0, little, true},
		{"not long after that", 35*time.Second + restEvery, 0, 0, little, false},
		{"a minute after that, at rest", 30*time.Second + 2*restEvery, 0, 0, little, true},
		{"a minute after that, with large buffers", 30*time.Second + 3*restEvery, 0, quietBytes, little, false},
	} {
		used += look.used
		if begins := q.begins(start.Add(look.after), look.gone, look.left, used); begins != look.begins {
			t.Errorf("%s: %v", look.name, begins)
		}
	}
}
