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
	"sync"
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

// Status is a call's status: one of NFS or MOUNT, or RPCError plus one of RPC.
type Status uint32

const (
	// RPCError is added to an accept_stat of RFC 5531.
	RPCError Status = 1 << 31
	// Other is for all statuses without a counter of their own.
	Other Status = 1<<32 - 1
)

// The statuses with counters of their own: those of NFS and MOUNT up to 99, those of
// NFS from 10001 on, and those of RPC.
const (
	plainMax  = 100
	highFirst = 10001
	highMax   = 8
	rpcMax    = 6
	slots     = plainMax + highMax + rpcMax + 1
	otherSlot = slots - 1
)

// slot is the index of a status's counter.
func (s Status) slot() int {
	switch {
	case s < plainMax:
		return int(s)
	case s >= highFirst && s < highFirst+highMax:
		return plainMax + int(s-highFirst)
	case s >= RPCError && s < RPCError+rpcMax:
		return plainMax + highMax + int(s-RPCError)
	}
	return otherSlot
}

// statusOf is the status of a slot.
func statusOf(slot int) Status {
	switch {
	case slot < plainMax:
		return Status(slot)
	case slot < plainMax+highMax:
		return highFirst + Status(slot-plainMax)
	case slot < otherSlot:
		return RPCError + Status(slot-plainMax-highMax)
	}
	return Other
}

// Volume has the counters of a volume. The zero Volume is ready for use.
type Volume struct {
	Name string // for the slow log

	shards [shards]volumeShard
	// seen is the time of each client's last call, by its number; 0: never.
	seen [clientsMax + 1]atomic.Int64
}

type volumeShard struct {
	calls, read, written atomic.Uint64
	_                    [40]byte // the next shard is on another cache line
}

// seenEvery is the precision of the time of a client's last call. It saves most
// calls a write to shared memory.
const seenEvery = time.Second

func (v *Volume) count(call *Call, c *Conn, now time.Duration) {
	s := &v.shards[c.shard]
	s.calls.Add(1)
	if call.Read > 0 {
		s.read.Add(uint64(call.Read))
	}
	if call.Written > 0 {
		s.written.Add(uint64(call.Written))
	}
	note(&v.seen[c.client.number], now)
}

// note sets a time, if it is older than seenEvery.
func note(at *atomic.Int64, now time.Duration) {
	if then := at.Load(); then == 0 || int64(now)-then > int64(seenEvery) {
		at.Store(max(1, int64(now)))
	}
}

// Traffic has the counts of a volume or a client.
type Traffic struct {
	Calls, Read, Written uint64 // Read and Written in bytes
}

// Traffic returns the volume's counts.
func (v *Volume) Traffic() Traffic {
	var t Traffic
	for i := range v.shards {
		s := &v.shards[i]
		t.Calls += s.calls.Load()
		t.Read += s.read.Load()
		t.Written += s.written.Load()
	}
	return t
}

// own has the local addresses of the server's own probes. The process adds them
// before it connects, and a bound address can't be another's: no client can evade
// being counted.
type own struct {
	mu sync.Mutex
	// +checklocks:mu
	addrs map[netip.AddrPort]bool
}

// Own excludes connections from an address from the counts, until forget. The address
// must be bound by this process until then.
func (s *Server) Own(from netip.AddrPort) (forget func()) {
	o := &s.own
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.addrs == nil {
		o.addrs = map[netip.AddrPort]bool{}
	}
	o.addrs[from] = true
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.addrs, from)
	}
}

func (o *own) has(client netip.AddrPort) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.addrs[client]
}

// Syncs counts syncs of the disk. The zero Syncs is ready for use.
type Syncs struct {
	Durations Durations // of all, failed ones too
	Failed    atomic.Uint64
}

// Add adds one.
func (s *Syncs) Add(took time.Duration, err error) {
	s.Durations.Add(took)
	if err != nil {
		s.Failed.Add(1)
	}
}
