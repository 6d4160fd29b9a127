package nfsv3

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
	// replayClients bounds the clients that are remembered. A network that has replayNetwork of them loses some first: with IPv6 one
	// machine can have any number of addresses.
	replayClients = 1024
	replayNetwork = replayClients / 2
	// replayMax bounds one reply, in bytes; those that count are smaller.
	replayMax = 1 << 10
	// replayBytes is how much memory the replies of all clients take, and replayCost
	// what is around one.
	replayBytes = 32 << 20
	replayCost  = 256
	// replayBuckets is a power of 2. Those of a client take 8 KiB, beside replayBytes.
	replayBuckets = replaysPerClient
	// replayArgs is how many bytes of the arguments count: of a WRITE all but the most of its data.
	replayArgs = 2 << 10
	// replayAge is for how long a reply is remembered. Linux repeats a call after
	// 10 minutes at the latest (nfs(5), timeo), and tries for a connection every 5 at
	// least.
	replayAge = 15 * time.Minute
)

// replays remembers replies to calls that must not be done twice. A client is
// known by its address (not its port: it comes again over a new connection), and
// a call by its xid, procedure, caller and arguments.
type replays struct {
	seed maphash.Seed

	mu sync.Mutex
	// +checklocks:mu
	clients map[netip.Addr]*clientReplays
	// +checklocks:mu
	networks map[netip.Addr]int // how many of clients each has: oncrpc.NetworkOf
	// +checklocks:mu
	crowd netip.Addr // the last of them that had many
	// +checklocks:mu
	used list.List // of *clientReplays, the longest unused first
	// +checklocks:mu
	bytes int // of all replies
	// +checklocks:mu
	aging bool // age is to be called
	// +checklocks:mu
	spare *replay // one that was forgotten, with its memory; nil: none
}

// clientReplays are calls of a client. A client that makes many small files has one remembered, and another one forgotten,
// with each call, so neither allocates.
type clientReplays struct {
	addr    netip.Addr
	elem    *list.Element
	buckets [replayBuckets]*replay // by the checksum of the header
	oldest  *replay                // of those that are answered; nil: none is
	newest  *replay
	done    int // how many are answered
	open    int // how many are not
	bytes   int // of those that are answered
}

// replayKey has two checksums, which no client can foresee.
type replayKey struct{ header, args uint64 }

// header is what tells calls with the same arguments apart. Of the caller it is all that decides what it may do, and not
// the stamp: a client may make a new one when it repeats the call.
type header struct {
	xid, proc uint32
	flavor    rpc.AuthFlavor
	uid, gid  uint32
	ngroups   uint32
	groups    [rpc.MaxGroups]uint32
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
	next    *replay      // in its bucket
	newer   *replay      // the one that was answered after it
}

// repetition is the same call again, whose goroutine waits for the reply to the first.
type repetition struct {
	call *oncrpc.Call
	stat chan rpc.AcceptStat // has room for it
}

func (seen *replay) cost() int { return replayCost + cap(seen.results) }

func newReplays() *replays {
	return &replays{seed: maphash.MakeSeed(), clients: map[netip.Addr]*clientReplays{}, networks: map[netip.Addr]int{}}
}

// repeated answers a call that was made before as it was answered then, or will be. Any
// other is remembered.
func (r *replays) repeated(c *oncrpc.Call) (stat rpc.AcceptStat, ok bool) {
	key := r.key(c)
	r.mu.Lock()
	client := r.clientLocked(c.Client.Addr())
	seen := *client.find(key)
	switch {
	case seen == nil:
		c.Tell(r.addLocked(client, key))
		r.mu.Unlock()
		return 0, false
	case seen.done.IsZero():
		again := repetition{c, make(chan rpc.AcceptStat, 1)}
		seen.waiting = append(seen.waiting, again)
		r.mu.Unlock()
		c.Wait()
		return <-again.stat, true
	}
	defer r.mu.Unlock()
	return answer(c, seen.stat, seen.results), true
}

// addLocked remembers a call that is not answered yet.
//
// +checklocks:r.mu
func (r *replays) addLocked(client *clientReplays, key replayKey) *replay {
	seen := r.spare
	if r.spare = nil; seen == nil {
		seen = &replay{}
	}
	bucket := client.bucket(key)
	*seen = replay{replays: r, key: key, client: client, results: seen.results, next: *bucket}
	*bucket = seen
	client.open++
	return seen
}

