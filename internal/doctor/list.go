package doctor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/podnas/podnas/internal/idle"
)

const (
	// watchPeriod is how often a List runs a check by default while somebody asks for the results,
	// and how often it runs any check at most.
	watchPeriod = 10 * time.Second
	// restPeriod is how often it runs one by default while nobody asks: checks were most of what an
	// idle process did.
	restPeriod = time.Minute
	// askedFor is how long somebody who has asked is expected to ask again. Prometheus does
	// each minute or more often.
	askedFor = 2 * time.Minute
	// wrongPeriod is how often it runs a less frequent check at least while that has
	// findings, to see soon that they are solved.
	wrongPeriod = time.Minute
	// wrongPart is how much more often it runs such a check then, but not more often
	// than others.
	wrongPart = 6
)

// List has the latest results of a set of checks. The status page, the metrics and podnas
// doctor all show it, so that they agree.
//
// Watch runs the checks periodically, one after the other, because each goroutine that starts while the
// process is idle wakes several threads. One that hangs delays the others by a moment; its own result
// is then that it does not answer. Known never waits. Current waits for the live checks.
type List struct {
	watched []*watched

	mu sync.Mutex
	// +checklocks:mu
	known time.Time // when Known was called last, or zero

	again chan struct{} // Known was called after a long time, so what it returned may be old
}

// patience is how long the checks wait for one that hangs, at most twice.
const patience = time.Second

// watched is a check and its results.
type watched struct {
	check Check                          // its Run is timed, see share
	here  func(context.Context) []Result // see share
	asked time.Time                      // when Watch ran it last; only Watch uses it

	mu sync.Mutex
	// +checklocks:mu
	began time.Time // start of the check that returned results; zero: none yet
	// +checklocks:mu
	results []Result
}

// NewList returns a List of checks.
func NewList(checks []Check) *List {
	l := &List{again: make(chan struct{}, 1)}
	for _, c := range checks {
		w := &watched{check: c}
		w.check.Run, w.here = share(c.Run)
		l.watched = append(l.watched, w)
	}
	return l
}

// Watch runs the checks, each with its period, until ctx ends.
func (l *List) Watch(ctx context.Context) {
	for {
		var due []*watched
		now := time.Now()
		asked := l.isAsked(now)
		for _, w := range l.watched {
			if !now.Before(w.due(asked)) {
				w.asked = now
				due = append(due, w)
			}
		}
		lookAt(ctx, due)
		select {
		case <-ctx.Done():
			return
		case <-l.again:
		case <-time.After(time.Until(l.next())):
		}
	}
}

// next is when a check is due.
func (l *List) next() time.Time {
	now := time.Now()
	asked, next := l.isAsked(now), now.Add(restPeriod)
	for _, w := range l.watched {
		if due := w.due(asked); due.Before(next) {
			next = due
		}
	}
	return next
}

// isAsked reports whether somebody has asked for the results lately.
func (l *List) isAsked(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Sub(l.known) < askedFor
}

// ask has the checks run more often for a while.
func (l *List) ask() {
	now := time.Now()
	l.mu.Lock()
	before := l.known
	l.known = now
	l.mu.Unlock()
	if now.Sub(before) < askedFor {
		return
	}
	select {
	case l.again <- struct{}{}:
	default:
	}
}

// lookAt runs checks one after the other. While one of them hangs, another goroutine goes on with the rest, and the
// next lookAt tells that it hangs. It waits until all have begun, and a moment for the last ones.
func lookAt(ctx context.Context, due []*watched) {
	var begun atomic.Int64
	ended := make(chan struct{}, len(due)+1)
	work := func() {
		for i := begun.Add(1) - 1; i < int64(len(due)); i = begun.Add(1) - 1 {
			due[i].look(ctx, due[i].here)
		}
		ended <- struct{}{}
	}
	go work()
	tick := time.NewTicker(patience)
	defer tick.Stop()
	for before := int64(0); ; {
		select {
		case <-ended:
			return
		case <-tick.C:
			switch now := begun.Load(); {
			case now >= int64(len(due)):
				return
			case now == before:
				go work()
			default:
				before = now
			}
		}
	}
}

// Look runs all checks now, and returns their results.
func (l *List) Look(ctx context.Context) []Result {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	found := make([][]Result, len(l.watched))
	var looking sync.WaitGroup
	for i, w := range l.watched {
		looking.Go(func() { found[i] = w.look(ctx, w.check.Run) })
	}
	looking.Wait()
	return append([]Result{}, slices.Concat(found...)...) // in JSON [], not null
}

// Known returns the latest results, and whether every check has returned some.
func (l *List) Known() (results []Result, all bool) {
	l.ask()
	all = true
	for _, w := range l.watched {
		w.mu.Lock()
		results = append(results, w.results...)
		all = all && !w.began.IsZero()
		w.mu.Unlock()
	}
	return results, all
}

// Current is Known after the live checks have run anew: for a page that shows beside the results what these
// checks are about. Call it after that was read, and the results are not older. If one of the checks hangs, it waits a
// moment.
func (l *List) Current(ctx context.Context) (results []Result, all bool) {
	var live []*watched
	for _, w := range l.watched {
		if w.check.Live {
			live = append(live, w)
		}
	}
	lookAt(ctx, live)
	return l.Known()
}

// look runs the check and keeps its results, unless a run that started later has
// already ended, or the caller is gone.
func (w *watched) look(ctx context.Context, run func(context.Context) []Result) []Result {
	began := time.Now()
	results := w.check.named(run(ctx))
	if errors.Is(ctx.Err(), context.Canceled) {
		return results
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !began.Before(w.began) {
		w.began, w.results = began, results
	}
	return results
}

// due is when Watch is to run the check. What has the same period is due at the same time. Add keeps the
// monotonic clock's reading, so nothing has to wait for a clock that was set back.
func (w *watched) due(asked bool) time.Time {
	return w.asked.Add(idle.UntilTick(w.asked, w.period(asked)))
}

// period is the time between two runs, while somebody asks for the results or nobody does.
func (w *watched) period(asked bool) time.Duration {
	every := w.check.Every
	switch {
	case every == 0 && asked:
		return watchPeriod
	case every == 0:
		every = restPeriod
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.ContainsFunc(w.results, func(r Result) bool { return r.Status != OK }) {
		return min(every, max(watchPeriod, min(every/wrongPart, wrongPeriod)))
	}
	return every
}
