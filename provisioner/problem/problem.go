// Package problem remembers the problems of what podnas tries again and again, such as
// a claim without a volume, so that each is logged once, and can be looked up while it
// persists.
package problem

import (
	"errors"
	"sync"

	"github.com/podnas/podnas/volume"
)

// Set has the current problems, by subject. Callers whose subjects come and go remove
// them with Keep. The zero Set is ready for use.
type Set struct {
	mu       sync.Mutex
	problems map[string]problem
}

type problem struct {
	text string // identifies it
	err  error  // the latest
}

// Change is the difference between two calls of Update for a subject.
type Change int

// The values of Change.
const (
	Unchanged Change = iota // the same problem, or none as before
	New                     // a problem, or another one than before
	Waiting                 // a copy began, which has to complete first; that is no problem
	Solved                  // neither any more
)

// Update sets the problem of a subject, nil if there is none, and returns what has
// changed.
func (s *Set) Update(subject string, err error) Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.problems[subject]
	if err == nil {
		delete(s.problems, subject)
		if known {
			return Solved
		}
		return Unchanged
	}
	if s.problems == nil {
		s.problems = map[string]problem{}
	}
	text, change := err.Error(), New
	// The free space and a copy's progress change all the time.
	var noSpace *volume.NoSpaceError
	switch {
	case errors.As(err, &noSpace):
		text = "no space"
	case isCopying(err):
		text, change = "copying", Waiting
	}
	s.problems[subject] = problem{text, err}
	if known && before.text == text {
		return Unchanged
	}
	return change
}

// Current returns the problems, by subject.
func (s *Set) Current() map[string]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	current := map[string]error{}
	for subject, p := range s.problems {
		if !isCopying(p.err) {
			current[subject] = p.err
		}
	}
	return current
}

// Keep forgets the subjects for which keep is false.
func (s *Set) Keep(keep func(subject string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for subject := range s.problems {
		if !keep(subject) {
			delete(s.problems, subject)
		}
	}
}

func isCopying(err error) bool {
	var copying *volume.CopyingError
	return errors.As(err, &copying)
}
