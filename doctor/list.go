package doctor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// watchPeriod is how often a List makes a check that says nothing else.
	watchPeriod = 10 * time.Second
	// wrongPeriod is how often at least it makes one that is made more rarely, while that
	// has found something: what is mended is to be seen soon.
	wrongPeriod = time.Minute
	// wrongPart is how much more often it makes one then, but no more often than others.
	wrongPart = 6
)

// List is the one list of what is wrong: the latest results of a set of checks. The status
// page, the metrics and podnas doctor all tell of it, so that they agree.
//
// Watch makes the checks again and again, each by itself, so one that hangs keeps none of
// the others from being made; it is itself told to have no answer. Known never waits.
type List struct{ watched []*watched }

// watched is a check and what it has found.
type watched struct {
	check Check // shared: see Shared

	mu      sync.Mutex
	began   time.Time // when the check was begun that results are of; zero: none yet
	results []Result
}

// NewList makes a List of these checks.
func NewList(checks []Check) *List {
	l := &List{}
	for _, c := range Shared(checks) {
		l.watched = append(l.watched, &watched{check: c})
	}
	return l
}

// Watch makes the checks, each as often as it says, until ctx ends.
func (l *List) Watch(ctx context.Context) {
	var watching sync.WaitGroup
	for _, w := range l.watched {
		watching.Go(func() {
			for {
				w.look(ctx, Timeout)
				select {
				case <-ctx.Done():
					return
				case <-time.After(w.period()):
				}
			}
		})
	}
	watching.Wait()
}

// Look makes all checks now, and returns what they find.
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

// Known returns what was found last, and whether every check has found something yet.
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

// look makes the check and keeps what it finds, unless somebody has begun later and was
// faster, or whoever wanted to know has gone.
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

// period is how long after a look the next one is due.
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