func (c *clientReplays) bucket(key replayKey) **replay { return &c.buckets[key.header%replayBuckets] }

// find returns where a call is referred to in its bucket, or where it would be.
func (c *clientReplays) find(key replayKey) **replay {
	at := c.bucket(key)
	for *at != nil && (*at).key != key {
		at = &(*at).next
	}
	return at
}

// forget takes a call out of its bucket.
func (c *clientReplays) forget(seen *replay) { *c.find(seen.key) = seen.next }

func (r *replays) key(c *oncrpc.Call) replayKey {
	h := header{xid: c.Header.XID, proc: c.Header.Proc, flavor: c.Header.Cred.Flavor, uid: c.Cred.UID, gid: c.Cred.GID}
	h.ngroups = uint32(copy(h.groups[:], c.Cred.Groups()))
	left := c.Args
	args := left.Rest()
	return replayKey{maphash.Comparable(r.seed, h), maphash.Bytes(r.seed, args[:min(len(args), replayArgs)])}
}

// answer is the one that the first call got.
func answer(c *oncrpc.Call, stat rpc.AcceptStat, results []byte) rpc.AcceptStat {
	c.Reply = append(c.Reply, results...)
	return stat
}

// clientLocked finds what is remembered of a client.
//
// +checklocks:r.mu
func (r *replays) clientLocked(addr netip.Addr) *clientReplays {
	c := r.clients[addr]
	if c != nil {
		r.used.MoveToBack(c.elem)
		return c
	}
	if len(r.clients) >= replayClients {
		crowded := r.networks[r.crowd] >= replayNetwork
		for e := r.used.Front(); e != nil; e = e.Next() { // replayNetwork steps, but for what is under way
			if old := e.Value.(*clientReplays); old.open == 0 && (!crowded || oncrpc.NetworkOf(old.addr) == r.crowd) {
				r.dropLocked(old, old.done)
				break
			}
		}
	}
	c = &clientReplays{addr: addr}
	c.elem = r.used.PushBack(c)
	r.clients[addr] = c
	network := oncrpc.NetworkOf(addr)
	if r.networks[network]++; r.networks[network] >= replayNetwork {
		r.crowd = network
	}
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
	if len(results) > replayMax {
		c.forget(seen)
		r.dropLocked(c, 0)
	} else {
		seen.done, seen.stat, seen.results = now, stat, append(seen.results, results...)
		r.keepLocked(seen)
	}
	if c.done > replaysPerClient {
		r.dropLocked(c, 1)
	}
	for r.bytes > replayBytes {
		most := c
		for _, other := range r.clients {
			if other.bytes > most.bytes {
				most = other
			}
		}
		r.dropLocked(most, (most.done+1)/2) // so that not every call has to look for one
	}
	if !r.aging {
		r.aging = true
		time.AfterFunc(replayAge, r.age)
	}
	r.mu.Unlock()
	for _, again := range waiting {
		again.stat <- answer(again.call, stat, results)
	}
}

// keepLocked adds a call that is answered now.
//
// +checklocks:r.mu
func (r *replays) keepLocked(seen *replay) {
	c := seen.client
	if c.newest == nil {
		c.oldest = seen
	} else {
		c.newest.newer = seen
	}
	c.newest = seen
	c.done++
	c.bytes += seen.cost()
	r.bytes += seen.cost()
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
	seen.client.forget(seen)
	seen.client.open--
	r.dropLocked(seen.client, 0)
	return true
}

// dropLocked forgets the oldest n replies to a client, and the client with its last.
//
// +checklocks:r.mu
func (r *replays) dropLocked(c *clientReplays, n int) {
	for range n {
		old := c.oldest
		if c.oldest = old.newer; c.oldest == nil {
			c.newest = nil
		}
		c.forget(old)
		c.done--
		c.bytes -= old.cost()
		r.bytes -= old.cost()
		*old = replay{results: old.results[:0]}
		r.spare = old
	}
	if c.open == 0 && c.done == 0 {
		r.used.Remove(c.elem)
		delete(r.clients, c.addr)
		network := oncrpc.NetworkOf(c.addr)
		if r.networks[network]--; r.networks[network] == 0 {
			delete(r.networks, network)
		}
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
		for seen := c.oldest; seen != nil && seen.done.Before(before); seen = seen.newer {
			n++
		}
		r.dropLocked(c, n)
	}
	r.aging = len(r.clients) > 0
	return len(r.clients)
}
