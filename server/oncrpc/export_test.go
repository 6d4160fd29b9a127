package oncrpc

import (
	"fmt"
	"time"
)

// Bounds that tests reach, and times that they wait for.
const (
	AnswerMax   = answerMax
	CheckEvery  = checkEvery
	Narrow      = narrow
	OutCalls    = outCalls
	PermitsMax  = permitsMax
	RecordMax   = recordMax
	SharedMax   = sharedMax
	SparesMax   = sparesMax
	WidePerPeer = widePerPeer
)

// Taken returns how much memory is taken for a record.
var Taken = taken

// Limits are smaller ones than those of every server, where they are not zero.
type Limits struct {
	Conns, PeerConns, ConnCalls int
	ConnBytes, TotalBytes       int64
	Idle, Record, Write, Drain  time.Duration
}

// NewLimited returns a server that a test can fill.
func NewLimited(cfg ServerConfig, l Limits) *Server {
	all := defaultLimits()
	orKeep(&all.conns, l.Conns)
	orKeep(&all.peerConns, l.PeerConns)
	orKeep(&all.connCalls, l.ConnCalls)
	orKeep(&all.connBytes, l.ConnBytes)
	orKeep(&all.totalBytes, l.TotalBytes)
	orKeep(&all.idle, l.Idle)
	orKeep(&all.record, l.Record)
	orKeep(&all.write, l.Write)
	orKeep(&all.drain, l.Drain)
	return newServer(cfg, all)
}

func orKeep[T comparable](v *T, to T) {
	var zero T
	if to != zero {
		*v = to
	}
}

// Held is what is taken: bytes of the budget, and buffers to read into.
func (s *Server) Held() string {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprint(s.limits.totalBytes-b.free, " ", s.inputs.lent.Load())
}

// ConnsIn counts the connections, those that have no call in flight, and those whose clients have gone.
func (s *Server) ConnsIn() (all, idle, gone int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if activity, _ := c.Activity(); activity == Idle {
			idle++
		}
		if c.gone.Load() {
			gone++
		}
	}
	return len(s.conns), idle, gone
}

// ConnOf returns the connection of a client. A handler has it from its call.
func (s *Server) ConnOf(address string) Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if c.Address() == address {
			return c
		}
	}
	return nil
}

// Awake returns what counts the calls of its connection that were woken and are not answered: replies wait for these.
func (c *Call) Awake() func() int32 { return c.conn.awake.Load }

// LookForWaits ends what has waited too long, as the watchdog does each few seconds.
func (s *Server) LookForWaits(now time.Time) { s.endWaits(now) }

// SpareReaders counts the goroutines that are kept for reading.
func (s *Server) SpareReaders() int {
	s.readers.mu.Lock()
	defer s.readers.mu.Unlock()
	return len(s.readers.spare)
}

// Release releases what is kept, as a server does that has nothing to do.
func (s *Server) Release() { s.releaser()() }
