// Package doctor is what podnas doctor is made of: checks as values, each of which
// looks at one thing and says in plain words how it is, and what to do where it is
// not well. It knows neither NFS nor Kubernetes; who has something to look at makes
// the checks (provisioner/checkup, nfs/nfscheck), and Run makes them. A List makes
// them again and again, for the status page and the metrics (list.go).
package doctor

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/podnas/podnas/latest"
)

// Timeout is how long one check may take. A disk or a server that hangs is a
// finding, and must not keep the others from being told.
const Timeout = 10 * time.Second

// Status is how well something is.
type Status string

// The statuses.
const (
	OK      Status = "ok"
	Warning Status = "warning" // it works, and may not for long, or not for all
	Failed  Status = "failed"
)

// Result is what a check has found. One that is not OK is a finding.
type Result struct {
	Check  string `json:"check"` // what was looked at: a volume, a claim, the disk
	Status Status `json:"status"`
	Says   string `json:"says"`
	Fix    string `json:"fix,omitempty"`    // what to do, unless all is well
	Source string `json:"source,omitempty"` // the part of podnas that it is about, as Check.Source
}

// Check looks at one thing.
type Check struct {
	Name string
	// Source is the part of podnas that it looks at, by which findings are counted:
	// disk, volumes, claims, cluster or process.
	Source string
	// Every is how often a List makes it; 0: every 10 seconds. For what costs others
	// something, as calls of the API server.
	Every time.Duration
	// Run returns what it finds, one Result or several. Where a Result names no
	// Check it gets the Name.
	Run func(context.Context) []Result
}

// Good is a Result of what is as it should be.
func Good(format string, args ...any) Result {
	return Result{Status: OK, Says: fmt.Sprintf(format, args...)}
}

// Warn is a Result of what may become trouble.
func Warn(fix, format string, args ...any) Result {
	return Result{Status: Warning, Says: fmt.Sprintf(format, args...), Fix: fix}
}

// Fail is a Result of what does not work.
func Fail(fix, format string, args ...any) Result {
	return Result{Status: Failed, Says: fmt.Sprintf(format, args...), Fix: fix}
}

// One makes a Check that has one Result.
func One(name string, run func(context.Context) Result) Check {
	return Check{Name: name, Run: func(ctx context.Context) []Result { return []Result{run(ctx)} }}
}

// Run makes the checks, all at once, and returns what they find in their order. A
// check that does not return in time is told to have failed, and left behind.
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

// within makes a check until ctx ends.
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
		// One that minds its context may be about to say more.
		select {
		case results = <-done:
		case <-time.After(timeout / 10):
			results = []Result{Fail("", "no answer within %s", timeout)}
		}
	}
	results = slices.Clone(results) // they may be shared
	for i := range results {
		if results[i].Check == "" {
			results[i].Check = c.Name
		}
		results[i].Source = c.Source
	}
	return results
}

// Shared makes checks that can be made again while one of them hangs: that one is not
// begun again, and it is told since when there is no answer.
func Shared(checks []Check) []Check {
	shared := make([]Check, 0, len(checks))
	for _, c := range checks {
		found := latest.New(Timeout, func(ctx context.Context) ([]Result, error) { return c.Run(ctx), nil })
		shared = append(shared, Check{Name: c.Name, Source: c.Source, Every: c.Every, Run: func(ctx context.Context) []Result {
			results, err := found.Get(ctx, 0)
			if pending := (*latest.PendingError)(nil); errors.As(err, &pending) {
				results = []Result{Fail("if this concerns the disk, check the kernel's log (dmesg) of podnas's node, and the backing disk", "%v", err)}
			} else if err != nil {
				results = []Result{Fail("report this to podnas's developers", "the check itself failed: %v", err)}
			}
			return results
		}})
	}
	return shared
}

// Of gives checks their source.
func Of(source string, checks ...Check) []Check {
	checks = slices.Clone(checks)
	for i := range checks {
		checks[i].Source = source
	}
	return checks
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

// Steps makes checks one after the other, each on top of those before it, until one
// has failed.
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
