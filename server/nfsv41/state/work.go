package state

import "io"

// Work that grows with what a client has is a task: steps of bounded length, between which mu is free for
// others. The call that was the reason does all of its tasks before it returns: its caller sees the whole
// effect, but for the descriptors of a client that is gone (Config.Abandoned), and other calls do none of the work. What a task has not released yet is nobody's any more: see openState.void.

// stepWork is how much of a task is done before mu is free for others.
const stepWork = 256

// task does the next step, and reports whether there is another. The caller holds mu.
type task func() (more bool)

// work is what the five types have in common: the configuration, and what there is to do for whoever
// holds State.mu, which guards it.
type work struct {
	cfg *Config

	steps int      // that were done, since mu was locked
	most  int      // steps under one lock, for the tests
	after *effects // nil: nothing is to be done after mu

	resting bool          // Expire is not called each second
	stirred bool          // soon was called since Expire began
	due     chan struct{} // for State.Due
}

// effects are what is done after the lock is let go.
type effects struct {
	release   []Descriptor
	abandoned []Abandoned
	events    []Event
	free      []LockFree
	tasks     []task
	close     io.Closer
}

// unfinished reports whether tasks are left to unlock.
func (e *effects) unfinished() bool { return e != nil && len(e.tasks) > 0 }

func (w *work) later() *effects {
	if w.after == nil {
		w.after = &effects{}
	}
	return w.after
}

func (w *work) release(h Descriptor) {
	if h != nil {
		e := w.later()
		e.release = append(e.release, h)
	}
}

// abandon is release for a client that is gone: whoever has dismissed it does not wait until the disk has freed its files.
func (w *work) abandon(h Descriptor, volume uint64) {
	if h != nil {
		e := w.later()
		e.abandoned = append(e.abandoned, Abandoned{h, volume})
	}
}

func (w *work) event(e Event) {
	l := w.later()
	l.events = append(l.events, e)
}

// begin does the first step of a task at once, and leaves the others to unlock.
func (w *work) begin(t task) {
	if t() {
		w.goOn(t)
	}
}

// goOn leaves a task to unlock.
func (w *work) goOn(t task) {
	l := w.later()
	l.tasks = append(l.tasks, t)
}

// soon is called for all that Expire does in time, but for the end of leases: nobody notices when
// that comes a few seconds late. The caller holds mu.
func (w *work) soon() {
	w.stirred = true
	if !w.resting {
		return
	}
	w.resting = false
	select {
	case w.due <- struct{}{}:
	default: // it is told already
	}
}
