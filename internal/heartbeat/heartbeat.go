// Package heartbeat finds out whether the disk is still this process's own, and holds the replies to clients while
// that is not known.
//
// A disk can be lost without an error: it hangs, or another node has it by now, while this process still answers from
// the kernel's caches. A client that gets such an answer reads what is not true any more. So once a second a beat
// overwrites a block of a file on the disk, and waits until the disk has it. Replies leave only for [Config.Hold] after
// the beginning of the last beat that worked: then the disk was ours.
//
// The server executes a call, then asks [Heartbeat.Wait], then sends the reply. This order matters. A process that is
// stopped and goes on later has executed the call before it asks, so what it answers was true while the disk was ours.
// A reply that tells of an error of the disk waits for more, [Heartbeat.WaitBeat]: the error may be that the disk is not ours any
// more, and then it is not true of the disk.
// And a process that takes the disk over answers nothing before the last one is silent, see [Open].
//
// heartbeat.go has the beats, gate.go holds the replies, record.go is what the file says.
package heartbeat

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/podnas/podnas/internal/idle"
	"github.com/podnas/podnas/internal/statedir"
)

// File is the name of the file that the beats overwrite.
const File = "heartbeat"

// The durations that a Config has by default. docs/internals/measurements.md says why: how long a beat takes on a busy
// disk.
const (
	defaultEvery = time.Second
	defaultHold  = 5 * time.Second
	defaultClose = 30 * time.Second
	// jumpMax is how much time may be missing on the clock, see permit. takeover is how much longer than Hold a
	// process waits that takes the disk over: jumpMax, and what the clocks of two machines differ within Hold.
	jumpMax  = 500 * time.Millisecond
	takeover = time.Second
	// endTimeout is how long Close waits for a disk that hangs.
	endTimeout = time.Second
	// askedEvery is the time between beats that are asked for: whoever makes calls that fail must not keep the disk busy.
	askedEvery = 20 * time.Millisecond
)

// Config configures a Heartbeat. Dir and Log are needed.
type Config struct {
	Dir     *statedir.Dir     // a folder on the disk; Close closes it
	Reserve *statedir.Reserve // room for the file on a full disk; nil: there is none
	// Mounted is when the disk was there for this process at the earliest. Others had it before.
	Mounted time.Time
	Every   time.Duration // time between beats; 0: a second
	Hold    time.Duration // how long replies leave after the beginning of a beat; 0: 5 s
	Close   time.Duration // after how long without a beat connections are closed; 0: 30 s
	// Holds, if not nil, returns why the disk is not ours any more. It is asked before each beat.
	Holds func() error
	// Overwrite, if not nil, stands for the disk: it writes a beat.
	Overwrite func(beat []byte) error
	Log       *slog.Logger
}

// Heartbeat is what is known of the disk. A nil Heartbeat holds nothing.
type Heartbeat struct {
	cfg   Config
	self  record    // of this process; the beats and Close write it
	block []byte    // self as it is written
	base  time.Time // when Open was called
	from  time.Time // no reply leaves before
	// permit lets replies leave; nil: none leaves. The beats write it.
	permit atomic.Pointer[permit]
	asked  chan struct{}      // has run make a beat soon
	stop   context.CancelFunc // ends run
	ended  chan struct{}      // closed when run has ended

	mu sync.Mutex
	// +checklocks:mu
	last time.Time // beginning of the last beat that worked
	// +checklocks:mu
	underway time.Time // beginning of a beat that has not ended; zero: there is none
	// +checklocks:mu
	failed error // of the last beat that has ended
	// +checklocks:mu
	full bool // the last beat found no room
	// +checklocks:mu
	closed bool // Close was called: no reply leaves any more
	// +checklocks:mu
	again chan struct{} // closed by the next beat that works; nil: nobody waits
	// +checklocks:mu
	lost time.Time // since when the disk is lost, as the log was told; zero: it is not
	// +checklocks:mu
	well time.Time // since when beats work; zero: they don't
}

