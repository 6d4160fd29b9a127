// Package doctor is the framework of podnas doctor: checks as values, each of which
// checks one thing and says in plain words what it found, and what to do about
// problems. It is independent of NFS and Kubernetes: other packages define the
// checks (provisioner/checkup, nfs/nfscheck), and Run runs them. A List runs them
// periodically, for the status page and the metrics (list.go). No two of its mutexes are held together.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/podnas/podnas/internal/latest"
)

// Timeout is how long one check may take. A disk or a server that hangs is a
// finding, and must not delay the others.
const Timeout = 10 * time.Second

// Status is the outcome of a check.
type Status string

// The statuses.
const (
	OK      Status = "ok"
	Warning Status = "warning" // it works, but maybe not for long, or not for everybody
	Failed  Status = "failed"
)

// Result is the result of a check. If it is not OK, it is a finding.
type Result struct {
	Check  string `json:"check"`            // what was checked: a volume, a claim, the disk
	Volume string `json:"volume,omitempty"` // the name of the volume, if it is about one, for commands
	Status Status `json:"status"`
	Says   string `json:"says"`
	Fix    string `json:"fix,omitempty"`    // what to do, unless all is well, with commands in single quotes
	Source string `json:"source,omitempty"` // the part of podnas, as Check.Source
}

// Check checks one thing.
type Check struct {
	Name string
	// Source is the part of podnas that it checks, by which findings are counted:
	// disk, volumes, claims, cluster or process.
	Source string
	// Every is how often a List runs it, for checks that cost something, such as calls of the API server, and
	// for those whose result hardly changes. 0: every 10 seconds while somebody asks for the results, else every minute.
	Every time.Duration
	// Live is for checks that cost next to nothing, because they read what the process knows or one system call
	// returns: List.Current runs them for each page.
	Live bool
	// Run returns one Result or several. A Result without a Check gets the Name.
	Run func(context.Context) []Result
}

// Good returns a Result without a problem.
func Good(format string, args ...any) Result {
	return Result{Status: OK, Says: fmt.Sprintf(format, args...)}
}

// Warn returns a Result with a warning.
func Warn(fix, format string, args ...any) Result {
	return Result{Status: Warning, Says: fmt.Sprintf(format, args...), Fix: fix}
}

// Fail returns a Result of something that does not work.
func Fail(fix, format string, args ...any) Result {
	return Result{Status: Failed, Says: fmt.Sprintf(format, args...), Fix: fix}
}

// One returns a Check with one Result.
func One(name string, run func(context.Context) Result) Check {
	return Check{Name: name, Run: func(ctx context.Context) []Result { return []Result{run(ctx)} }}
}

// Run runs the checks concurrently, and returns their results in order. A check
// that does not return in time is reported as failed, and abandoned.
func Run(ctx context.Context, checks []Check) []Result {
	return run(ctx, checks, Timeout)
}

func run(ctx context.Context, checks []Check, timeout time.Duration) []Result {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found := make([][]Result, len(checks))
	var running sync.WaitGroup
	for i, check := range checks {
		running.Go(func() { found[i] = check.within(ctx, timeout) })
	}
	running.Wait()
	results := []Result{} // in JSON [], not null
	for _, r := range found {
		results = append(results, r...)
	}
	return results
}

// within runs a check until ctx ends.
func (c Check) within(ctx context.Context, timeout time.Duration) []Result {
	done := make(chan []Result, 1)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				done <- []Result{Fail("report this to podnas's developers", "the check itself failed: %v\n%s", v, debug.Stack())}
			}
		}()
		done <- c.Run(ctx)
	}()
	var results []Result
	select {
	case results = <-done:
	case <-ctx.Done():
		// A check that respects its context may be about to return more.
		select {
		case results = <-done:
		case <-time.After(timeout / 10):
			results = []Result{Fail("", "no answer within %s", timeout)}
		}
	}
	return c.named(results)
}

// named returns results with the check's name and source.
func (c Check) named(results []Result) []Result {
	results = slices.Clone(results) // they may be shared
	for i := range results {
		if results[i].Check == "" {
			results[i].Check = c.Name
		}
		results[i].Source = c.Source
	}
	return results
}

// share returns two ways to run a check, which is not started again while it hangs: then its result says since when
// there is no answer. timed waits no longer than Timeout; here runs the check on the caller's goroutine, unless it is
// running already.
func share(run func(context.Context) []Result) (timed, here func(context.Context) []Result) {
	found := latest.New(Timeout, func(ctx context.Context) ([]Result, error) { return run(ctx), nil })
	judge := func(results []Result, err error) []Result {
		if pending := (*latest.PendingError)(nil); errors.As(err, &pending) {
			return []Result{Fail("if this concerns the disk, check the kernel's log (dmesg) of podnas's node, and the backing disk", "%v", err)}
		} else if err != nil {
			return []Result{Fail("report this to podnas's developers", "the check itself failed: %v", err)}
		}
		return results
	}
	timed = func(ctx context.Context) []Result { return judge(found.Get(ctx, 0)) }
	here = func(ctx context.Context) []Result { return judge(found.Here(ctx)) }
	return timed, here
}

// Count returns how many results have a status.
func Count(results []Result, s Status) int {
	n := 0
	for _, r := range results {
		if r.Status == s {
			n++
		}
	}
	return n
}

// Steps runs checks one after the other, each depending on those before it, until
// one fails.
func Steps(ctx context.Context, steps []Check) []Result {
	results := []Result{}
	for _, step := range steps {
		found := Run(ctx, []Check{step})
		results = append(results, found...)
		if Count(found, Failed) > 0 {
			break
		}
	}
	return results
}
