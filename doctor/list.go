package doctor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/podnas/podnas/aligned"
)

const (
	// watchPeriod is how often a List runs a check by default.
	watchPeriod = 10 * time.Second
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
// Watch runs the checks periodically and independently, so one that hangs delays no
// other; its own result is then that it does not answer. Known never waits.
type List struct{ watched []*watched }

// watched is a check and its results.
type watched struct {
	check Check // shared: see Shared

	mu      sync.Mutex
	began   time.Time // start of the check that returned results; zero: none yet
	results []Result
}

// NewList returns a List of checks.
func NewList(checks []Check) *List {
	l := &List{}
	for _, c := range Shared(checks) {
		l.watched = append(l.watched, &watched{check: c})
	}
	return l
}

// Watch runs the checks, each with its period, until ctx ends.
func (l *List) Watch(ctx context.Context) {
	var watching sync.WaitGroup
	for _, w := range l.watched {
		watching.Go(func() {
			for {
				w.look(ctx, Timeout)
				select {
				case <-ctx.Done():
					return
				case <-time.After(aligned.Until(time.Now(), w.period())):
				}
			}
		})
	}
	watching.Wait()
}

// Look runs all checks now, and returns their results.
func (l *List) Look(ctx context.Context) []Result {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	found := make([][]Result, len(l.watched))
	var looking sync.WaitGroup
	for i, w := range l.watched {
		looking.Go(func() { found[i] = w.look(ctx, Timeout) })
	}
	looking.Wait()
	return append([]Result{}, slices.Concat(found...)...) // in JSON [], not null
}

// Known returns the latest results, and whether every check has returned some.
func (l *List) Known() (results []Result, all bool) {
	all = true
	for _, w := range l.watched {
		w.mu.Lock()
		results = append(results, w.results...)
		all = all && !w.began.IsZero()
		w.mu.Unlock()
	}
	return results, all
}

// look runs the check and keeps its results, unless a run that started later has
// already ended, or the caller is gone.
func (w *watched) look(ctx context.Context, timeout time.Duration) []Result {
	began := time.Now()
	results := w.check.within(ctx, timeout)
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

// period is the time until the next run.
func (w *watched) period() time.Duration {
	if w.check.Every == 0 {
		return watchPeriod
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.ContainsFunc(w.results, func(r Result) bool { return r.Status != OK }) {
		return min(w.check.Every, max(watchPeriod, min(w.check.Every/wrongPart, wrongPeriod)))
	}
	return w.check.Every
}
