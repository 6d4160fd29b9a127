package state

// usage is what a client, an address, or all, have of what is limited.
type usage struct {
	opens      int
	locks      int // stateids of lock owners, and ranges
	ownerBytes int
	waiters    int
	more       int // sessions, but for the first of each client
}

func (u *usage) add(d usage) {
	u.opens += d.opens
	u.locks += d.locks
	u.ownerBytes += d.ownerBytes
	u.waiters += d.waiters
	u.more += d.more
}

// use adds to what a client has, its address, and all.
func (s *State) use(c *Client, d usage) {
	holders := 0
	if c.usage.opens == 0 && d.opens > 0 {
		holders = 1
	} else if c.usage.opens > 0 && c.usage.opens+d.opens == 0 {
		holders = -1
	}
	had := c.home.holders > 0
	c.home.holders += holders
	s.holders += holders
	if has := c.home.holders > 0; has && !had {
		s.homes++
	} else if !has && had {
		s.homes--
	}
	c.usage.add(d)
	c.home.usage.add(d)
	s.all.add(d)
	if c.gone {
		s.dropAddress(c.home)
	}
}

// has is how much a client, its address, and all have of something, and the limits.
type has struct {
	client, limit      int
	address            int
	all, allLimit      int
	holders, addresses int // that share it, with the one that asks
}

// room reports whether a client may have more. Of what is limited for all, the last quarter is kept for those
// who have less than their share of it, half of that counted by client, half by address, and who
// has nothing gets something: nobody can take it all, neither by one client nor by many of one
// address.
func (h has) room(more int) bool {
	switch {
	case h.client+more > h.limit || h.all+more > h.allLimit:
		return false
	case h.all+more <= h.allLimit*3/4:
		return true
	case h.all+more <= h.allLimit*7/8 && (h.client == 0 || h.client+more <= h.allLimit/4/h.holders):
		return true
	}
	return h.address == 0 || h.address+more <= h.allLimit/8/(h.addresses+1)
}

func (s *State) roomForOpen(c *Client) bool {
	l := &s.cfg.Limits
	return s.roomFor(c, has{client: c.usage.opens, limit: l.Opens, address: c.home.usage.opens, all: s.all.opens, allLimit: l.AllOpens}, 1)
}

func (s *State) roomForLocks(c *Client, more int) bool {
	l := &s.cfg.Limits
	return s.roomFor(c, has{client: c.usage.locks, limit: l.Locks, address: c.home.usage.locks, all: s.all.locks, allLimit: l.AllLocks}, more)
}

func (s *State) roomForOwner(c *Client, bytes int) bool {
	l := &s.cfg.Limits
	return s.roomFor(c, has{client: c.usage.ownerBytes, limit: l.OwnerBytes, address: c.home.usage.ownerBytes, all: s.all.ownerBytes, allLimit: l.AllOwnerBytes}, bytes)
}

func (s *State) roomForWaiter(c *Client) bool {
	l := &s.cfg.Limits
	return s.roomFor(c, has{client: c.usage.waiters, limit: l.Waiters, address: c.home.usage.waiters, all: s.all.waiters, allLimit: l.AllWaiters}, 1)
}

// roomFor is room for what only clients with opens have.
func (s *State) roomFor(c *Client, h has, more int) bool {
	h.holders, h.addresses = s.holders, s.homes
	if c.usage.opens == 0 {
		h.holders++
	}
	if c.home.holders == 0 {
		h.addresses++
	}
	return h.room(more)
}

// roomForSession is for one that is not the client's first, which every client may have.
func (s *State) roomForSession(c *Client) bool {
	l := &s.cfg.Limits
	return has{
		client: 1, limit: l.MoreSessions, address: c.home.usage.more, all: s.all.more, allLimit: l.MoreSessions,
		holders: l.MoreSessions, addresses: len(s.addresses),
	}.room(1) // by address only
}

// roomForClient is for an owner that is new.
func (s *State) roomForClient(from *address) bool {
	l := &s.cfg.Limits
	return has{
		client: 1, limit: l.Clients, address: from.clients, all: len(s.owners), allLimit: l.Clients,
		holders: l.Clients, addresses: len(s.addresses),
	}.room(1) // by address only
}
