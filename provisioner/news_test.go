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
	for i := range 3 * newsMax {
		n.Tell(fmt.Sprint(i), errors.New("one"))
	}
	if len(n.told) > newsMax {
		t.Errorf("%d are remembered", len(n.told))
	}
}
