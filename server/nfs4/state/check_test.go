package state

import (
	"fmt"
	"math"
)

// check compares all that State counts and indexes with its records, and the
// invariants of the package comment.
func (s *State) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.after != nil {
		return fmt.Errorf("effects are left")
	}
	opens, lockOwners, sessions, replies, denying := 0, 0, 0, 0, 0
	aliases := map[aliasKey]int{}
	var all usage
	for id, c := range s.clients {
		if c.id != id || c.gone {
			return fmt.Errorf("client %x is in the table as %x, gone %t", c.id, id, c.gone)
		}
		rec := s.owners[c.owner]
		if rec == nil || c.confirmed && rec.confirmed != c || !c.confirmed && rec.unconfirmed != c {
			return fmt.Errorf("client %x is not in its owner's record", id)
		}
		if err := s.checkClient(c); err != nil {
			return fmt.Errorf("client %x: %w", id, err)
		}
		opens += c.numOpens
		all.locks += c.usage.locks
		all.ownerBytes += c.usage.ownerBytes
		for o := c.opens; o != nil; o = o.nextOfClient {
			lockOwners += len(o.locks)
			if o.deny != 0 {
				denying++
			}
			if o.alias != nil {
				aliases[aliasKey{c, o.file}]++
			}
		}
		for _, ses := range c.sessions {
			sessions++
			replies += ses.reserved()
			if s.sessions[ses.id] != ses || ses.client != c || ses.gone {
				return fmt.Errorf("session %x of client %x is not in the table", ses.id, id)
			}
		}
	}
	for owner, rec := range s.owners {
		if rec.confirmed == nil && rec.unconfirmed == nil || len(rec.earlier) > maxEarlier {
			return fmt.Errorf("record of owner %q is %+v", owner, rec)
		}
	}
	if opens != len(s.opens) || opens != len(s.byOwner) || lockOwners != len(s.locks) || sessions != len(s.sessions) ||
		replies != s.replies || int64(denying) != s.denying.Load() {
		return fmt.Errorf("counted %d opens, %d lock owners, %d sessions, %d bytes, %d denying; tables have %d, %d, %d, %d, %d, %d",
			opens, lockOwners, sessions, replies, denying,
			len(s.opens), len(s.byOwner), len(s.locks), len(s.sessions), s.replies, s.denying.Load())
	}
	for key, n := range aliases {
		if a := s.aliases[key]; a == nil || a.opens != n || a.id == "" {
			return fmt.Errorf("counted %d opens with an alias, which is %+v", n, a)
		}
	}
	if len(aliases) != len(s.aliases) || int64(len(aliases)) != s.aliased.Load() {
		return fmt.Errorf("counted %d aliases of files, have %d and %d", len(aliases), len(s.aliases), s.aliased.Load())
	}
	if l := &s.cfg.Limits; all != s.all || opens > l.AllOpens || all.locks > l.AllLocks || all.ownerBytes > l.AllOwnerBytes {
		return fmt.Errorf("%d opens, counted %+v, have %+v", opens, all, s.all)
	}
	if replies > s.cfg.Limits.ReplyBytes || len(s.clients) > s.cfg.Limits.Clients {
		return fmt.Errorf("%d bytes, %d clients are over the limit", replies, len(s.clients))
	}
	ofFiles := 0
	for key, f := range s.files {
		n, err := s.checkFile(f)
		if err != nil {
			return fmt.Errorf("file %d: %w", key.ID[0], err)
		}
		ofFiles += n
	}
	if ofFiles != opens {
		return fmt.Errorf("files have %d opens, clients %d", ofFiles, opens)
	}
	for conn, list := range s.conns {
		for _, ses := range list {
			if ses.gone || ses.findConn(conn) < 0 {
				return fmt.Errorf("connection %s is of a session that does not know it", conn.Address())
			}
		}
	}
	if n := len(s.unconfirmed); n > 2*s.cfg.Limits.Clients {
		return fmt.Errorf("%d unconfirmed clients are listed", n)
	}
	missing := 0
	for _, w := range s.grace.owners {
		if !w.done {
			missing++
		}
	}
	if missing != s.grace.missing || s.grace.active != s.graced.Load() {
		return fmt.Errorf("grace waits for %d, counted %d", s.grace.missing, missing)
	}
	return nil
}

