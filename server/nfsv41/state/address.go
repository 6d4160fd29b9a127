package state

import (
	"container/list"
	"net/netip"
)

// address is where clients come from: a node, or many behind one NAT. A client ID costs nothing, an
// address does, so what all share is shared out by address as well: see room.
type address struct {
	key         string
	clients     int // records
	holders     int // clients that have opens
	usage       usage
	unconfirmed list.List // *Client, in the order in which they came
}

// addressOf returns the address of a connection. It is kept if it gets clients.
func (s *State) addressOf(conn string) *address {
	key := conn
	if a, err := netip.ParseAddrPort(conn); err == nil {
		key = a.Addr().Unmap().String()
	}
	if a := s.addresses[key]; a != nil {
		return a
	}
	return &address{key: key}
}

// addClient puts a client into the tables.
func (s *State) addClient(c *Client, home *address) {
	s.steps++
	c.home = home
	home.clients++
	s.addresses[home.key] = home
	s.clients[c.id] = c
	c.gen = s.gen
	c.index = len(s.list)
	s.list = append(s.list, c)
	if !c.confirmed {
		s.soon()
		c.places = [2]*list.Element{s.unconfirmed.PushBack(c), home.unconfirmed.PushBack(c)}
	}
}

// removeClient takes it out of the tables.
func (s *State) removeClient(c *Client) {
	delete(s.clients, c.id)
	last := s.list[len(s.list)-1]
	s.list[c.index], last.index = last, c.index
	s.list[len(s.list)-1] = nil
	s.list = s.list[:len(s.list)-1]
	s.leaveUnconfirmed(c)
	c.home.clients--
	s.dropAddress(c.home)
}

// leaveUnconfirmed is for a client that is confirmed, or goes.
func (s *State) leaveUnconfirmed(c *Client) {
	if c.places[0] != nil {
		s.unconfirmed.Remove(c.places[0])
		c.home.unconfirmed.Remove(c.places[1])
		c.places = [2]*list.Element{}
	}
}

// dropAddress forgets an address that has nothing.
func (s *State) dropAddress(a *address) {
	if a.clients == 0 && a.usage == (usage{}) {
		delete(s.addresses, a.key)
	}
}
