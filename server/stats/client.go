package stats

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// clientsMax bounds the clients with counters of their own. It is more than the
	// nodes of any cluster that one pod serves. The others share counters.
	clientsMax = 128
	// clientForget is how long a client without connections is remembered.
	clientForget = time.Hour
	// clientShown is how long a client without calls must be connected to be shown:
	// a load balancer's probe of the port ends earlier, and is no client.
	clientShown = time.Second
)

// Client has the counters of one address.
type Client struct {
	addr  netip.Addr
	place int           // in clients.byPlace and Volume.seen
	since time.Duration // when it got that place
	conns int           // open; guarded by clients.mu

	calls, read, written atomic.Uint64
	seen                 atomic.Int64
	seen3                atomic.Int64 // the last call by version 3; 0: none
}

func (c *Client) count(call *Call, now time.Duration) {
	c.calls.Add(1)
	if call.Read > 0 {
		c.read.Add(uint64(call.Read))
	}
	if call.Written > 0 {
		c.written.Add(uint64(call.Written))
	}
	note(&c.seen, now)
}

func (c *Client) traffic() Traffic {
	return Traffic{Calls: c.calls.Load(), Read: c.read.Load(), Written: c.written.Load()}
}

// clients has the remembered clients. Place 0 is for all others.
type clients struct {
	mu sync.Mutex
	// +checklocks:mu
	byAddr map[netip.Addr]*Client
	// +checklocks:mu
	byPlace [clientsMax + 1]*Client
}

// init is for clients that nobody else has yet.
//
// +checklocksignore
func (c *clients) init() {
	c.byAddr = map[netip.Addr]*Client{}
	c.byPlace[0] = &Client{}
}

// enter returns the client of a new connection.
func (c *clients) enter(addr netip.Addr, now time.Duration) *Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	client := c.byAddr[addr]
	if client == nil {
		client = c.takeLocked(addr, now)
	}
	client.conns++
	return client
}

// takeLocked gives a client a place: a free one, or that of the client disconnected
// for longest. While all are connected it is place 0.
//
// +checklocks:c.mu
func (c *clients) takeLocked(addr netip.Addr, now time.Duration) *Client {
	place := 0
	for i := 1; i < len(c.byPlace); i++ {
		switch old := c.byPlace[i]; {
		case old == nil:
			place = i
		case old.conns > 0:
			continue
		case place == 0 || old.seen.Load() < c.byPlace[place].seen.Load():
			place = i
		}
		if c.byPlace[i] == nil {
			break
		}
	}
	if place == 0 || !addr.IsValid() {
		return c.byPlace[0]
	}
	if old := c.byPlace[place]; old != nil {
		c.forgetLocked(old)
	}
	client := &Client{addr: addr, place: place, since: now}
	client.seen.Store(int64(now))
	c.byAddr[addr], c.byPlace[place] = client, client
	return client
}

func (c *clients) leave(client *Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	client.conns--
	if client.place > 0 && client.conns == 0 && client.calls.Load() == 0 {
		c.forgetLocked(client)
	}
}

// forgetLocked moves a client's counts to place 0.
//
// +checklocks:c.mu
func (c *clients) forgetLocked(old *Client) {
	delete(c.byAddr, old.addr)
	c.byPlace[old.place] = nil
	others := c.byPlace[0]
	t := old.traffic()
	others.calls.Add(t.Calls)
	others.read.Add(t.Read)
	others.written.Add(t.Written)
	others.seen.Store(max(others.seen.Load(), old.seen.Load()))
	others.seen3.Store(max(others.seen3.Load(), old.seen3.Load()))
}

// remembered returns place 0, and then the remembered clients that have made a call
// or been connected for clientShown.
func (c *clients) remembered(now time.Duration) []*Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*Client, 0, len(c.byAddr)+1)
	for _, client := range &c.byPlace {
		if client == nil {
			continue
		}
		if client.place > 0 && client.conns == 0 && now-time.Duration(client.seen.Load()) > clientForget {
			c.forgetLocked(client)
			continue
		}
		if client.place > 0 && client.calls.Load() == 0 && now-client.since < clientShown {
			continue
		}
		list = append(list, client)
	}
	return list
}