func (s *State) checkClient(c *Client) error {
	n, locks, ranges, bytes, waiters, busy := 0, 0, 0, 0, 0, 0
	for o := c.opens; o != nil; o = o.nextOfClient {
		n++
		bytes += len(o.owner)
		if o.client != c || s.opens[o.number] != o || s.byOwner[openKey{c, o.file, o.owner}] != o || s.files[o.file.key] != o.file {
			return fmt.Errorf("open %d can't be found", o.number)
		}
		if !validShare(o.access, o.deny) || o.combos == 0 || o.seqid == 0 {
			return fmt.Errorf("open %d is %+v", o.number, o)
		}
		for _, l := range o.locks {
			locks += 1 + len(l.ranges)
			ranges += len(l.ranges)
			bytes += len(l.owner)
			if l.open != o || s.locks[l.number] != l || l.seqid == 0 {
				return fmt.Errorf("lock owner %d can't be found", l.number)
			}
			for i, r := range l.ranges {
				if r.first > r.last {
					return fmt.Errorf("range %v", r)
				}
				if i == 0 {
					continue
				}
				before := l.ranges[i-1]
				if before.last >= r.first || before.last+1 == r.first && before.write == r.write {
					return fmt.Errorf("ranges %v and %v", before, r)
				}
			}
		}
	}
	for f := range s.waiting {
		for _, w := range f.waiters {
			if w.open.client == c {
				waiters++
				bytes += len(w.owner)
			}
		}
	}
	for _, ses := range c.sessions {
		own := 0
		for i := range ses.slots {
			if ses.slots[i].busy {
				own++
			}
			if len(ses.slots[i].reply) > int(ses.fore.MaxResponseCached) {
				return fmt.Errorf("slot %d keeps %d bytes", i, len(ses.slots[i].reply))
			}
		}
		if own != ses.busy {
			return fmt.Errorf("session has %d busy slots, counted %d", ses.busy, own)
		}
		busy += own
		back := 0
		for _, b := range ses.conns {
			if b.dir&Back != 0 {
				back++
			}
		}
		if back != ses.backConns || len(ses.conns) > s.cfg.Limits.Conns {
			return fmt.Errorf("session has %d connections, %d back, counted %d", len(ses.conns), ses.backConns, back)
		}
	}
	if n != c.numOpens || locks != c.usage.locks || ranges != c.ranges || bytes != c.usage.ownerBytes || waiters != len(c.waits) || busy > c.busy {
		return fmt.Errorf("has %d opens, %d locks, %d ranges, %d bytes, %d waiters, %d busy; counted %d, %d, %d, %d, %d, %d",
			c.numOpens, c.usage.locks, c.ranges, c.usage.ownerBytes, len(c.waits), c.busy, n, locks, ranges, bytes, waiters, busy)
	}
	l := &s.cfg.Limits
	if n > l.Opens || locks > l.Locks || bytes > l.OwnerBytes || waiters > l.Waiters || len(c.sessions) > l.Sessions {
		return fmt.Errorf("is over a limit: %d opens, %d locks, %d bytes, %d waiters", n, locks, bytes, waiters)
	}
	if n > 0 && (!c.confirmed || !c.recorded) {
		return fmt.Errorf("has opens, confirmed %t, recorded %t", c.confirmed, c.recorded)
	}
	return nil
}

func (s *State) checkFile(f *file) (opens int, err error) {
	var count file
	lockers := 0
	for o := f.opens; o != nil; o = o.nextOfFile {
		opens++
		lockers += len(o.locks)
		count.add(o, 1)
		for p := o.nextOfFile; p != nil; p = p.nextOfFile {
			if p.access&o.deny != 0 || o.access&p.deny != 0 {
				return 0, fmt.Errorf("opens %d and %d deny each other", o.number, p.number)
			}
			if p.client == o.client && p.owner == o.owner {
				return 0, fmt.Errorf("opens %d and %d are of one owner", o.number, p.number)
			}
		}
	}
	if opens == 0 || count.counts != f.counts || lockers != len(f.lockers) {
		return 0, fmt.Errorf("has %d opens, %v, %d lockers; counted %v, %d", opens, f.counts, len(f.lockers), count.counts, lockers)
	}
	for i, l := range f.lockers {
		for _, m := range f.lockers[i+1:] {
			if l.open.client == m.open.client && l.owner == m.owner {
				continue
			}
			for _, r := range l.ranges {
				if firstExcluded(m.ranges, r) != nil {
					return 0, fmt.Errorf("lock owners %d and %d both have %v", l.number, m.number, r)
				}
			}
		}
	}
	_, listed := s.waiting[f]
	if listed != (len(f.waiters) > 0) {
		return 0, fmt.Errorf("has %d waiters, listed %t", len(f.waiters), listed)
	}
	for _, w := range f.waiters {
		if s.opens[w.open.number] != w.open || w.open.file != f {
			return 0, fmt.Errorf("a waiter's open is gone")
		}
	}
	return opens, nil
}

const toEOF = math.MaxUint64
