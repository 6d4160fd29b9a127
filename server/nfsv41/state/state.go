package state

import (
	"container/list"
	"crypto/rand"
	"encoding/binary"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// State is all that a server remembers of its clients. Its methods may be called
// concurrently.
type State struct {
	cfg Config

	mu       sync.Mutex
	clients  map[uint64]*Client
	list     []*Client // the clients again: for what goes through all in steps
	owners   map[string]*ownerRecord
	sessions map[SessionID]*session
	conns    map[Conn][]*session
	files    map[FileKey]*file
	opens    map[uint64]*open
	byOwner  map[openKey]*open
	locks    map[uint64]*lockOwner
	lockers  map[lockerKey]*lockOwner
	waiters  map[waiterKey]*waiter
	waiting  []*file // files that have waiters
	next     uint64  // number of the next stateid
	waits    uint64  // number of the last waiter
	replies  int     // bytes of slots, with what they may cache
	least    int     // of replies: what the sessions would have at least
	all      usage   // of all clients
	ranges   int     // of all.locks
	holders  int     // clients that have opens
	homes    int     // addresses of holders
	grace    grace
	after    *effects

	addresses   map[string]*address
	unconfirmed list.List // *Client, in the order in which they came
	silent      [silentKinds]silentHeap
	looked      int // at s.list, by nextSilent

	steps int // of work, since mu was locked
	most  int // steps under one lock, for the tests

	resting bool          // Expire is not called each second; guarded by mu
	stirred bool          // soon was called since Expire began; guarded by mu
	due     chan struct{} // for Due

	log     Log           // nil: there is none
	records []byte        // what is to be logged, after the place of a frame's header
	noted   bool          // it is to be logged by unlock
	long    bool          // the log is
	copy    *logCopy      // nil: the log is not being replaced
	gen     uint32        // of the newest log
	grown   chan struct{} // for LogGrown
	leaving *leaving      // nil: this process goes on

	graced  atomic.Bool  // grace.active, for InGrace
	denying atomic.Int64 // opens that deny something, for Denies
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
	s := &State{
		cfg:      cfg,
		clients:  map[uint64]*Client{},
		owners:   map[string]*ownerRecord{},
		sessions: map[SessionID]*session{},
		conns:    map[Conn][]*session{},
		files:    map[FileKey]*file{},
		opens:    map[uint64]*open{},
		byOwner:  map[openKey]*open{},
		locks:    map[uint64]*lockOwner{},
		lockers:  map[lockerKey]*lockOwner{},
		waiters:  map[waiterKey]*waiter{},
		due:      make(chan struct{}, 1),
		grown:    make(chan struct{}, 1),

		addresses: map[string]*address{},
	}
	for kind := range s.silent {
		s.silent[kind].kind = kind
	}
	return s
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// effects are what is done after the lock is let go.
type effects struct {
	release []Held
	events  []Event
	free    []LockFree
	tasks   []task
	close   io.Closer
}

func (s *State) later() *effects {
	if s.after == nil {
		s.after = &effects{}
	}
	return s.after
}

func (s *State) release(h Held) {
	if h != nil {
		e := s.later()
		e.release = append(e.release, h)
	}
}

func (s *State) event(e Event) {
	l := s.later()
	l.events = append(l.events, e)
}

// unlock logs what has changed, lets go of mu, and then does what was collected while it was
// held, and the rest of what was begun.
func (s *State) unlock() {
	s.most, s.steps = max(s.most, s.steps), 0
	if s.noted {
		_ = s.flushLog() // without a copy the log goes on
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

// newNumber returns the number of a new stateid. kind is 0 for opens, 1 for locks.
func (s *State) newNumber(kind uint64) uint64 {
	s.next += 2
	return s.next | kind
}

func isLock(number uint64) bool { return number&1 == 1 }

// random64 is never 0.
func (s *State) random64() uint64 {
	var b [8]byte
	for {
		s.cfg.Random(b[:])
		if n := binary.BigEndian.Uint64(b[:]); n != 0 {
			return n
		}
	}
}

// nextSeqid is the seqid after n: 0 means the current one, so no stateid has it.
func nextSeqid(n uint32) uint32 {
	if n++; n == 0 {
		n = 1
	}
	return n
}

// checkSeqid compares the seqid of a request with that of the state, RFC 8881
// section 8.2.2. If it is uncertain whether the client was told the current one, an older one
// is as good.
func checkSeqid(got, current uint32, uncertain bool) Error {
	switch {
	case got == 0 || got == current:
		return OK
	case int32(got-current) < 0: // they wrap around
		if uncertain {
			return OK
		}
		return ErrOldStateid
	}
	return ErrBadStateid
}
