package state

import (
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
)

// Expire does what is due: it is to be called each second, or, after it has returned true, when there is
// something in Due, and in some seconds at the latest.
func (s *State) Expire() (rest bool) {
	now := s.cfg.Now()
	s.mu.Lock()
	s.stirred = false
	s.tryEndGraceLocked()
	rest = !s.grace.active
	s.unlock()
	rest = s.expireClients(now) && rest
	s.expireWaiters(now)
	s.mu.Lock()
	defer s.unlock()
	s.log.noted = s.log.noted || len(s.log.records) > 0
	s.resting = rest && len(s.locks.waiting) == 0 && !s.stirred // between the steps somebody may have come that they did not see
	return s.resting
}

// expireClients does what is due for each client, and reports whether nothing will be soon. Not checked:
// eachClient holds mu.
//
// +checklocksignore
func (s *State) expireClients(now time.Time) (rest bool) {
	rest = true
	answering := s.cfg.Answering()
	s.eachClient(func(c *Client) {
		s.expireLocked(c, now, answering)
		rest = rest && c.confirmed && c.settles.IsZero() && c.busy == 0
	})
	return rest
}

// expireLocked does what is due for a client. answering is that of Config: while clients get no answers, none of them is silent.
//
// +checklocks:s.mu
func (s *State) expireLocked(c *Client, now, answering time.Time) {
	if !c.settles.IsZero() && now.After(c.settles) {
		s.opens.settle(c)
	}
	silent := min(now.Sub(c.seen), now.Sub(answering))
	switch {
	case c.busy > 0:
		c.seen = now // a request that takes longer than the lease renews it
	case !c.confirmed && silent > s.cfg.Lease:
		s.dropLocked(c)
	case silent > s.cfg.Courtesy:
		_ = s.dismissLocked(c, ClientExpired) // or the next time
	default:
		s.sessions.noticeSilent(c)
	}
}

// expireWaiters forgets who has not asked again for long, takes locks from clients whose lease is over
// if somebody waits for them, and tells those whose turn it is now. Not checked: eachFileWaitedFor holds mu, and so does
// whoever does a task.
//
// +checklocksignore
func (s *State) expireWaiters(now time.Time) {
	s.eachFileWaitedFor(func(f *file) {
		number := uint64(0) // of the last that was looked at
		s.begin(func() (more bool) {
			number, more = s.expireWaitersLocked(f, number, now)
			return more
		})
	})
}

// expireWaitersLocked is a step of expireWaiters, for the waiters of a file after the one of a number.
//
// +checklocks:s.mu
func (s *State) expireWaitersLocked(f *file, number uint64, now time.Time) (last uint64, more bool) {
	for began := s.steps; f.waits != nil; s.steps++ {
		i := f.waits.after(number)
		if i == len(f.waits.list) {
			s.locks.wake(f)
			return number, false
		}
		if s.steps-began >= stepWork {
			return number, true
		}
		w := f.waits.list[i]
		if number = w.number; s.locks.expired(w, now) {
			s.locks.dropWaiter(w)
		} else {
			s.takeFromSilentLocked(w)
			began = min(began, s.steps) // dismissLocked lets go of mu
		}
	}
	return number, false
}

// takeFromSilentLocked dismisses clients whose lease is over and that have a lock that w
// waits for, as long as w does: dismissLocked lets go of mu, and w can be of such a client. A waiter that is late itself takes
// nothing: the network may be away for both.
//
// +checklocks:s.mu
func (s *State) takeFromSilentLocked(w *waiter) {
	for s.locks.waiters[w.key()] == w && !s.sessions.late(w.open.client) {
		in := s.locks.conflict(w.open.file, w.open.client, w.owner, w.lockRange)
		if !in.silent || s.dismissLocked(in.holder.open.client, ClientRevoked) != nfs4.OK {
			return
		}
	}
}

// Due gets something when Expire is to be called each second again.
func (s *State) Due() <-chan struct{} { return s.due }

// Stop releases what clients hold, when the server ends. Nothing may be called afterwards.
func (s *State) Stop() {
	s.mu.Lock()
	defer s.unlock()
	for _, o := range s.opens.byNumber {
		for _, h := range o.descriptors {
			s.release(h)
		}
	}
	clear(s.opens.byNumber)
}
