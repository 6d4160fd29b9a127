package oncrpc

import (
	"container/list"
	"hash/maphash"
	"net/netip"
	"sync"
)

const (
	// replaysPerClient is how many calls of a client are remembered. It repeats
	// those that it had in flight when its connection broke, 128 at most for
	// Linux, and has made no more since.
	replaysPerClient = 1024
	// replayClients bounds the clients that are remembered.
	replayClients = 1024
	// replayMax bounds one reply, in bytes; those that count are smaller.
	replayMax = 1 << 10
)

// replays remembers replies to calls that must not be done twice. A client is
// known by its address (not its port: it comes again over a new connection), and
// a call by its xid, procedure, caller, and a checksum of its arguments.
type replays struct {
	seed maphash.Seed

	mu      sync.Mutex
	clients map[netip.Addr]*clientReplays
	used    list.List // of *clientReplays, the longest unused first
}

type clientReplays struct {
	addr  netip.Addr
	elem  *list.Element
	calls map[replayKey]*replay
	done  list.List // of *replay that are answered, the oldest first
	open  int       // those that are not
}

type replayKey struct {
	xid, prog, proc uint32
	uid, gid        uint32
	sum             uint64
}

// replay is a call that was seen, and its reply once there is one.
type replay struct {
	key     replayKey
	client  *clientReplays
	done    bool
	stat    AcceptStat
	results []byte
	waiting []*Call // the same call again, before the first is answered
}

func newReplays() *replays {
	return &replays{seed: maphash.MakeSeed(), clients: map[netip.Addr]*clientReplays{}}
}

// begin looks a call up. It is true if the call is to be done; else it was
// answered, or will be when the first is.
func (r *replays) begin(call *Call) bool {
	key := replayKey{
		xid: call.Header.XID, prog: call.Header.Prog, proc: call.Header.Proc,
		uid: call.Cred.UID, gid: call.Cred.GID,
		sum: maphash.Bytes(r.seed, call.record[len(call.record)-call.Args.Len():]),
	}
	r.mu.Lock()
	client := r.client(call.Client.Addr())
	seen, ok := client.calls[key]
	answered := ok && seen.done
	switch {
	case !ok:
		call.replay = &replay{key: key, client: client}
		client.calls[key] = call.replay
		client.open++
	case !answered:
		call.Later()
		seen.waiting = append(seen.waiting, call)
	}
	r.mu.Unlock()
	if ok {
		call.conn.server.stats.Replayed.Add(1)
	}
	if answered {
		call.repeat(seen)
	}
	return !ok
}

// client finds what is remembered of a client. The caller holds r.mu.
func (r *replays) client(addr netip.Addr) *clientReplays {
	c := r.clients[addr]
	if c != nil {
		r.used.MoveToBack(c.elem)
		return c
	}
	if len(r.clients) >= replayClients {
		for e := r.used.Front(); e != nil; e = e.Next() {
			if old := e.Value.(*clientReplays); old.open == 0 {
				r.used.Remove(e)
				delete(r.clients, old.addr)
				break
			}
		}
	}
	c = &clientReplays{addr: addr, calls: map[replayKey]*replay{}}
	c.elem = r.used.PushBack(c)
	r.clients[addr] = c
	return c
}

// finish keeps the reply and answers who waits for it.
func (r *replays) finish(seen *replay, stat AcceptStat, results []byte) {
	r.mu.Lock()
	c := seen.client
	c.open--
	waiting := seen.waiting
	seen.waiting = nil
	seen.done, seen.stat, seen.results = true, stat, append([]byte(nil), results...)
	if len(results) > replayMax {
		delete(c.calls, seen.key)
	} else {
		c.done.PushBack(seen)
	}
	for c.done.Len() > replaysPerClient {
		delete(c.calls, c.done.Remove(c.done.Front()).(*replay).key)
	}
	r.mu.Unlock()
	for _, call := range waiting {
		call.repeat(seen)
	}
}

// forget drops a call that is not begun, unless the client has sent it again and waits
// for its reply.
func (r *replays) forget(call *Call) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := call.replay
	if len(seen.waiting) > 0 {
		return false
	}
	delete(seen.client.calls, seen.key)
	seen.client.open--
	call.replay = nil
	return true
}

// repeat answers a call as it was answered before.
func (c *Call) repeat(seen *replay) {
	c.Reply = append(c.Reply, seen.results...)
	c.send(seen.stat)
}
