package provisioner

import (
	"errors"
	"sync"

	"github.com/podnas/podnas/volume"
)

// News remembers what was told, so that what goes on is told once, and that it goes on
// can be looked up. Whoever tells of things that come and go forgets them by Keep. The
// zero News is ready for use.
type News struct {
	mu   sync.Mutex
	told map[string]trouble // by what it is about
}

// trouble is what is wrong with something.
type trouble struct {
	text string // what was told
	err  error  // as it is now
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
	if n.told == nil {
		n.told = map[string]trouble{}
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
	n.told[about] = trouble{text, err}
	if known && before.text == text {
		return NoNews
	}
	return IsNew
}

// Wrong returns what is wrong now, by what it is about. A claim that waits for its copy is
// as it should be.
func (n *News) Wrong() map[string]error {
	n.mu.Lock()
	defer n.mu.Unlock()
	wrong := map[string]error{}
	for about, t := range n.told {
		if copying := (*volume.CopyingError)(nil); !errors.As(t.err, &copying) {
			wrong[about] = t.err
		}
	}
	return wrong
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
