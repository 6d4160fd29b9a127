package provisioner

import (
	"errors"
	"sync"

	"github.com/podnas/podnas/volume"
)

// newsMax bounds what is remembered; what is forgotten is told once more.
const newsMax = 1000

// News remembers what was told, so that what goes on is told once. The zero News is
// ready for use.
type News struct {
	mu   sync.Mutex
	told map[string]string // by what it is about
}

// Change is how something differs from the last time that it was looked at.
type Change int

// The values of Change.
const (
	NoNews   Change = iota // told already, or nothing is wrong and nothing was
	IsNew                  // a problem, or another one than before
	IsSolved               // nothing is wrong any more
)

// Tell tells whether what is wrong with something is to be told.
func (n *News) Tell(about string, err error) Change {
	n.mu.Lock()
	defer n.mu.Unlock()
	before, known := n.told[about]
	if err == nil {
		delete(n.told, about)
		if known {
			return IsSolved
		}
		return NoNews
	}
	if n.told == nil || len(n.told) >= newsMax {
		n.told = map[string]string{}
	}
	text := err.Error()
	// How much is free changes all the time, and so does what is copied.
	var noSpace *volume.NoSpaceError
	var copying *volume.CopyingError
	switch {
	case errors.As(err, &noSpace):
		text = "no space"
	case errors.As(err, &copying):
		text = "copying"
	}
	if known && before == text {
		return NoNews
	}
	n.told[about] = text
	return IsNew
}

// Keep forgets what is about anything else. What is forgotten is not told to be solved.
func (n *News) Keep(about func(string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key := range n.told {
		if !about(key) {
			delete(n.told, key)
		}
	}
}
