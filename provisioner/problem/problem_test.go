package problem

import (
	"errors"
	"fmt"
	"testing"

	"github.com/podnas/podnas/volume"
)

func TestSet(t *testing.T) {
	var s Set
	for i, tt := range []struct {
		subject string
		err     error
		want    Change
	}{
		{"a", nil, Unchanged},
		{"a", errors.New("one"), New},
		{"a", errors.New("one"), Unchanged},
		{"b", errors.New("one"), New},
		{"a", errors.New("two"), New},
		{"a", nil, Solved},
		{"a", errors.New("two"), New},
		{"a", &volume.NoSpaceError{Requested: 2, Free: 1}, New},
		{"a", fmt.Errorf("again: %w", &volume.NoSpaceError{Requested: 2, Free: 0}), Unchanged},
		{"a", &volume.CopyingError{Files: 1}, Waiting},
		{"a", &volume.CopyingError{Files: 2}, Unchanged},
		{"a", nil, Solved},
		{"a", fmt.Errorf("wrapped: %w", &volume.CopyingError{Files: 1}), Waiting},
		{"a", errors.New("two"), New},
	} {
		if got := s.Update(tt.subject, tt.err); got != tt.want {
			t.Errorf("%d: %s, %v: %v", i, tt.subject, tt.err, got)
		}
	}
	s.Keep(func(subject string) bool { return subject == "b" })
	if got := s.Update("a", nil); got != Unchanged {
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
