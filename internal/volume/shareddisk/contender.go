package shareddisk

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// quiet is how long the beat of a process must not have changed until the disk is taken from it.
	quiet = 7 * time.Second
	// poll is the time between two looks of a standby. every is the time between two beats.
	poll  = 500 * time.Millisecond
	every = time.Second
	// lookAge is how old a look may be when the disk is taken from who had it then, and how far apart two may be that show
	// that nothing has changed.
	lookAge = 2 * time.Second
)

var (
	// ErrLost means that another process has the disk now.
	ErrLost = errors.New("another podnas has taken the disk over")

	// errConflict is the error of a target: another nexus has the reservation, or the key is not the registered one.
	errConflict = errors.New("reservation conflict")
	// errMounted means that this machine has the disk mounted, or in use otherwise.
	errMounted = errors.New("something on this machine has the disk in use")
	// errRemoved is permanent: a disk that the storage gives the machine again is another device.
	errRemoved = permanentError{errors.New("this machine has lost the disk (its kernel's log says why), and would know it as a new device: this process ends; " +
		"if the next one does not find the disk either, delete the pod, so that kubelet maps the disk anew")}
)

// permanentError is an error that no waiting mends.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// target is the disk as who contends for it sees it. A nexus is the path of one machine to it: a process has that of the
// process before it on the same machine. Reservations are of the type Write Exclusive, Registrants Only: who is
// registered can write, and all can read.
type target interface {
	// read returns the last beat, the zero beat if there is none, and whether the disk has no file system yet.
	read() (b beat, empty bool, err error)
	// write writes a beat; errConflict if the disk is another's.
	write(b *beat) error
	// holder returns the key of who has the reservation, 0 if nobody has it.
	holder() (uint64, error)
	// register registers the nexus with a key, whatever key it had; with 0 it is registered no more.
	register(key uint64) error
	// reserve takes the reservation if nobody has it. It succeeds if the nexus has it; else errConflict.
	reserve(key uint64) error
	// preempt ends the registration of the victim, of whose nexus no command is done any more, and takes its reservation
	// over if it has that. errConflict if nobody is registered with that key.
	preempt(key, victim uint64) error
	// unused returns errMounted while the disk is mounted on this machine.
	unused() error
	// release is unused, but first unmounts what a process of this machine has left that is gone.
	release() error
	// removed returns errRemoved if the machine's kernel has removed the disk.
	removed() error
}

// contender is one process that wants the disk. take and begun are called by one goroutine, which then leaves it to run.
type contender struct {
	target target
	key    uint64
	boot   string
	silent func() time.Duration // Config.Silent
	told   func(seen)           // is told what a standby sees

	// turn has a value while nobody writes a beat. self is of who has taken it: the last beat that was written, or is to
	// be.
	turn chan struct{}
	self beat
	from seen // what take saw before it took the disk
	// worked is when the last beat began that worked; nil: there is none.
	worked atomic.Pointer[time.Time]
}

func newContender(t target, self beat, silent func() time.Duration, told func(seen)) *contender {
	c := &contender{target: t, self: self, key: self.Key, boot: self.Boot, silent: silent, told: told, turn: make(chan struct{}, 1)}
	c.turn <- struct{}{}
	return c
}

// look is what is on the disk at one moment.
type look struct {
	began, ended time.Time
	beat         beat
	holder       uint64
	empty        bool // there is no file system yet
}

// seen is what a standby knows.
type seen struct {
	look look
	// since is when the disk became what it is, or it was first seen so.
	since time.Time
	// owner is since when the same process has it, or it was first seen so.
	owner time.Time
	err   error // why the disk can't be read or taken
}

func (c *contender) look() (l look, err error) {
	l.began = time.Now()
	if l.beat, l.empty, err = c.target.read(); err != nil {
		return l, err
	}
	if l.holder, err = c.target.holder(); err != nil {
		return l, err
	}
	l.ended = time.Now()
	return l, nil
}

// same reports whether two looks show that the active process has done nothing between them.
func (l *look) same(other *look) bool {
	return l.beat == other.beat && l.holder == other.holder && l.empty == other.empty
}

// free reports whether nobody has the disk, or only a process of which is known that it has ended: it says so, or the
// kernel that it had is this one, where it has the disk no more. While another takes the disk, the reservation is its
// own, and the beat yet that of the process before.
func (c *contender) free(l *look) bool {
	switch l.holder {
	case c.key: // this process failed after it had taken it
		return true
	case 0, l.beat.Key:
		return l.beat.Key == 0 || l.beat.Ended || c.boot != "" && l.beat.Boot == c.boot && c.target.unused() == nil
	}
	return false
}

