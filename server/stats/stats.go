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
	// Replayed calls got the reply again that they had got before.
	Replayed atomic.Uint64
	// Waits for memory, and for calls of the same connection to end, during which
	// a connection was not read.
	MemoryWaits, CallWaits atomic.Uint64

	procedures []string
	start      time.Time // of the time that calls are measured in
	slow       *SlowLog
	rejected   atomic.Uint64
	accepted   atomic.Uint64
	open       atomic.Int64
	shards     [shards]shard
	clients    clients
	own        own
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
	client *Client // nil: one of the server's own probes, which is not counted
	shard  int
}

// Connect counts a connection, until Close, unless it is the server's own.
func (s *Server) Connect(client netip.AddrPort) *Conn {
	c := &Conn{server: s, addr: client.Addr()}
	if s.own.has(client) {
		return c
	}
	s.open.Add(1)
	c.shard = int(s.accepted.Add(1) % shards)
	c.client = s.clients.enter(c.addr, s.now())
	return c
}

// Close ends the connection.
func (c *Conn) Close() {
	if c.client == nil {
		return
	}
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
	if c.client == nil {
		return
	}
	c.server.shards[c.shard].inFlight.Add(1)
	call.procedure, call.began = procedure, c.server.now()
}

// Reject counts a call that got an RPC error and no result, and did not begin.
func (c *Conn) Reject() {
	if c.client == nil {
		return
	}
	c.server.rejected.Add(1)
	c.client.count(&Call{}, c.server.now())
}

// End counts a call. xid is for the slow log.
func (c *Conn) End(call *Call, status Status, xid uint32) {
	if c.client == nil {
		return
	}
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
