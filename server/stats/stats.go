// Package stats counts a server's calls by procedure and status, their durations,
// and the calls and data of each volume and client.
//
// A call's way through it: its connection's [Conn.Begin] records its start, the
// handler sets the [Call]'s volume and how much data it moved, and [Conn.End] adds
// to the counters. Both cost a call some tens of nanoseconds and allocate nothing,
// because all counters exist before. [Server.Snapshot] sums them up for readers
// (Prometheus, the status page).
//
// Connections are spread over a few sets of the counters that all calls write, so
// that two processors seldom write to the same one. Its two mutexes, of clients and of the server's own
// connections, are never held together.
package stats

import (
	"net/netip"
	"sync/atomic"
	"time"
)

// Server has a server's counters. A Conn counts its connection and calls; the
// rest, which is rare, is counted directly.
type Server struct {
	// Refused connections, because there were too many.
	Refused atomic.Uint64
	// Closed connections, to make room for others.
	Closed atomic.Uint64
	// Replayed calls got their first reply again.
	Replayed atomic.Uint64
	// Waits, during which a connection was not read, for memory and for the end of
	// calls of the same connection.
	MemoryWaits, CallWaits atomic.Uint64

	procedures []string
	version3   []bool    // of each procedure: who calls it uses version 3 of NFS
	start      time.Time // calls' times are relative to it
	slow       *SlowLog
	rejected   atomic.Uint64
	accepted   atomic.Uint64
	open       atomic.Int64
	shards     [shards]shard
	clients    clients
	own        own
}

// shards is the number of sets of counters.
const shards = 8

// shard has the counters of some connections.
type shard struct {
	inFlight atomic.Int64
	calls    []procedure // by number
	_        [64]byte    // the next shard is on another cache line
}

// procedure has the counters of one procedure.
type procedure struct {
	status    [slots]atomic.Uint64
	durations Durations
}

// New returns a Server for calls of these procedures, which are identified by their
// index. It logs slow calls to the slow log, if it is not nil.
func New(procedures []string, slow *SlowLog) *Server {
	s := &Server{procedures: procedures, start: time.Now(), slow: slow}
	for _, name := range procedures {
		s.version3 = append(s.version3, usesVersion3(name))
	}
	for i := range s.shards {
		s.shards[i].calls = make([]procedure, len(procedures))
	}
	s.clients.init()
	return s
}

// usesVersion3 reports whether the caller of a procedure uses version 3 of NFS: not one of version 4, nor
// somebody who only asks whether the server is there, or what it exports.
func usesVersion3(procedure string) bool {
	switch procedure {
	case "NULL", "NULL4", "COMPOUND", "MOUNT NULL", "DUMP", "EXPORT":
		return false
	}
	return true
}

// Conn counts a connection and its calls.
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

// Call collects what to count of a call. The zero Call is ready for Begin.
type Call struct {
	Volume        *Volume // of the call, nil: none, or unknown
	Read, Written int     // bytes of a file's data that it moved

	procedure int
	began     time.Duration
}

// Begin starts a call.
func (c *Conn) Begin(call *Call, procedure int) {
	if c.client == nil {
		return
	}
	c.server.shards[c.shard].inFlight.Add(1)
	call.procedure, call.began = procedure, c.server.now()
}

// Reject counts a call that got an RPC error without Begin.
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
	if c.server.version3[call.procedure] {
		note(&c.client.seen3, now)
	}
	if v := call.Volume; v != nil {
		v.count(call, c, now)
	}
	if c.server.slow.takes(took) {
		c.server.slow.tell(c, call, status, xid, took)
	}
}