// take returns when the disk is this process's own: nobody else can write to it. It waits as long as another has it.
func (c *contender) take(ctx context.Context) error {
	var s seen
	for {
		now, err := c.look()
		if err == nil {
			// Between looks that are far apart, or while one hung, the active process may have been kept from its disk, too.
			if s.since.IsZero() || !now.same(&s.look) || now.ended.Sub(s.look.ended) > lookAge {
				s.since = now.ended
			}
			if s.owner.IsZero() || now.beat.Key != s.look.beat.Key || now.holder != s.look.holder {
				s.owner = now.ended
			}
			s.look = now
			err = c.taken(&s)
			if err == nil {
				c.from = s
				return nil
			}
		} else {
			s.since, s.owner = time.Time{}, time.Time{} // what was not seen proves nothing
		}
		err = c.orRemoved(err)
		var permanent permanentError
		if errors.As(err, &permanent) {
			return err
		}
		if s.err = err; errors.Is(err, errWait) {
			s.err = nil
		}
		c.told(s)
		next := poll
		if !s.since.IsZero() {
			if left := time.Until(s.since.Add(quiet)); left > 0 {
				next = min(next, left)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(next):
		}
	}
}

// orRemoved returns an error of the disk, or that the machine has the disk no more.
func (c *contender) orRemoved(err error) error {
	if err != nil && !errors.Is(err, ErrLost) {
		if removed := c.target.removed(); removed != nil {
			return removed
		}
	}
	return err
}

// errWait is the error of taken while another has the disk.
var errWait = errors.New("another podnas is active")

// taken takes the disk, if it may be taken by what is seen. The errors errWait and errConflict mean that another has it.
func (c *contender) taken(s *seen) error {
	l := &s.look
	quietFor := l.began.Sub(s.since)
	if c.silent != nil {
		quietFor = max(quietFor, min(c.silent(), l.began.Sub(s.owner))) // of the one before its silence says nothing
	}
	if quietFor < quiet && !c.free(l) {
		return errWait
	}
	if err := c.target.release(); err != nil {
		return err
	}
	if err := c.reserve(l); err != nil {
		if errors.Is(err, errConflict) {
			err = errWait
		}
		return err
	}
	// From here on nobody else can write, so what is on the disk now stays.
	now, err := c.look()
	if err != nil {
		return err
	}
	return c.change(func(b *beat) { b.Count, b.Making = now.beat.Count, now.empty || now.beat.Making })
}

// reserve gets the reservation, from who had it at a look if somebody had.
func (c *contender) reserve(l *look) error {
	if err := c.target.register(c.key); err != nil {
		return err
	}
	err := c.target.reserve(c.key)
	if errors.Is(err, errConflict) && l.holder != 0 && time.Since(l.began) <= lookAge {
		if err = c.target.preempt(c.key, l.holder); err == nil || errors.Is(err, errConflict) {
			err = c.target.reserve(c.key) // the proof
		}
	}
	if errors.Is(err, errConflict) {
		// Who is registered can write. The error is of no use: nothing is written here.
		_ = c.target.register(0)
	}
	return err
}

// holds returns ErrLost if another has the disk, or if nothing keeps others from it any more, as after a restart of a
// storage that has forgotten its reservations.
func (c *contender) holds() error {
	return lost(c.target.reserve(c.key))
}

func lost(err error) error {
	if errors.Is(err, errConflict) {
		return ErrLost
	}
	return err
}

// change changes what the beat says, and writes it.
func (c *contender) change(how func(*beat)) error {
	<-c.turn
	defer func() { c.turn <- struct{}{} }()
	how(&c.self)
	c.self.Count++
	began := time.Now()
	err := lost(c.target.write(&c.self))
	if err == nil {
		c.worked.Store(&began)
	}
	return err
}

// move does what changes where the beat is, or what it says, while none is written, and then writes one.
func (c *contender) move(how func() error) error {
	<-c.turn
	err := how()
	c.turn <- struct{}{}
	if err != nil {
		return lost(err)
	}
	return c.change(func(*beat) {})
}

// run makes the beats until ctx ends. It returns ErrLost when another has the disk, and errRemoved when the machine has it no more.
// Other errors of the disk are no reason to end: the heartbeat holds all answers meanwhile.
func (c *contender) run(ctx context.Context) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		err := c.holds()
		if err == nil {
			err = c.change(func(*beat) {})
		}
		if err = c.orRemoved(err); errors.Is(err, ErrLost) || errors.Is(err, errRemoved) {
			return err
		}
	}
}

// end says that this process has ended, after it has unmounted the disk. The reservation stays: without one, a machine
// that was cut off, and does not know it yet, could write.
func (c *contender) end() error {
	if err := c.target.unused(); err != nil {
		return err
	}
	if err := c.holds(); err != nil {
		return fmt.Errorf("say that it has ended: %w", err)
	}
	return c.change(func(b *beat) { b.Ended = true })
}
