package provisioner

import (
	"errors"
	"sync"

	"github.com/podnas/podnas/volume"
)

// News remembers reported problems, so that each is reported once and can be looked up
// while it persists. Callers whose objects come and go remove them with Keep. The zero
// News is ready for use.
type News struct {
	mu   sync.Mutex
	told map[string]trouble // by what it is about
}

// trouble is what is wrong with something.
type trouble struct {
	text string // what was told
	err  error  // as it is now
}

// Change says how a problem differs from the last call of Tell.
type Change int

// The values of Change.
const (
	NoNews   Change = iota // reported already, or nothing is and nothing was wrong
	IsNew                  // a problem, or another one than before
	IsSolved               // nothing is wrong any more
)

// Tell reports whether the problem of a subject, or its solution, is news. err is
// nil if nothing is wrong.
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
	// The free space and a copy's progress change all the time.
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

// Wrong returns the current problems, by subject. A claim that waits for its copy is not a
// problem.
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

// Keep forgets all subjects for which about is false, without reporting them as solved.
func (n *News) Keep(about func(string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key := range n.told {
		if !about(key) {
			delete(n.told, key)
		}
	}
}
