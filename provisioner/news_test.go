package provisioner

import (
	"errors"
	"fmt"
	"testing"

	"github.com/podnas/podnas/volume"
)

func TestNews(t *testing.T) {
	var n News
	for i, tt := range []struct {
		about string
		err   error
		want  Change
	}{
		{"a", nil, NoNews},
		{"a", errors.New("one"), IsNew},
		{"a", errors.New("one"), NoNews},
		{"b", errors.New("one"), IsNew},
		{"a", errors.New("two"), IsNew},
		{"a", nil, IsSolved},
		{"a", errors.New("two"), IsNew},
		{"a", &volume.NoSpaceError{Requested: 2, Free: 1}, IsNew},
		{"a", fmt.Errorf("again: %w", &volume.NoSpaceError{Requested: 2, Free: 0}), NoNews},
		{"a", &volume.CopyingError{Files: 1}, IsNew},
		{"a", &volume.CopyingError{Files: 2}, NoNews},
	} {
		if got := n.Tell(tt.about, tt.err); got != tt.want {
			t.Errorf("%d: %s, %v: %v", i, tt.about, tt.err, got)
		}
	}
	n.Keep(func(about string) bool { return about == "b" })
	if got := n.Tell("a", nil); got != NoNews {
		t.Errorf("what is forgotten: %v", got)
	}
	n.Tell("c", &volume.CopyingError{Files: 1})
	n.Tell("b", errors.New("three"))
	if wrong := n.Wrong(); len(wrong) != 1 || wrong["b"].Error() != "three" {
		t.Errorf("wrong is %v", wrong)
	}
	n.Tell("b", nil)
	if wrong := n.Wrong(); len(wrong) != 0 {
		t.Errorf("wrong is %v, though it is solved", wrong)
	}
}
