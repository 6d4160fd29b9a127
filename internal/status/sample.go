package status

import (
	"slices"
	"sync"
	"time"

	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/stats"
)

const (
	// samplePeriod and samplesMax are 5 minutes in all.
	samplePeriod = 5 * time.Second
	samplesMax   = 60
	// recently is the period of the rates in tables, in samples: a minute.
	recently = 12
)

// sample has the server's counters at some time.
type sample struct {
	at      time.Time
	served  stats.Snapshot
	volumes map[uint64]stats.Traffic // by number; shared with the sample before if nothing has changed
	syncs   stats.Distribution
}

// samples has the latest samples, the oldest first. The zero samples is ready for use.
type samples struct {
	mu sync.Mutex
	// +checklocks:mu
	ring []sample
}

// take adds a sample. Only one goroutine takes samples.
func (s *samples) take(at time.Time, served *stats.Server, exports *exports.Table) {
	latest := sample{at: at, served: s.oldest(), volumes: s.volumes(), syncs: exports.Syncs.Durations.Snapshot()}
	served.Read(&latest.served)
	all := exports.Volumes()
	same := len(all) == len(latest.volumes)
	for _, v := range all {
		before, known := latest.volumes[v.ID]
		same = same && known && before == v.Served.Traffic()
	}
	if !same {
		latest.volumes = make(map[uint64]stats.Traffic, len(all))
		for _, v := range all {
			latest.volumes[v.ID] = v.Served.Traffic()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ring = append(s.ring, latest)
}

// oldest makes room for a sample, and returns the memory of the one that was there; empty while there is room.
func (s *samples) oldest() (memory stats.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ring) <= samplesMax { // one more: between 61 are 60 spans
		return stats.Snapshot{}
	}
	memory = s.ring[0].served
	s.ring = slices.Delete(s.ring, 0, 1)
	return memory
}

// volumes returns the traffic of the volumes in the latest sample, nil before the first.
func (s *samples) volumes() map[uint64]stats.Traffic {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ring) == 0 {
		return nil
	}
	return s.ring[len(s.ring)-1].volumes
}

// spans returns what was served between consecutive samples, the oldest first.
func (s *samples) spans() []span {
	s.mu.Lock()
	defer s.mu.Unlock()
	var spans []span
	for i := 1; i < len(s.ring); i++ {
		spans = append(spans, between(&s.ring[i-1], &s.ring[i]))
	}
	return spans
}

// trafficSpan is what was served of one volume between two samples.
type trafficSpan struct {
	stats.Traffic

	seconds float64
}

// history returns what was served of a volume between consecutive samples, the oldest
// first.
func (s *samples) history(id uint64) []trafficSpan {
	s.mu.Lock()
	defer s.mu.Unlock()
	var spans []trafficSpan
	for i := 1; i < len(s.ring); i++ {
		from, to := &s.ring[i-1], &s.ring[i]
		spans = append(spans, trafficSpan{since(to.volumes[id], from.volumes[id]), to.at.Sub(from.at).Seconds()})
	}
	return spans
}

// recent returns what was served within the last minute, or since the first sample.
func (s *samples) recent() span {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.ring)
	if n == 0 {
		return span{}
	}
	from, to := &s.ring[max(0, n-1-recently)], &s.ring[n-1]
	recent := between(from, to)
	recent.add(from, to)
	return recent
}

// span is what was served between two samples.
type span struct {
	seconds    float64
	durations  stats.Distribution // of all calls
	procedures []procedureSpan    // that were called
	errors     uint64             // failed calls, see errorsOf
	all        stats.Traffic
	syncs      stats.Distribution

	// Only set by recent:
	clients map[string]stats.Traffic
	volumes map[uint64]stats.Traffic
}

type procedureSpan struct {
	name      string
	durations stats.Distribution
}

func between(from, to *sample) span {
	s := span{seconds: to.at.Sub(from.at).Seconds(), syncs: to.syncs}
	s.syncs.Sub(&from.syncs)
	for i := range to.served.Procedures {
		p, before := &to.served.Procedures[i], &from.served.Procedures[i]
		d := p.Durations
		d.Sub(&before.Durations)
		if d.Count > 0 {
			s.procedures = append(s.procedures, procedureSpan{p.Name, d})
			s.durations.Add(&d)
		}
		s.errors += errorsOf(p) - errorsOf(before)
	}
	// The sum of all clients: a forgotten client is counted among the others from then on.
	s.all = since(total(to.served.Clients), total(from.served.Clients))
	return s
}

// add sets the traffic of each client and of each volume.
func (s *span) add(from, to *sample) {
	s.clients, s.volumes = map[string]stats.Traffic{}, map[uint64]stats.Traffic{}
	before := map[string]stats.Traffic{}
	for i := range from.served.Clients {
		c := &from.served.Clients[i]
		before[c.Address.String()] = c.Traffic
	}
	for i := range to.served.Clients {
		c := &to.served.Clients[i]
		name := c.Address.String()
		s.clients[name] = since(c.Traffic, before[name])
	}
	for id, t := range to.volumes {
		s.volumes[id] = since(t, from.volumes[id])
	}
}

func total(clients []stats.ClientTraffic) stats.Traffic {
	var sum stats.Traffic
	for i := range clients {
		sum.Calls += clients[i].Calls
		sum.Read += clients[i].Read
		sum.Written += clients[i].Written
	}
	return sum
}

// since returns the traffic between two samples. The counters of a client that was
// forgotten, and of a volume that was created again, begin at 0.
func since(now, before stats.Traffic) stats.Traffic {
	if now.Calls < before.Calls {
		return now
	}
	return stats.Traffic{Calls: now.Calls - before.Calls, Read: now.Read - before.Read, Written: now.Written - before.Written}
}

// errorsOf counts the calls that failed for a reason of the server: not because a file is
// missing, exists already, or belongs to somebody else.
func errorsOf(p *stats.Procedure) uint64 {
	n := uint64(0)
	for _, s := range p.Statuses {
		switch s.Status {
		case 5, 28, 69, 10006: // IO, NOSPC, DQUOT, SERVERFAULT
			n += s.Count
		default:
			if s.Status >= stats.RPCError {
				n += s.Count
			}
		}
	}
	return n
}

func (s *span) perSecond(n uint64) float64 {
	if s.seconds <= 0 {
		return 0
	}
	return float64(n) / s.seconds
}
