package stats

import (
	"sync/atomic"
	"time"
)

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