// Open finds out how the process before this one ended, and makes the first beat. If that process may still be there,
// with another kernel, no reply leaves before it must be silent. If the first beat fails, none leaves until one works.
// More beats follow until Close, which must be called.
func Open(cfg Config) (*Heartbeat, error) {
	orDefault(&cfg.Every, defaultEvery)
	orDefault(&cfg.Hold, defaultHold)
	orDefault(&cfg.Close, defaultClose)
	self, err := newRecord(cfg.Dir.Fd())
	if err != nil {
		return nil, fmt.Errorf("heartbeat: %w", err)
	}
	h := &Heartbeat{cfg: cfg, self: self, block: make([]byte, recordSize), base: time.Now(), last: cfg.Mounted, asked: make(chan struct{}, 1), ended: make(chan struct{})}
	if before, err := readRecord(cfg.Dir); !before.over(&self, err) {
		h.from = cfg.Mounted.Add(cfg.Hold + takeover)
		cfg.Log.Warn("disk: the podnas before this one did not end by itself, and may run on another node: nothing is answered until it must have noticed",
			"wait", time.Until(h.from).Round(100*time.Millisecond))
	}
	h.beat(cfg.Reserve.Do)
	_ = cfg.Dir.Sync() // the name of a new file; without it the next process does not wait, if the machine ends now
	running, stop := context.WithCancel(context.Background())
	h.stop = stop
	go h.run(running)
	return h, nil
}

func orDefault(d *time.Duration, otherwise time.Duration) {
	if *d == 0 {
		*d = otherwise
	}
}

// run makes the beats until ctx ends, or later, if the disk hangs.
func (h *Heartbeat) run(ctx context.Context) {
	defer close(h.ended)
	next := time.NewTimer(0)
	defer next.Stop()
	began, soon := time.Now(), false
	for {
		wait := idle.UntilTick(time.Now(), h.cfg.Every) // with other periodic work
		if begin := time.Until(h.from); begin > 0 {
			wait = min(wait, begin)
		}
		if soon {
			wait = min(wait, max(0, askedEvery-time.Since(began)))
		}
		next.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-h.asked:
			soon = true
			continue
		case <-next.C:
		}
		began, soon = time.Now(), false
		h.beat(once)
	}
}

// once does something without the reserve. What can't be written has not to be: a beat a second would use the reserve up.
func once(do func() error) error { return do() }

// beat writes the file once. by does it.
func (h *Heartbeat) beat(by func(func() error) error) {
	began := time.Now()
	h.self.Beat++
	h.self.Takeover = began.Before(h.from)
	h.self.encode(h.block)
	h.mu.Lock()
	h.underway = began
	h.mu.Unlock()
	var err error
	if h.cfg.Holds != nil {
		err = h.cfg.Holds()
	}
	if err == nil {
		err = by(func() error { return h.overwrite(h.block) })
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.underway = time.Time{}
	// The file system knows by itself that it is full. The disk below may be full, too; what is on it can be read.
	h.full = statedir.IsFull(err)
	if h.full {
		err = nil
	}
	h.failed = err
	switch {
	case err == nil:
		h.workedLocked(began)
	case !statedir.OfProcess(err) || time.Since(h.last) >= h.cfg.Hold:
		h.permit.Store(nil)
		h.tellLocked(err)
	}
}

// workedLocked lets replies leave.
//
// +checklocks:h.mu
func (h *Heartbeat) workedLocked(began time.Time) {
	h.last = began
	now := time.Now()
	if !now.Before(h.from) && !h.closed {
		since, slept := h.read(began)
		next := &permit{until: since + h.cfg.Hold, since: now, slept: slept}
		if before := h.permit.Load(); h.valid(before) {
			next.since = before.since
		}
		h.permit.Store(next)
		if h.again != nil {
			close(h.again)
			h.again = nil
		}
	}
	if h.well.IsZero() {
		h.well = now
	}
	// A disk that comes and goes is told of once.
	if !h.lost.IsZero() && now.Sub(h.well) >= h.cfg.Hold {
		h.cfg.Log.Info("disk: it can be written to again, and clients are answered", "after", h.well.Sub(h.lost).Round(time.Second))
		h.lost = time.Time{}
	}
}

// tellLocked logs that the disk is lost, once.
//
// +checklocks:h.mu
func (h *Heartbeat) tellLocked(err error) {
	h.well = time.Time{}
	if h.lost.IsZero() && !h.closed {
		h.lost = h.last
		h.cfg.Log.Error("disk: it can't be written to, so that it may be lost: clients get no answers until it can", "err", err)
	}
}

// Close ends the beats, and has the file say that this process answers no more: the next one need not wait. From now on
// no reply leaves. If the disk hangs, Close does not wait for long.
func (h *Heartbeat) Close() {
	h.mu.Lock()
	closed := h.closed
	h.closed = true
	h.permit.Store(nil)
	h.mu.Unlock()
	if closed {
		return
	}
	h.stop()
	written := make(chan struct{})
	go func() {
		defer close(written)
		<-h.ended
		h.self.Ended, h.self.Takeover = true, time.Now().Before(h.from)
		h.self.encode(h.block)
		_ = h.overwrite(h.block) // or the next process waits
		_ = h.cfg.Dir.Close()    // all is synced
	}()
	select {
	case <-written:
	case <-time.After(endTimeout):
	}
}
