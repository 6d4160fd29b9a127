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
	addr   netip.Addr
	number int           // in clients.byNumber and Volume.seen
	since  time.Duration // when it got that number
	conns  int           // open; guarded by clients.mu

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

// clients has the remembered clients. Number 0 is for all others.
type clients struct {
	mu sync.Mutex
	// +checklocks:mu
	byAddr map[netip.Addr]*Client
	// +checklocks:mu
	byNumber [clientsMax + 1]*Client
}

// init is for clients that nobody else has yet.
//
// +checklocksignore
func (c *clients) init() {
	c.byAddr = map[netip.Addr]*Client{}
	c.byNumber[0] = &Client{}
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

// takeLocked gives a client a number: a free one, or that of the client disconnected
// for longest. While all are connected it is number 0.
//
// +checklocks:c.mu
func (c *clients) takeLocked(addr netip.Addr, now time.Duration) *Client {
	number := 0
	for i := 1; i < len(c.byNumber); i++ {
		switch old := c.byNumber[i]; {
		case old == nil:
			number = i
		case old.conns > 0:
			continue
		case number == 0 || old.seen.Load() < c.byNumber[number].seen.Load():
			number = i
		}
		if c.byNumber[i] == nil {
			break
		}
	}
	if number == 0 || !addr.IsValid() {
		return c.byNumber[0]
	}
	if old := c.byNumber[number]; old != nil {
		c.forgetLocked(old)
	}
	client := &Client{addr: addr, number: number, since: now}
	client.seen.Store(int64(now))
	c.byAddr[addr], c.byNumber[number] = client, client
	return client
}

func (c *clients) leave(client *Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	client.conns--
	if client.number > 0 && client.conns == 0 && client.calls.Load() == 0 {
		c.forgetLocked(client)
	}
}

// forgetLocked moves a client's counts to number 0.
//
// +checklocks:c.mu
func (c *clients) forgetLocked(old *Client) {
	delete(c.byAddr, old.addr)
	c.byNumber[old.number] = nil
	others := c.byNumber[0]
	t := old.traffic()
	others.calls.Add(t.Calls)
	others.read.Add(t.Read)
	others.written.Add(t.Written)
	others.seen.Store(max(others.seen.Load(), old.seen.Load()))
	others.seen3.Store(max(others.seen3.Load(), old.seen3.Load()))
}

// remembered returns number 0, and then the remembered clients that have made a call
// or been connected for clientShown.
func (c *clients) remembered(now time.Duration) []*Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*Client, 0, len(c.byAddr)+1)
	for _, client := range &c.byNumber {
		if client == nil {
			continue
		}
		if client.number > 0 && client.conns == 0 && now-time.Duration(client.seen.Load()) > clientForget {
			c.forgetLocked(client)
			continue
		}
		if client.number > 0 && client.calls.Load() == 0 && now-client.since < clientShown {
			continue
		}
		list = append(list, client)
	}
	return list
}
