// Package stats counts what a server serves, so that it can be told: calls by
// procedure and status, how long they took, what each volume and each client had.
//
// A call's way through it: its connection's [Conn.Begin] notes when it begins,
// whoever answers it notes in the [Call] whose volume it is for and how much data
// it moved, and [Conn.End] adds all of that up. Both cost a call some tens of
// nanoseconds and allocate nothing: everything is counted by adding to a number at
// a place that was there before. What is read often by few (Prometheus, the status
// page) is made of the numbers when it is asked for, [Server.Snapshot].
//
// Connections take turns with a few sets of the numbers that all calls write, so
// that two processors seldom write to one place.
package stats

import (
	"net/netip"
	"sync/atomic"
	"time"
)

// Server is what a server has served. Connections and calls are counted by their
// Conn; the rest, which is rare, directly.
type Server struct {
	// Refused connections: there were too many.
	Refused atomic.Uint64
	// Closed connections: they made room for others.
	Closed atomic.Uint64
	// Rejected calls got an RPC error and no result.
	Rejected atomic.Uint64
	// Replayed calls got the reply again that they had got before.
	Replayed atomic.Uint64
	// Waits for memory, and for calls of the same connection to end, during which
	// a connection was not read.
	MemoryWaits, CallWaits atomic.Uint64

	procedures []string
	start      time.Time // of the time that calls are measured in
	slow       *SlowLog
	accepted   atomic.Uint64
	open       atomic.Int64
	shards     [shards]shard
	clients    clients
}

// shards is how many sets of numbers there are.
const shards = 8

// shard is the numbers of some of the connections.
type shard struct {
	inFlight atomic.Int64
	calls    []procedure // by number
	_        [64]byte    // the next shard is on another cache line
}

// procedure is the numbers of one procedure.
type procedure struct {
	status    [slots]atomic.Uint64
	durations Durations
}

// New makes a Server for calls of these procedures, which are known by their place
// among them. Calls that take long go to the slow log, if it is not nil.
func New(procedures []string, slow *SlowLog) *Server {
	s := &Server{procedures: procedures, start: time.Now(), slow: slow}
	for i := range s.shards {
		s.shards[i].calls = make([]procedure, len(procedures))
	}
	s.clients.init()
	return s
}

// Conn is a connection, as far as it is counted.
type Conn struct {
	server *Server
	addr   netip.Addr
	client *Client
	shard  int
}

// Connect counts a connection, until Close.
func (s *Server) Connect(client netip.Addr) *Conn {
	s.open.Add(1)
	n := s.accepted.Add(1)
	return &Conn{server: s, addr: client, client: s.clients.enter(client, s.now()), shard: int(n % shards)}
}

// Close ends the connection.
func (c *Conn) Close() {
	c.server.open.Add(-1)
	c.server.clients.leave(c.client)
}

func (s *Server) now() time.Duration { return time.Since(s.start) }

// Call is what is noted of a call while it is answered. The zero Call is ready
// for Begin.
type Call struct {
	Volume        *Volume // that the call is for, nil: none, or not known
	Read, Written int     // bytes of a file's data that it moved

	procedure int
	began     time.Duration
}

// Begin notes the beginning of a call.
func (c *Conn) Begin(call *Call, procedure int) {
	c.server.shards[c.shard].inFlight.Add(1)
	call.procedure, call.began = procedure, c.server.now()
}

// End counts a call. xid is for the slow log.
func (c *Conn) End(call *Call, status Status, xid uint32) {
	now := c.server.now()
	took := now - call.began
	shard := &c.server.shards[c.shard]
	shard.inFlight.Add(-1)
	p := &shard.calls[call.procedure]
	p.status[status.slot()].Add(1)
	p.durations.Add(took)
	c.client.count(call, now)
	if v := call.Volume; v != nil {
		v.count(call, c, now)
	}
	if c.server.slow.takes(took) {
		c.server.slow.tell(c, call, status, xid, took)
	}
}
