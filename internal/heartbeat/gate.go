package heartbeat

import (
	"errors"
	"fmt"
	"time"

	"github.com/podnas/podnas/internal/latest"
)

// ErrLost is the error of replies that are not to be sent, as the disk has been lost for too long.
var ErrLost = errors.New("the disk is lost")

// errStopped is the error of replies whose connection ends while they are held.
var errStopped = errors.New("the connection has ended")

// permit lets replies leave.
type permit struct {
	until time.Duration // since Heartbeat.base
	since time.Time     // since when replies leave
	slept time.Duration // how long the machine has slept by then, and the clock was set
}

// read splits a moment. Go's clock stands still while the machine sleeps, and the time of day does not: the difference
// tells of sleep, and when the clock is set. The kernel's own clock with sleep takes a system call, which was 0.75 us,
// and time.Now is 0.08 us (BenchmarkPasses).
func (h *Heartbeat) read(now time.Time) (since, slept time.Duration) {
	since = now.Sub(h.base)
	return since, time.Duration(now.UnixNano()-h.base.UnixNano()) - since
}

// Passes reports whether a reply may be sent now.
func (h *Heartbeat) Passes() bool {
	if h == nil {
		return true
	}
	return h.valid(h.permit.Load())
}

func (h *Heartbeat) valid(p *permit) bool {
	if p == nil {
		return false
	}
	since, slept := h.read(time.Now())
	return since < p.until && (slept-p.slept).Abs() < jumpMax
}

// Since returns since when replies have left without a pause, which is now while they are held. Who was not answered can't be
// blamed for silence.
func (h *Heartbeat) Since() time.Time {
	if h == nil {
		return time.Time{}
	}
	if p := h.permit.Load(); h.valid(p) {
		return p.since
	}
	return time.Now()
}

// Wait returns when replies may be sent. It returns an error if that is not so for so long that the connection is to be
// closed, or if done is closed.
func (h *Heartbeat) Wait(done <-chan struct{}) error {
	for !h.Passes() {
		again, left := h.next()
		if again == nil {
			continue
		}
		if err := await(again, left, done); err != nil {
			return err
		}
	}
	return nil
}

// await waits for the next beat that works.
func await(again <-chan struct{}, left time.Duration, done <-chan struct{}) error {
	if left <= 0 {
		return ErrLost
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-again:
	case <-timer.C:
	case <-done:
		return errStopped
	}
	return nil
}

// WaitBeat returns when replies may be sent and a beat has worked that began after the call: what has gone wrong by then is not
// that the disk is lost. It has a beat begin soon. Its errors are those of Wait.
func (h *Heartbeat) WaitBeat(done <-chan struct{}) error {
	if h == nil {
		return nil
	}
	for called := time.Now(); ; {
		select {
		case h.asked <- struct{}{}:
		default: // it is asked for already
		}
		again, left := h.after(called)
		if again == nil {
			return h.Wait(done)
		}
		if err := await(again, left, done); err != nil {
			return err
		}
	}
}

// after returns what the next beat that works closes, and how long that may take; nil if one has worked that began after a time.
func (h *Heartbeat) after(since time.Time) (again <-chan struct{}, left time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last.After(since) && h.permit.Load() != nil {
		return nil, 0
	}
	return h.againLocked()
}

// next returns what the next beat that works closes, and how long that may take; nil if replies may be sent by now.
func (h *Heartbeat) next() (again <-chan struct{}, left time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.Passes() {
		return nil, 0
	}
	return h.againLocked()
}

// againLocked returns what the next beat that works closes, and how long that may take.
//
// +checklocks:h.mu
func (h *Heartbeat) againLocked() (again <-chan struct{}, left time.Duration) {
	_ = h.errLocked()
	if h.again == nil {
		h.again = make(chan struct{})
	}
	return h.again, h.cfg.Close - time.Since(h.last)
}

// Lost reports whether the disk has been lost for so long that connections are to be closed: clients find the process
// that has the disk by new ones.
func (h *Heartbeat) Lost() bool {
	if h.Passes() {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.last) >= h.cfg.Close
}

// Err returns why no reply is sent, or nil.
func (h *Heartbeat) Err() error {
	if h.Passes() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.errLocked()
}

// errLocked is Err. It logs a beat that hangs: replies that are held, and probes, come here, while a timer for that would
// wake an idle process once more each second.
//
// +checklocks:h.mu
func (h *Heartbeat) errLocked() error {
	switch {
	case h.Passes() || h.closed:
		return nil
	case h.failed != nil:
		return h.failed
	case time.Now().Before(h.from):
		return &TakeoverError{Left: time.Until(h.from)}
	}
	err := &latest.PendingError{Since: h.last}
	if !h.underway.IsZero() && time.Since(h.underway) >= h.cfg.Hold/2 { // or the process was stopped, or the clock set
		h.tellLocked(err)
	}
	return err
}

// Age returns how long ago the last beat that worked began. 0: there are none.
func (h *Heartbeat) Age() time.Duration {
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.last)
}

// Full reports whether the last beat found no room, even in place: only what is read and removed works.
func (h *Heartbeat) Full() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.full
}

// TakeoverError means that another process may still answer for the disk.
type TakeoverError struct{ Left time.Duration }

func (e *TakeoverError) Error() string {
	return fmt.Sprintf("the podnas before this one did not end by itself, and may run on another node: clients are answered in %s", e.Left.Round(time.Second))
}
