package state

// usage is what a client, or all, have of what is limited. Opens are counted by the lists that
// they are on.
type usage struct {
	locks      int // stateids of lock owners, and ranges
	ownerBytes int
}

// use adds to what a client has, and all.
func (s *State) use(c *Client, locks, ownerBytes int) {
	for _, u := range [...]*usage{&c.usage, &s.all} {
		u.locks += locks
		u.ownerBytes += ownerBytes
	}
}

// room reports whether a client that has so many may have more, if all have so many. The last
// quarter is for those who have less than their share of it: nobody can take it all.
func (s *State) room(has, limit, all, allLimit, more int) bool {
	if has+more > limit || all+more > allLimit {
		return false
	}
	return all+more <= allLimit*3/4 || has+more <= allLimit/4/len(s.clients)
}

func (s *State) roomForOpen(c *Client) bool {
	l := &s.cfg.Limits
	return s.room(c.numOpens, l.Opens, len(s.opens), l.AllOpens, 1)
}

func (s *State) roomForLocks(c *Client, more int) bool {
	l := &s.cfg.Limits
	return s.room(c.usage.locks, l.Locks, s.all.locks, l.AllLocks, more)
}

func (s *State) roomForOwner(c *Client, bytes int) bool {
	l := &s.cfg.Limits
	return s.room(c.usage.ownerBytes, l.OwnerBytes, s.all.ownerBytes, l.AllOwnerBytes, bytes)
}
