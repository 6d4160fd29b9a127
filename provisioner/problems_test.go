package provisioner

import (
	"errors"
	"fmt"
	"testing"

	"github.com/podnas/podnas/internal/volume"
)

func TestProblems(t *testing.T) {
	var s Problems
	for i, tt := range []struct {
		subject string
		err     error
		want    ProblemChange
	}{
		{"a", nil, ProblemUnchanged},
		{"a", errors.New("one"), ProblemNew},
		{"a", errors.New("one"), ProblemUnchanged},
		{"b", errors.New("one"), ProblemNew},
		{"a", errors.New("two"), ProblemNew},
		{"a", nil, ProblemSolved},
		{"a", errors.New("two"), ProblemNew},
		{"a", &volume.NoSpaceError{Requested: 2, Free: 1}, ProblemNew},
		{"a", fmt.Errorf("again: %w", &volume.NoSpaceError{Requested: 2, Free: 0}), ProblemUnchanged},
		{"a", &volume.CopyingError{Files: 1}, ProblemWaiting},
		{"a", &volume.CopyingError{Files: 2}, ProblemUnchanged},
		{"a", nil, ProblemSolved},
		{"a", fmt.Errorf("wrapped: %w", &volume.CopyingError{Files: 1}), ProblemWaiting},
		{"a", errors.New("two"), ProblemNew},
	} {
		if got := s.Update(tt.subject, tt.err); got != tt.want {
			t.Errorf("%d: %s, %v: %v", i, tt.subject, tt.err, got)
		}
	}
	s.Keep(func(subject string) bool { return subject == "b" })
	if got := s.Update("a", nil); got != ProblemUnchanged {
		t.Errorf("what is forgotten: %v", got)
	}
	s.Update("c", &volume.CopyingError{Files: 1})
	s.Update("b", errors.New("three"))
	if current := s.Current(); len(current) != 1 || current["b"].Error() != "three" {
		t.Errorf("current are %v", current)
	}
	s.Update("b", nil)
	if current := s.Current(); len(current) != 0 {
		t.Errorf("current are %v, though it is solved", current)
	}
}
