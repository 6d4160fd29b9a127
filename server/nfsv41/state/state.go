package state

import (
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"
)

// State is all that a server remembers of its clients. Its methods may be called
// concurrently: each takes mu, and unlock lets go of it.
//
// What it remembers is in five types, each in a file of its name. They have no mutex of their own:
// mu guards each as a whole, so whoever has a pointer to one holds mu. State joins them: an
// operation that needs several, or the client tracking, is its method.
type State struct {
	cfg    Config        // never changes
	due    chan struct{} // for Due
	grown  chan struct{} // for LogGrown
	graced atomic.Bool   // grace.active, for InGrace; written with mu
	// denying counts the opens, and the reservations, that deny something, for Denies. It is written with mu.
	denying atomic.Int64

	mu sync.Mutex
	// +checklocks:mu
	work
	// +checklocks:mu
	sessions sessions
	// +checklocks:mu
	opens opens
	// +checklocks:mu
	locks locks
	// +checklocks:mu
	grace grace
	// +checklocks:mu
	log stateLog
}

// New returns a State without clients. Limits that are zero become 10,000 clients, each with a
// session, 14,000 sessions more, 16 sessions of a client, 64 slots and 32 connections of a session, 100,000 opens
// and 50,000 locks of a client, 2,048 ranges of a lock owner, 256 waiters of a client, 1,024 of a file,
// 8 MiB of owners' names of a client, 200,000 opens, 250,000 locks, 16,384 waiters and 32 MiB of owners'
// names of all clients, 512 MiB of cached replies of all, 8 KiB for each, and 1 KiB where there are many, requests and responses of 1 MiB
// and a little, 64 operations, and at least 128 bytes for a message: SEQUENCE alone takes 88 and a credential,
// its reply 80.
func New(cfg Config) *State {
	orDefault(&cfg.Courtesy, 24*time.Hour)
	orDefault(&cfg.FairFor, time.Second)
	if cfg.Answering == nil {
		cfg.Answering = func() time.Time { return time.Time{} }
	}
	if cfg.Abandoned == nil {
		cfg.Abandoned = releaseAll
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Random == nil {
		cfg.Random = func(b []byte) { _, _ = rand.Read(b) } // it never fails
	}
	l := &cfg.Limits
	orDefault(&l.Clients, 10_000)
	orDefault(&l.Sessions, 16)
	orDefault(&l.MoreSessions, 14_000)
	orDefault(&l.Slots, 64)
	orDefault(&l.Conns, 32)
	orDefault(&l.Opens, 100_000)
	orDefault(&l.Locks, 50_000)
	orDefault(&l.Ranges, 2048)
	orDefault(&l.Waiters, 256)
	orDefault(&l.FileWaiters, 1024)
	orDefault(&l.OwnerBytes, 8<<20)
	orDefault(&l.AllOpens, 200_000)
	orDefault(&l.AllLocks, 250_000)
	orDefault(&l.AllWaiters, 16_384)
	orDefault(&l.AllOwnerBytes, 32<<20)
	orDefault(&l.ReplyBytes, 512<<20)
	orDefault(&l.CachedReply, 8<<10)
	orDefault(&l.LeastReply, 1<<10)
	orDefault(&l.Request, 1<<20+4096)
	orDefault(&l.Response, 1<<20+4096)
	orDefault(&l.Ops, 64)
	orDefault(&l.MinMessageSize, 128)
	s := &State{cfg: cfg, due: make(chan struct{}, 1), grown: make(chan struct{}, 1)}
	s.work = work{cfg: &s.cfg, due: s.due}
	s.log = stateLog{work: &s.work, grown: s.grown}
	s.sessions = newSessions(&s.work, &s.log)
	s.opens = newOpens(&s.work, &s.sessions, &s.log, &s.denying)
	s.locks = newLocks(&s.work, &s.sessions, &s.opens, &s.log)
	s.grace = grace{work: &s.work, log: &s.log}
	return s
}

// releaseAll is Config.Abandoned where that is nil.
func releaseAll(abandoned []Abandoned) {
	for _, a := range abandoned {
		a.Release()
	}
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// unlock logs what has changed, lets go of mu, and then does what was collected while it was
// held, and the rest of what was begun.
//
// +checklocksrelease:s.mu
func (s *State) unlock() {
	s.most, s.steps = max(s.most, s.steps), 0
	if s.log.noted {
		_ = s.log.flush() // without a copy the log goes on
	}
	after := s.after
	s.after = nil
	s.mu.Unlock()
	if after == nil {
		return
	}
	for _, h := range after.release {
		h.Release()
	}
	if len(after.abandoned) > 0 {
		s.cfg.Abandoned(after.abandoned)
	}
	if after.close != nil {
		_ = after.close.Close()
	}
	if s.cfg.Event != nil {
		for _, e := range after.events {
			s.cfg.Event(e)
		}
	}
	if s.cfg.LockFree != nil {
		for _, f := range after.free {
			s.cfg.LockFree(f)
		}
	}
	for _, t := range after.tasks {
		s.finish(t)
	}
}

// finish does all of a task. The caller does not hold mu.
func (s *State) finish(t task) {
	for more := true; more; {
		s.mu.Lock()
		more = t()
		s.unlock()
	}
}

// finishLocked does what was left to unlock, of a State that nobody else has.
//
// +checklocks:s.mu
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

// lister and visit are called with mu held. They are types, because checklocks takes a closure for a part of
// the function that it is in only where it is converted.
type (
	lister[T any] func() []T
	visit[T any]  func(T)
)

// inSteps does something with each of a list that may change meanwhile, from its end: what is removed is
// replaced by the last, which was done already. It calls each with mu held; the caller does not hold mu.
// Not checked: finish holds mu.
//
// +checklocksignore
func inSteps[T any](s *State, all lister[T], each visit[T]) {
	at := -1
	s.finish(func() bool {
		l := all()
		if at < 0 || at > len(l) {
			at = len(l)
		}
		for began := s.steps; at > 0 && s.steps-began < stepWork; s.steps++ {
			at--
			each(l[at])
			l = all()
			at = min(at, len(l))
			began = min(began, s.steps) // each can let go of mu
		}
		return at > 0
	})
}

// eachClient calls do for each client, in steps, with mu held. Not checked: inSteps holds mu.
//
// +checklocksignore
func (s *State) eachClient(do visit[*Client]) {
	inSteps(s, func() []*Client { return s.sessions.list }, do)
}

// eachFileWaitedFor is like eachClient, for the files that have waiters.
//
// +checklocksignore
func (s *State) eachFileWaitedFor(do visit[*file]) {
	inSteps(s, func() []*file { return s.locks.waiting }, do)
}
