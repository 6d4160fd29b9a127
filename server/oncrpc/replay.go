package oncrpc

import (
	"container/list"
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"github.com/podnas/podnas/nfs/rpc"
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
	// replayBytes is how much memory the replies of all clients take, and replayCost
	// what is around one.
	replayBytes = 32 << 20
	replayCost  = 256
	// replayAge is for how long a reply is remembered. Linux repeats a call after
	// 10 minutes at the latest (nfs(5), timeo), and tries for a connection every 5 at
	// least.
	replayAge = 15 * time.Minute
)

// replays remembers replies to calls that must not be done twice. A client is
// known by its address (not its port: it comes again over a new connection), and
// a call by its xid, procedure, and checksums of its caller and its arguments.
type replays struct {
	seed maphash.Seed

	mu      sync.Mutex
	clients map[netip.Addr]*clientReplays
	used    list.List // of *clientReplays, the longest unused first
	bytes   int       // of all replies
}

type clientReplays struct {
	addr  netip.Addr
	elem  *list.Element
	calls map[replayKey]*replay
	done  list.List // of *replay that are answered, the oldest first
	open  int       // those that are not
	bytes int       // of those in done
}

type replayKey struct {
	xid, prog, proc uint32
	caller, args    uint64 // checksums
}

// caller is who makes a call: all that decides what it may do. Not the stamp: a client
// may make a new one when it repeats the call.
type caller struct {
	flavor   rpc.AuthFlavor
	uid, gid uint32
	ngroups  int
	groups   [rpc.MaxGroups]uint32
}

// replay is a call that was seen, and its reply once there is one.
type replay struct {
	key     replayKey
	client  *clientReplays
	done    time.Time // zero: it is not
	stat    rpc.AcceptStat
	results []byte
	waiting []*Call // the same call again, before the first is answered
}

func (r *replay) cost() int { return replayCost + cap(r.results) }

func newReplays() *replays {
	return &replays{seed: maphash.MakeSeed(), clients: map[netip.Addr]*clientReplays{}}
}

// begin looks a call up. It is true if the call is to be done; else it was
// answered, or will be when the first is.
func (r *replays) begin(call *Call) bool {
	by := caller{flavor: call.Header.Cred.Flavor, uid: call.Cred.UID, gid: call.Cred.GID}
	by.ngroups = copy(by.groups[:], call.Cred.Groups())
	key := replayKey{
		xid: call.Header.XID, prog: call.Header.Prog, proc: call.Header.Proc,
		caller: maphash.Comparable(r.seed, by),
		args:   maphash.Bytes(r.seed, call.record[len(call.record)-call.Args.Len():]),
	}
	r.mu.Lock()
	client := r.client(call.Client.Addr())
	seen, ok := client.calls[key]
	answered := ok && !seen.done.IsZero()
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
				r.drop(old, old.done.Len())
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
func (r *replays) finish(seen *replay, stat rpc.AcceptStat, results []byte) {
	now := time.Now()
	r.mu.Lock()
	c := seen.client
	c.open--
	waiting := seen.waiting
	seen.waiting = nil
	seen.done, seen.stat, seen.results = now, stat, append([]byte(nil), results...)
	if len(results) > replayMax {
		delete(c.calls, seen.key)
		r.drop(c, 0)
	} else {
		c.done.PushBack(seen)
		c.bytes += seen.cost()
		r.bytes += seen.cost()
	}
	if c.done.Len() > replaysPerClient {
		r.drop(c, 1)
	}
	for r.bytes > replayBytes {
		most := c
		for _, other := range r.clients {
			if other.bytes > most.bytes {
				most = other
			}
		}
		r.drop(most, (most.done.Len()+1)/2) // so that not every call has to look for one
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
	r.drop(seen.client, 0)
	return true
}

// drop forgets the oldest n replies to a client, and the client with its last. The
// caller holds r.mu.
func (r *replays) drop(c *clientReplays, n int) {
	for range n {
		old := c.done.Remove(c.done.Front()).(*replay)
		delete(c.calls, old.key)
		c.bytes -= old.cost()
		r.bytes -= old.cost()
	}
	if c.open == 0 && c.done.Len() == 0 {
		r.used.Remove(c.elem)
		delete(r.clients, c.addr)
	}
}

// expire forgets replies from before a time.
func (r *replays) expire(before time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.clients {
		n := 0
		for e := c.done.Front(); e != nil && e.Value.(*replay).done.Before(before); e = e.Next() {
			n++
		}
		r.drop(c, n)
	}
}

// repeat answers a call as it was answered before.
func (c *Call) repeat(seen *replay) {
	c.Reply = append(c.Reply, seen.results...)
	c.send(seen.stat)
}
