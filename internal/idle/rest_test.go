package idle

import (
	"math"
	"runtime/debug"
	"testing"
	"time"
)

// settings are the garbage collector's at present.
func settings() (percent int, limit int64) {
	percent = debug.SetGCPercent(-1)
	debug.SetGCPercent(percent)
	return percent, debug.SetMemoryLimit(-1)
}

// At rest nothing is collected, and a busy time ends it, by what it does or by its garbage. All is as before then.
func TestRest(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(77))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(10 << 30))
	normal := func(after string) {
		t.Helper()
		if percent, limit := settings(); percent != 77 || limit != 10<<30 {
			t.Errorf("%s: %d%%, at most %d", after, percent, limit)
		}
	}
	rests := func() {
		t.Helper()
		if percent, limit := settings(); percent != -1 || limit < restBytes || limit >= 10<<30 {
			t.Fatalf("at rest: %d%%, at most %d", percent, limit)
		}
	}
	var r, other rest
	r.end()
	normal("before")
	r.begin()
	rests()
	r.begin()
	other.begin()
	other.end()
	rests()
	r.end()
	normal("after the rest")

	r.begin()
	r.collected(r.times - 1) // a collection of the time before, of which it hears late
	rests()
	for n := 0; ; n++ {
		if percent, _ := settings(); percent == 77 {
			break
		}
		if n == 100 {
			t.Fatal("there were 200 MiB of garbage, and it still rests")
		}
		kept = make([]byte, 2<<20)
		time.Sleep(time.Millisecond)
	}
	r.end() // or it is about to
	normal("after a busy time")

	r.begin()
	SetMemoryLimit(9 << 30)
	for _, after := range []string{"it is set", "the rest would have ended"} {
		if percent, limit := settings(); percent != 77 || limit != 9<<30 {
			t.Errorf("a limit of 9 GiB was set at rest: %d%%, at most %d after %s", percent, limit, after)
		}
		r.end()
	}
	r.begin()
	rests()
	r.end()
	if percent, limit := settings(); percent != 77 || limit != 9<<30 {
		t.Errorf("after the next rest: %d%%, at most %d", percent, limit)
	}
}

// A limit that is set while a rest begins is not lost.
func TestSetLimitAsRestBegins(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(77))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(10 << 30))
	var r rest
	defer r.end()
	for n := range 500 {
		began := make(chan struct{})
		go func() {
			defer close(began)
			r.begin()
		}()
		time.Sleep(time.Duration(n%100) * time.Microsecond)
		set := 5<<30 + int64(n)
		SetMemoryLimit(set)
		<-began
		r.end()
		if percent, limit := settings(); percent != 77 || limit != set {
			t.Fatalf("round %d: %d%%, at most %d, want %d", n, percent, limit, set)
		}
	}
}

var kept []byte // or it would not be allocated

// A user's settings count.
func TestRestOfUser(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(64 << 20))
	var r rest
	defer r.end()
	r.begin()
	if percent, limit := settings(); percent != -1 || limit != 64<<20 || collector.resting != nil {
		t.Errorf("with GOGC=off: %d%%, at most %d", percent, limit)
	}
	debug.SetGCPercent(100)
	debug.SetMemoryLimit(math.MaxInt64)
	r.begin()
	if _, limit := settings(); limit == math.MaxInt64 {
		t.Error("there is no limit at rest")
	}
	r.end()
	debug.SetMemoryLimit(1 << 20)
	r.begin()
	if _, limit := settings(); limit != 1<<20 {
		t.Errorf("the limit of the user is 1 MiB, and %d at rest", limit)
	}
}
