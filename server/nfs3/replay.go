package nfs3

import (
	"container/list"
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/oncrpc"
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
	aging   bool      // age is to be called
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
	xid, proc    uint32
	caller, args uint64 // checksums
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
	replays *replays
	key     replayKey
	client  *clientReplays
	done    time.Time // zero: it is not
	stat    rpc.AcceptStat
	results []byte
	waiting []repetition // before the first is answered
}

// repetition is the same call again.
type repetition struct {
	call  *oncrpc.Call
	reply oncrpc.Promise
}

func (seen *replay) cost() int { return replayCost + cap(seen.results) }

func newReplays() *replays {
	return &replays{seed: maphash.MakeSeed(), clients: map[netip.Addr]*clientReplays{}}
}

// repeated answers a call that was made before as it was answered then, or will be. Any
// other is remembered.
func (r *replays) repeated(c *oncrpc.Call) (oncrpc.Answer, bool) {
	key := r.key(c)
	r.mu.Lock()
	defer r.mu.Unlock()
	client := r.client(c.Client.Addr())
	seen, ok := client.calls[key]
	switch {
	case !ok:
		seen = &replay{replays: r, key: key, client: client}
		client.calls[key] = seen
		client.open++
		c.Tell(seen)
		return oncrpc.Answer{}, false
	case seen.done.IsZero():
		promise, later := c.Later()
		seen.waiting = append(seen.waiting, repetition{c, promise})
		return later, true
	}
	return seen.answer(c), true
}

func (r *replays) key(c *oncrpc.Call) replayKey {
	by := caller{flavor: c.Header.Cred.Flavor, uid: c.Cred.UID, gid: c.Cred.GID}
	by.ngroups = copy(by.groups[:], c.Cred.Groups())
	args := c.Args
	return replayKey{
		xid: c.Header.XID, proc: c.Header.Proc,
		caller: maphash.Comparable(r.seed, by),
		args:   maphash.Bytes(r.seed, args.Rest()),
	}
}

// answer is the one that the first call got.
func (seen *replay) answer(c *oncrpc.Call) oncrpc.Answer {
	c.Reply = append(c.Reply, seen.results...)
	return oncrpc.Done(seen.stat)
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

// Ended keeps the reply, and answers the calls that wait for it.
func (seen *replay) Ended(stat rpc.AcceptStat, results []byte) {
	r := seen.replays
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
	if !r.aging {
		r.aging = true
		time.AfterFunc(replayAge, r.age)
	}
	r.mu.Unlock()
	for _, again := range waiting {
		again.reply.Finish(seen.answer(again.call))
	}
}

// Drop forgets a call that is not begun, unless the client has sent it again and waits
// for its reply.
func (seen *replay) Drop() bool {
	r := seen.replays
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(seen.waiting) > 0 {
		return false
	}
	delete(seen.client.calls, seen.key)
	seen.client.open--
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

// age forgets what is old, and does so again while anything is left.
func (r *replays) age() {
	if r.expire(time.Now().Add(-replayAge)) > 0 {
		time.AfterFunc(replayAge/10, r.age)
	}
}

// expire removes replies from before a time, and returns how many clients are left.
func (r *replays) expire(before time.Time) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.clients {
		n := 0
		for e := c.done.Front(); e != nil && e.Value.(*replay).done.Before(before); e = e.Next() {
			n++
		}
		r.drop(c, n)
	}
	r.aging = len(r.clients) > 0
	return len(r.clients)
}
