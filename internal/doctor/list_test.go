package doctor

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// What is known is what was found last; a check that hangs is told, and keeps nobody
// from the others.
func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disk, rights atomic.Value
		var calls atomic.Int64
		disk.Store(Good("fine"))
		rights.Store(Good("fine"))
		hang := make(chan struct{})
		l := NewList([]Check{
			{Source: "disk", Name: "hangs", Run: func(context.Context) []Result { <-hang; return []Result{Good("back")} }},
			{Source: "disk", Name: "disk", Run: func(context.Context) []Result { return []Result{disk.Load().(Result)} }},
			{Source: "cluster", Name: "rights", Every: 10 * time.Minute, Run: func(context.Context) []Result { calls.Add(1); return []Result{rights.Load().(Result)} }},
		})
		want := func(all bool, want ...Result) {
			t.Helper()
			synctest.Wait()
			if got, looked := l.Known(); !slices.Equal(got, want) || looked != all {
				t.Errorf("known %+v, %t; want %+v, %t", got, looked, want, all)
			}
		}
		is := func(source, check string, status Status, says string) Result {
			return Result{Check: check, Status: status, Says: says, Source: source}
		}
		hung := func(says string) Result {
			r := is("disk", "hangs", Failed, says)
			r.Fix = "if this concerns the disk, check the kernel's log (dmesg) of podnas's node, and the backing disk"
			return r
		}
		want(false)
		began := time.Now()
		ctx, stop := context.WithCancel(t.Context())
		go l.Watch(ctx)
		time.Sleep(3 * patience)
		want(false, is("disk", "disk", OK, "fine"), is("cluster", "rights", OK, "fine"))
		time.Sleep(Timeout - 3*patience)
		since := ", since " + began.UTC().Format(time.RFC3339)
		want(true, hung("no answer for 10s"+since), is("disk", "disk", OK, "fine"), is("cluster", "rights", OK, "fine"))

		// What changes is seen soon, what is asked for rarely at the next look, or when
		// somebody wants to know.
		disk.Store(Result{Status: Failed, Says: "gone"})
		rights.Store(Result{Status: Warning, Says: "missing"})
		time.Sleep(watchPeriod)
		want(true, hung("no answer for 20s"+since), is("disk", "disk", Failed, "gone"), is("cluster", "rights", OK, "fine"))
		if got := l.Look(ctx); len(got) != 3 || got[2].Says != "missing" || calls.Load() != 2 {
			t.Errorf("looked: %+v after %d calls", got, calls.Load())
		}
		want(true, hung("no answer for 20s"+since), is("disk", "disk", Failed, "gone"), is("cluster", "rights", Warning, "missing"))

		// One who goes away leaves nothing behind.
		gone, cancel := context.WithCancel(ctx)
		cancel()
		disk.Store(Good("fine"))
		l.Look(gone)
		want(true, hung("no answer for 20s"+since), is("disk", "disk", Failed, "gone"), is("cluster", "rights", Warning, "missing"))

		// What is mended is gone.
		close(hang)
		rights.Store(Good("fine"))
		time.Sleep(10 * time.Minute)
		want(true, is("disk", "hangs", OK, "back"), is("disk", "disk", OK, "fine"), is("cluster", "rights", OK, "fine"))
		calls.Store(0)
		rights.Store(Result{Status: Warning, Says: "missing"})
		time.Sleep(10 * time.Minute) // it is found
		time.Sleep(10 * time.Minute) // and looked after
		if n := calls.Load(); n < 10 || n > 21 {
			t.Errorf("%d looks at what is wrong", n)
		}
		stop()
		synctest.Wait()
		before := calls.Load()
		time.Sleep(time.Hour)
		if calls.Load() != before {
			t.Error("it looks after its end")
		}
	})
}

// What is wrong is looked at more often than what is well.
func TestListPeriod(t *testing.T) {
	wrong := []Result{Fail("wait", "not ready")}
	for _, tt := range []struct {
		every   time.Duration
		asked   bool
		results []Result
		want    time.Duration
	}{
		{0, true, nil, 10 * time.Second},
		{0, true, wrong, 10 * time.Second},
		{0, false, nil, time.Minute},
		{0, false, wrong, 10 * time.Second},
		{time.Minute, true, nil, time.Minute},
		{time.Minute, false, wrong, 10 * time.Second},
		{10 * time.Minute, true, wrong, time.Minute},
	} {
		w := &watched{check: Check{Every: tt.every}, results: tt.results}
		if got := w.period(tt.asked); got != tt.want {
			t.Errorf("every %s, asked %t, with %v: the next one is in %s, want %s", tt.every, tt.asked, tt.results, got, tt.want)
		}
	}
}

// While nobody asks, little is done. Who asks gets what is known, soon what is, and from then on all news.
func TestListAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		l := NewList([]Check{One("disk", func(context.Context) Result { return Good("%d", calls.Add(1)) })})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go l.Watch(ctx)
		in := func(d time.Duration) int64 {
			before := calls.Load()
			time.Sleep(d)
			synctest.Wait()
			return calls.Load() - before
		}
		if n := in(10*time.Minute + time.Second); n != 1+10 {
			t.Errorf("%d looks in ten minutes", n)
		}
		time.Sleep(watchPeriod)
		l.Known()
		if n := in(time.Millisecond); n != 1 {
			t.Errorf("%d looks at once when somebody asks", n)
		}
		for range 3 { // as Prometheus does
			l.Known()
			if n := in(time.Minute); n != 6 {
				t.Errorf("%d looks in a minute", n)
			}
		}
		time.Sleep(askedFor)
		if n := in(10 * time.Minute); n != 10 {
			t.Errorf("%d looks in ten minutes after that", n)
		}
	})
}
