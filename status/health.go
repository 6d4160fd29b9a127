package status

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/podnas/podnas/volume"
)

const (
	healthPeriod = 10 * time.Second
	// checkTimeout bounds a check, as the readiness probe does.
	checkTimeout = 4 * time.Second
	// healthLate is when it is said that the checks do not come back: the disk
	// hangs, most likely.
	healthLate = 30 * time.Second
)

// Problem is something that is not as it should be.
type Problem struct {
	Bad   bool // else it is for notice
	About string
	Text  string
	Fix   string // what to do, if it is known
}

// health is what the checks have found. The zero health is of no check.
type health struct {
	mu       sync.Mutex
	began    time.Time // the look that is under way, or was the last
	done     time.Time // when it came back; zero: not yet
	failed   []Problem // checks of the readiness probe
	findings []volume.Finding
	space    volume.Space
}

// run looks until ctx ends. A look that hangs keeps the page from nothing.
func (h *health) run(ctx context.Context, cfg *Config) {
	tick := time.NewTicker(healthPeriod)
	defer tick.Stop()
	for {
		h.mu.Lock()
		h.began = time.Now()
		h.mu.Unlock()
		h.look(ctx, cfg)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (h *health) look(ctx context.Context, cfg *Config) {
	var failed []Problem
	for _, check := range cfg.Checks {
		within, cancel := context.WithTimeout(ctx, checkTimeout)
		if err := check.Run(within); err != nil {
			failed = append(failed, Problem{Bad: true, About: check.Name, Text: "podnas is not ready: " + err.Error(), Fix: "see its log"})
		}
		cancel()
	}
	h.mu.Lock()
	h.failed = failed // what follows may hang
	h.mu.Unlock()
	space, err := cfg.Store.Space()
	if err != nil {
		failed = append(failed, Problem{Bad: true, About: "disk", Text: "its size can't be read: " + err.Error()})
	}
	findings, err := cfg.Store.Check()
	if err != nil {
		failed = append(failed, Problem{Bad: true, About: "disk", Text: "it can't be compared with its records: " + err.Error()})
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done = time.Now()
	h.failed, h.findings, h.space = failed, findings, space
}

// state is what is known.
type state struct {
	checked  bool
	problems []Problem
	space    volume.Space
}

// known tells what the last look has found.
func (h *health) known(now time.Time) state {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := state{checked: !h.done.IsZero(), space: h.space}
	if late := now.Sub(h.began); !h.began.IsZero() && !h.done.After(h.began) && late > healthLate {
		s.problems = append(s.problems, Problem{
			Bad: true, About: "disk",
			Text: fmt.Sprintf("the checks have not come back for %s: the disk hangs, most likely", late.Round(time.Second)),
			Fix:  "look at the machine's kernel log and at what the disk is on",
		})
	}
	s.problems = append(s.problems, h.failed...)
	for _, f := range h.findings {
		s.problems = append(s.problems, problemOf(f))
	}
	return s
}

func problemOf(f volume.Finding) Problem {
	about := f.Path
	if f.Volume != "" {
		about = "volume " + f.Volume
	}
	return Problem{About: about, Text: f.Problem, Fix: f.Fix}
}

// problems are all that is wrong, the worst first.
func (s *Status) problems(st *state, volumes []volumeView) []Problem {
	bad, notice := []Problem(nil), []Problem(nil)
	add := func(p Problem) {
		if p.Bad {
			bad = append(bad, p)
		} else {
			notice = append(notice, p)
		}
	}
	for _, p := range st.problems {
		add(p)
	}
	if s.cfg.Reconciler != nil {
		report := s.cfg.Reconciler.Report()
		if report.StandsAside != "" {
			add(Problem{Bad: true, About: "provisioner", Text: "it works on no claims: " + report.StandsAside})
		}
		for _, f := range report.Findings {
			add(problemOf(f))
		}
	}
	for _, p := range s.diskProblems(st.space) {
		add(p)
	}
	for i := range volumes {
		v := &volumes[i]
		for _, full := range []struct {
			percent int
			text    string
		}{{v.Use.Percent, "%d%% full"}, {v.Inodes.Percent, "%d%% of its inodes are used"}} {
			if full.percent >= fullPercent {
				add(Problem{Bad: full.percent >= fullestPercent, About: "volume " + v.Name, Text: fmt.Sprintf(full.text, full.percent), Fix: adviceWhenFull(v)})
			}
		}
	}
	if !s.cfg.Process.Enforced {
		add(Problem{About: "quota", Text: "sizes are not enforced: " + s.cfg.Process.Limits})
	}
	if s.cfg.Process.Engine.Fallback {
		add(Problem{About: "engine", Text: "files are served by go-nfs, slower and with limits: " + s.cfg.Process.Engine.Reason})
	}
	return append(bad, notice...)
}

func adviceWhenFull(v *volumeView) string {
	if v.Claim == "" {
		return "remove files, or raise it: podnas volume resize " + v.Name + " SIZE"
	}
	return "remove files, or raise the request of claim " + v.Claim
}

const (
	fullPercent     = 85 // of a volume
	diskFullPercent = 90
	fullestPercent  = 95 // of either
)

func (s *Status) diskProblems(space volume.Space) []Problem {
	var problems []Problem
	if n := s.cfg.Exports.Syncs.Failed.Load(); n > 0 {
		problems = append(problems, Problem{
			Bad: true, About: "disk", Text: fmt.Sprintf("%d syncs have failed since podnas was started: what clients wrote may be lost", n),
			Fix: "look at the machine's kernel log; the disk may be broken, or full below podnas",
		})
	}
	for _, what := range []struct {
		percent int
		text    string
	}{
		{percentOf(space.Size-space.Free, space.Size), "the disk is %d%% full"},
		{percentOf(int64(space.Inodes-space.InodesFree), int64(space.Inodes)), "%d%% of the files that the disk has room for are there"},
	} {
		if what.percent >= diskFullPercent {
			problems = append(problems, Problem{
				Bad: what.percent >= fullestPercent, About: "disk", Text: fmt.Sprintf(what.text, what.percent),
				Fix: "delete volumes or files, or make the disk larger",
			})
		}
	}
	return problems
}

// percentOf is how much of something is taken, 0 of nothing.
func percentOf(part, whole int64) int {
	if whole <= 0 {
		return 0
	}
	return int(100 * float64(part) / float64(whole))
}
