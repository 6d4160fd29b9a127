package provisioner

import (
	"errors"
	"sync"

	"github.com/podnas/podnas/internal/volume"
)

// Problems has the current problems of what is tried again and again, such as a claim without a volume, by
// subject: each is logged once, and can be looked up while it persists. Callers whose subjects come and go
// remove them with Keep. The zero value is ready for use.
type Problems struct {
	mu sync.Mutex
	// +checklocks:mu
	problems map[string]problem
}

type problem struct {
	text string // identifies it
	err  error  // the latest
}

// ProblemChange is the difference between two calls of Update for a subject.
type ProblemChange int

// The values of ProblemChange.
const (
	ProblemUnchanged ProblemChange = iota // the same problem, or none as before
	ProblemNew                            // a problem, or another one than before
	ProblemWaiting                        // a copy began, which has to complete first; that is no problem
	ProblemSolved                         // neither any more
)

// Update sets the problem of a subject, nil if there is none, and returns what has
// changed.
func (p *Problems) Update(subject string, err error) ProblemChange {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, known := p.problems[subject]
	if err == nil {
		delete(p.problems, subject)
		if known {
			return ProblemSolved
		}
		return ProblemUnchanged
	}
	if p.problems == nil {
		p.problems = map[string]problem{}
	}
	text, change := err.Error(), ProblemNew
	// The free space and a copy's progress change all the time.
	var noSpace *volume.NoSpaceError
	switch {
	case errors.As(err, &noSpace):
		text = "no space"
	case isCopying(err):
		text, change = "copying", ProblemWaiting
	}
	p.problems[subject] = problem{text, err}
	if known && before.text == text {
		return ProblemUnchanged
	}
	return change
}

// Current returns the problems, by subject.
func (p *Problems) Current() map[string]error {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]error{}
	for subject, current := range p.problems {
		if !isCopying(current.err) {
			all[subject] = current.err
		}
	}
	return all
}

// Keep forgets the subjects for which keep is false.
func (p *Problems) Keep(keep func(subject string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for subject := range p.problems {
		if !keep(subject) {
			delete(p.problems, subject)
		}
	}
}

func isCopying(err error) bool {
	var copying *volume.CopyingError
	return errors.As(err, &copying)
}
