package oncrpc

import (
	"container/list"
	"hash/maphash"
	"net/netip"
	"sync"
)

const (
	// replaysMax bounds the replies that are remembered. A client repeats a
	// call when its connection breaks, so what counts is what all clients have
	// in flight.
	replaysMax = 8192
	// replayMax bounds one reply, in bytes; those that count are smaller.
	replayMax = 1 << 10
)

// replays remembers replies to calls that must not be done twice. A call is
// known by its client's address (not its port: it comes again over a new
// connection), its xid and procedure, and a checksum of its arguments.
type replays struct {
	seed maphash.Seed

	mu    sync.Mutex
	calls map[replayKey]*replay
	order list.List // of *replay, the oldest first
}

type replayKey struct {
	client          netip.Addr
	xid, prog, proc uint32
	sum             uint64
}

// replay is a call that was seen, and its reply once there is one.
type replay struct {
	key     replayKey
	elem    *list.Element
	done    bool
	stat    AcceptStat
	results []byte
	waiting []*Call // the same call again, before the first is answered
}

func newReplays() *replays {
	return &replays{seed: maphash.MakeSeed(), calls: map[replayKey]*replay{}}
}

// begin looks a call up. It is true if the call is to be done; else it was
// answered, or will be when the first is.
func (r *replays) begin(call *Call) bool {
	args := call.record[len(call.record)-call.Args.Len():]
	key := replayKey{
		client: call.Client.Addr(),
		xid:    call.Header.XID, prog: call.Header.Prog, proc: call.Header.Proc,
		sum: maphash.Bytes(r.seed, args),
	}
	r.mu.Lock()
	seen, ok := r.calls[key]
	answered := ok && seen.done
	switch {
	case !ok:
		call.replay = &replay{key: key}
		call.replay.elem = r.order.PushBack(call.replay)
		r.calls[key] = call.replay
		for len(r.calls) > replaysMax {
			r.forget(r.order.Front().Value.(*replay))
		}
	case !answered:
		call.Later()
		seen.waiting = append(seen.waiting, call)
	}
	r.mu.Unlock()
	if answered {
		call.repeat(seen)
	}
	return !ok
}

// forget drops a call. The caller holds r.mu.
func (r *replays) forget(seen *replay) {
	r.order.Remove(seen.elem)
	delete(r.calls, seen.key)
}

// finish keeps the reply and answers who waits for it.
func (r *replays) finish(seen *replay, stat AcceptStat, results []byte) {
	r.mu.Lock()
	waiting := seen.waiting
	seen.waiting = nil
	seen.stat, seen.results = stat, append([]byte(nil), results...)
	seen.done = true
	if len(results) > replayMax && r.calls[seen.key] == seen {
		r.forget(seen)
	}
	r.mu.Unlock()
	for _, call := range waiting {
		call.repeat(seen)
	}
}

// repeat answers a call as it was answered before.
func (c *Call) repeat(seen *replay) {
	c.Reply = append(c.Reply, seen.results...)
	c.send(seen.stat)
}
