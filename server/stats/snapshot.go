package stats

import (
	"net/netip"
	"slices"
	"time"
)

// Snapshot has a Server's counts at one time.
type Snapshot struct {
	Connections struct{ Open, Accepted, Refused, Closed uint64 }
	InFlight    uint64 // calls begun but not ended

	Rejected, Replayed, MemoryWaits, CallWaits uint64

	Procedures []Procedure // in the order of New's
	Clients    []ClientTraffic
}

// Procedure has the counts of a procedure.
type Procedure struct {
	Name      string
	Statuses  []StatusCount // without those of count 0
	Durations Distribution
}

// StatusCount is the number of calls with a status.
type StatusCount struct {
	Status Status
	Count  uint64
}

// ClientTraffic has the counts of a client. The one without an address is for all
// clients without counters of their own; it is always there, and first.
type ClientTraffic struct {
	Traffic

	Address     netip.Addr
	Connections int
	Seen        time.Time // its last call, or its first connection; zero: never
	Seen3       time.Time // its last call by version 3; zero: never
}

// Snapshot returns the current counts.
func (s *Server) Snapshot() (snap Snapshot) {
	s.Read(&snap)
	return snap
}

// Read replaces a Snapshot by the current counts, in the memory that it has.
func (s *Server) Read(snap *Snapshot) {
	snap.Connections.Open = uint64(max(0, s.open.Load()))
	snap.Connections.Accepted = s.accepted.Load()
	snap.Connections.Refused, snap.Connections.Closed = s.Refused.Load(), s.Closed.Load()
	snap.Rejected, snap.Replayed = s.rejected.Load(), s.Replayed.Load()
	snap.MemoryWaits, snap.CallWaits = s.MemoryWaits.Load(), s.CallWaits.Load()

	if snap.Procedures == nil {
		snap.Procedures = make([]Procedure, len(s.procedures))
	}
	for n, name := range s.procedures {
		s.readProcedure(n, &snap.Procedures[n])
		snap.Procedures[n].Name = name
	}
	snap.InFlight = 0
	for i := range s.shards {
		snap.InFlight += uint64(s.shards[i].inFlight.Load())
	}

	snap.Clients = snap.Clients[:0]
	for _, c := range s.clients.remembered(s.now()) {
		snap.Clients = append(snap.Clients, s.clientTraffic(c))
	}
}

// readProcedure reads no statuses of a procedure without calls, which most are: of 30 procedures they would be 216 KiB.
func (s *Server) readProcedure(n int, p *Procedure) {
	p.Durations, p.Statuses = Distribution{}, p.Statuses[:0]
	for i := range s.shards {
		p.Durations.add(&s.shards[i].calls[n].durations)
	}
	if p.Durations.Count == 0 {
		return
	}
	for slot := range slots {
		count := uint64(0)
		for i := range s.shards {
			count += s.shards[i].calls[n].status[slot].Load()
		}
		if count > 0 {
			p.Statuses = append(p.Statuses, StatusCount{statusOf(slot), count})
		}
	}
}

func (s *Server) clientTraffic(c *Client) ClientTraffic {
	t := ClientTraffic{Address: c.addr, Traffic: c.traffic(), Seen: s.timeOf(c.seen.Load()), Seen3: s.timeOf(c.seen3.Load())}
	s.clients.mu.Lock()
	t.Connections = c.conns
	s.clients.mu.Unlock()
	return t
}

func (s *Server) timeOf(seen int64) time.Time {
	if seen == 0 {
		return time.Time{}
	}
	return s.start.Add(time.Duration(seen))
}

// Seen is when a client last made a call.
type Seen struct {
	Address netip.Addr
	Last    time.Time
}

// ClientsOf returns the clients with calls in a volume, the latest first. The one
// without an address is for all clients without counters of their own.
func (s *Server) ClientsOf(v *Volume) []Seen {
	var list []Seen
	for _, c := range s.clients.remembered(s.now()) {
		// A time before since is that of an earlier client with this number.
		if seen := v.seen[c.number].Load(); seen > 0 && seen >= int64(c.since) {
			list = append(list, Seen{c.addr, s.timeOf(seen)})
		}
	}
	slices.SortFunc(list, func(a, b Seen) int { return b.Last.Compare(a.Last) })
	return list
}

// Connected returns the addresses of the clients that have connections. An invalid one
// stands for the clients that are not counted by themselves.
func (s *Server) Connected() []netip.Addr {
	var clients []netip.Addr
	for _, c := range s.Snapshot().Clients {
		if c.Connections > 0 {
			clients = append(clients, c.Address)
		}
	}
	return clients
}
