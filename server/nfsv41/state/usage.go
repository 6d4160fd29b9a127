package state

// use adds to what a client has, its address, and all.
func (t *sessions) use(c *Client, d usage) {
	holders := 0
	if c.usage.opens == 0 && d.opens > 0 {
		holders = 1
	} else if c.usage.opens > 0 && c.usage.opens+d.opens == 0 {
		holders = -1
	}
	had := c.home.holders > 0
	c.home.holders += holders
	t.holders += holders
	if has := c.home.holders > 0; has && !had {
		t.homes++
	} else if !has && had {
		t.homes--
	}
	c.usage.add(d)
	c.home.usage.add(d)
	t.all.add(d)
	if c.gone {
		t.dropAddress(c.home)
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

func (t *sessions) roomForOpen(c *Client) bool {
	l := &t.cfg.Limits
	return t.roomFor(c, has{client: c.usage.opens, limit: l.Opens, address: c.home.usage.opens, all: t.all.opens, allLimit: l.AllOpens}, 1)
}

func (t *sessions) roomForLocks(c *Client, more int) bool {
	l := &t.cfg.Limits
	return t.roomFor(c, has{client: c.usage.locks, limit: l.Locks, address: c.home.usage.locks, all: t.all.locks, allLimit: l.AllLocks}, more)
}

func (t *sessions) roomForOwner(c *Client, bytes int) bool {
	l := &t.cfg.Limits
	return t.roomFor(c, has{client: c.usage.ownerBytes, limit: l.OwnerBytes, address: c.home.usage.ownerBytes, all: t.all.ownerBytes, allLimit: l.AllOwnerBytes}, bytes)
}

func (t *sessions) roomForWaiter(c *Client) bool {
	l := &t.cfg.Limits
	return t.roomFor(c, has{client: c.usage.waiters, limit: l.Waiters, address: c.home.usage.waiters, all: t.all.waiters, allLimit: l.AllWaiters}, 1)
}

// roomFor is room for what only clients with opens have.
func (t *sessions) roomFor(c *Client, h has, more int) bool {
	h.holders, h.addresses = t.holders, t.homes
	if c.usage.opens == 0 {
		h.holders++
	}
	if c.home.holders == 0 {
		h.addresses++
	}
	return h.room(more)
}

// roomForSession is for one that is not the client's first, which every client may have.
func (t *sessions) roomForSession(c *Client) bool {
	l := &t.cfg.Limits
	return has{
		client: 1, limit: l.MoreSessions, address: c.home.usage.more, all: t.all.more, allLimit: l.MoreSessions,
		holders: l.MoreSessions, addresses: len(t.addresses),
	}.room(1) // by address only
}

// roomForClient is for an owner that is new.
func (t *sessions) roomForClient(from *address) bool {
	l := &t.cfg.Limits
	return has{
		client: 1, limit: l.Clients, address: from.clients, all: len(t.owners), allLimit: l.Clients,
		holders: l.Clients, addresses: len(t.addresses),
	}.room(1) // by address only
}
