package state

// Work that grows with what a client has is a task: steps of bounded length, between which mu is free for
// others. The call that was the reason does all of its tasks before it returns: its caller sees the whole
// effect, and other calls do none of the work. What a task has not released yet is nobody's any more: see open.void.

// stepWork is how much of a task is done before mu is free for others.
const stepWork = 256

// task does the next step, and reports whether there is another. The caller holds mu.
type task func() (more bool)

// begin does the first step of a task at once, and leaves the others to unlock.
func (s *State) begin(t task) {
	if t() {
		s.goOn(t)
	}
}

// goOn leaves a task to unlock.
func (s *State) goOn(t task) {
	l := s.later()
	l.tasks = append(l.tasks, t)
}

// unfinished reports whether tasks are left to unlock.
func (e *effects) unfinished() bool { return e != nil && len(e.tasks) > 0 }

// finish does all of a task. The caller does not hold mu.
func (s *State) finish(t task) {
	for more := true; more; {
		s.mu.Lock()
		more = t()
		s.unlock()
	}
}

// finishLocked does what was left to unlock, of a State that nobody else has.
func (s *State) finishLocked() {
	for s.after.unfinished() {
		tasks := s.after.tasks
		s.after = nil
		for _, t := range tasks {
			for more := true; more; {
				more = t()
			}
		}
	}
	s.after = nil
}

// inSteps does something with each of a list that may change meanwhile, from its end: what is removed is
// replaced by the last, which was done already. The caller does not hold mu.
func inSteps[T any](s *State, list func() []T, each func(T)) {
	at := -1
	s.finish(func() bool {
		l := list()
		if at < 0 || at > len(l) {
			at = len(l)
		}
		for began := s.steps; at > 0 && s.steps-began < stepWork; s.steps++ {
			at--
			each(l[at])
			l = list()
			at = min(at, len(l))
			began = min(began, s.steps) // each can let go of mu
		}
		return at > 0
	})
}
