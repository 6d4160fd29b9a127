package state

import (
	"fmt"
	"maps"
)

// Verify compares all that State counts and indexes with its records, and the
// invariants of the package comment.
func (s *State) Verify() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.after != nil {
		return fmt.Errorf("effects are left")
	}
	opens, lockOwners, sessions, replies, least, denying, ranges, holders := 0, 0, 0, 0, 0, 0, 0, 0
	homes := map[*address]*address{}
	var all usage
	for id, c := range s.sessions.clients {
		if c.id != id || c.gone {
			return fmt.Errorf("client %x is in the table as %x, gone %t", c.id, id, c.gone)
		}
		rec := s.sessions.owners[c.owner]
		if rec == nil || c.confirmed && rec.confirmed != c || !c.confirmed && rec.unconfirmed != c {
			return fmt.Errorf("client %x is not in its owner's record", id)
		}
		if err := s.checkClient(c); err != nil {
			return fmt.Errorf("client %x: %w", id, err)
		}
		opens += c.usage.opens
		ranges += c.ranges
		all.add(c.usage)
		home := homes[c.home]
		if home == nil {
			home = &address{}
			homes[c.home] = home
		}
		home.clients++
		home.usage.add(c.usage)
		if c.usage.opens > 0 {
			home.holders++
			holders++
		}
		if s.sessions.list[c.index] != c || (c.listed[0] == nil) != c.confirmed {
			return fmt.Errorf("client %x is not in the lists", id)
		}
		for o := c.opens; o != nil; o = o.nextOfClient {
			lockOwners += len(o.locks)
			if o.deny != 0 {
				denying++
			}
		}
		for _, ses := range c.sessions {
			sessions++
			replies += ses.reserved()
			least += s.sessions.leastOf(ses)
			if s.sessions.byID[ses.id] != ses || ses.client != c || ses.gone {
				return fmt.Errorf("session %x of client %x is not in the table", ses.id, id)
			}
		}
	}
	for owner, rec := range s.sessions.owners {
		if rec.confirmed == nil && rec.unconfirmed == nil || len(rec.earlier) > maxEarlier {
			return fmt.Errorf("record of owner %q is %+v", owner, rec)
		}
	}
	if opens != len(s.opens.byNumber) || opens != len(s.opens.byOwner) || lockOwners != len(s.locks.byNumber) || sessions != len(s.sessions.byID) ||
		replies != s.sessions.replies || least != s.sessions.least || ranges != s.locks.ranges || len(s.sessions.list) != len(s.sessions.clients) || len(s.opens.reserved) == 0 && int64(denying) != s.denying.Load() {
		return fmt.Errorf("counted %d opens, %d lock owners, %d sessions, %d bytes, %d denying; tables have %d, %d, %d, %d, %d, %d",
			opens, lockOwners, sessions, replies, denying,
			len(s.opens.byNumber), len(s.opens.byOwner), len(s.locks.byNumber), len(s.sessions.byID), s.sessions.replies, s.denying.Load())
	}
	if err := s.checkHomes(homes, holders); err != nil {
		return err
	}
	if l := &s.cfg.Limits; all != s.sessions.all || opens > l.AllOpens || all.locks > l.AllLocks || all.ownerBytes > l.AllOwnerBytes {
		return fmt.Errorf("%d opens, counted %+v, have %+v", opens, all, s.sessions.all)
	}
	if replies > max(s.cfg.Limits.ReplyBytes, s.sessions.leastOfAll()) || len(s.sessions.owners) > s.cfg.Limits.Clients || all.more > s.cfg.Limits.MoreSessions || all.waiters > s.cfg.Limits.AllWaiters {
		return fmt.Errorf("%d bytes, %d clients are over the limit", replies, len(s.sessions.clients))
	}
	ofFiles := 0
	for key, f := range s.opens.files {
		n, err := s.checkFile(f)
		if err != nil {
			return fmt.Errorf("file %d: %w", key.ID[0], err)
		}
		ofFiles += n
	}
	if ofFiles != opens {
		return fmt.Errorf("files have %d opens, clients %d", ofFiles, opens)
	}
	for volume, o := range s.opens.volumes {
		if o == nil || o.prevOfVolume != nil {
			return fmt.Errorf("the list of volume %d does not begin with its first open", volume)
		}
		for ; o != nil; o = o.nextOfVolume {
			ofFiles--
			if o.file.key.Volume != volume || o.gone || o.nextOfVolume != nil && o.nextOfVolume.prevOfVolume != o {
				return fmt.Errorf("open %d of volume %d is in the list of volume %d", o.number, o.file.key.Volume, volume)
			}
		}
	}
	if ofFiles != 0 {
		return fmt.Errorf("volumes have %d opens less than their files", ofFiles)
	}
	for conn, list := range s.sessions.conns {
		if len(list) == 0 {
			return fmt.Errorf("connection %s is remembered, and of no session", conn.Address())
		}
		for i, ses := range list {
			if ses.gone || ses.findConn(conn) < 0 || ses.conns[ses.findConn(conn)].at != i {
				return fmt.Errorf("connection %s is of a session that does not know it", conn.Address())
			}
		}
	}
	for kind := range s.sessions.silent {
		for i, c := range s.sessions.silent[kind].list {
			if c.silentAt[kind] != i+1 || c.gone {
				return fmt.Errorf("a silent client is at %d, not %d, gone %t", c.silentAt[kind], i+1, c.gone)
			}
			if above := s.sessions.silent[kind].list[max(0, i-1)/2]; c.held(kind) > above.held(kind) {
				return fmt.Errorf("of kind %d, a silent client that holds %d comes after one that holds %d", kind, c.held(kind), above.held(kind))
			}
		}
	}
	missing := map[string]int{}
	for owner, w := range s.grace.owners {
		if !w.done && !w.excused {
			node, _ := Node(owner)
			missing[node]++
		}
	}
	if !maps.Equal(missing, s.grace.missing) || s.grace.active != s.graced.Load() {
		return fmt.Errorf("grace waits for %v, counted %v", s.grace.missing, missing)
	}
	return nil
}

func (s *State) checkHomes(counted map[*address]*address, holders int) error {
	homes, unconfirmed := 0, 0
	for a, n := range counted {
		if s.sessions.addresses[a.key] != a || a.clients != n.clients || a.holders != n.holders || a.usage != n.usage {
			return fmt.Errorf("address %s is %+v, counted %+v", a.key, a, n)
		}
		if n.holders > 0 {
			homes++
		}
		unconfirmed += a.unconfirmed.Len()
	}
	if len(counted) != len(s.sessions.addresses) || homes != s.sessions.homes || holders != s.sessions.holders || unconfirmed != s.sessions.unconfirmed.Len() {
		return fmt.Errorf("counted %d addresses, %d of %d holders, %d unconfirmed; have %d, %d, %d, %d",
			len(counted), homes, holders, unconfirmed, len(s.sessions.addresses), s.sessions.homes, s.sessions.holders, s.sessions.unconfirmed.Len())
	}
	return nil
}

func (s *State) checkClient(c *Client) error {
	n, locks, ranges, bytes, waiters, busy := 0, 0, 0, 0, 0, 0
	for o := c.opens; o != nil; o = o.nextOfClient {
		n++
		bytes += len(o.owner)
		if o.client != c || s.opens.byNumber[o.number] != o || s.opens.byOwner[openKey{c, o.file, o.owner}] != o || s.opens.files[o.file.key] != o.file {
			return fmt.Errorf("open %d can't be found", o.number)
		}
		if !validShare(o.access, o.deny) || o.combos == 0 || o.seqid == 0 {
			return fmt.Errorf("open %d is %+v", o.number, o)
		}
		for _, l := range o.locks {
			locks += 1 + len(l.ranges)
			ranges += len(l.ranges)
			bytes += len(l.owner)
			if through, _ := s.locks.throughOpen(o, l.owner); l.open != o || s.locks.byNumber[l.number] != l || through != l || o.locks[l.at] != l || l.seqid == 0 {
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
	for owner, waits := range c.waits {
		for _, w := range waits {
			waiters++
			bytes += len(w.owner)
			if w.owner != owner || s.locks.waiters[w.key()] != w || w.open.client != c {
				return fmt.Errorf("a waiter of %q can't be found", owner)
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
	if n != c.usage.opens || locks != c.usage.locks || ranges != c.ranges || bytes != c.usage.ownerBytes || waiters != c.usage.waiters || busy > c.busy {
		return fmt.Errorf("has %d opens, %d locks, %d ranges, %d bytes, %d waiters, %d busy; counted %d, %d, %d, %d, %d, %d",
			c.usage.opens, c.usage.locks, c.ranges, c.usage.ownerBytes, c.usage.waiters, c.busy, n, locks, ranges, bytes, waiters, busy)
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
	var all []*openState
	var lockers []*lockOwner
	for i, list := range f.opens {
		for o := list; o != nil; o = o.nextOfFile {
			all = append(all, o)
			lockers = append(lockers, o.locks...)
			if (o.deny != 0) != (i == denying) || i != denying && i != int(o.access) {
				return 0, fmt.Errorf("open %d is in list %d", o.number, i)
			}
		}
	}
	locked := 0
	for _, l := range lockers {
		for _, r := range l.ranges {
			locked++
			if n := f.locked.find(r.first, l.number); n == nil || n.of != l || n.lockRange != r {
				return 0, fmt.Errorf("range %v of lock owner %d can't be found", r, l.number)
			}
		}
	}
	if n := f.locked.root.count(); n != locked {
		return 0, fmt.Errorf("has %d ranges, counted %d", n, locked)
	}
	for i, o := range all {
		opens++
		count.counts.add(o.access, o.deny, 1)
		if !o.void() && s.opens.isReserved(f.key, o.access, o.deny) {
			return 0, fmt.Errorf("open %d has what is reserved", o.number)
		}
		for _, p := range all[i+1:] {
			if p.access&o.deny != 0 || o.access&p.deny != 0 {
				return 0, fmt.Errorf("opens %d and %d deny each other", o.number, p.number)
			}
			if p.client == o.client && p.owner == o.owner {
				return 0, fmt.Errorf("opens %d and %d are of one owner", o.number, p.number)
			}
		}
	}
	if opens == 0 || count.counts != f.counts || len(lockers) != f.lockers {
		return 0, fmt.Errorf("has %d opens, %v, %d lockers; counted %v, %d", opens, f.counts, f.lockers, count.counts, len(lockers))
	}
	for i, l := range lockers {
		for _, m := range lockers[i+1:] {
			same := l.open.client == m.open.client && l.owner == m.owner // which has locked each byte through one open
			for _, r := range l.ranges {
				r.write = r.write || same
				if firstExcluded(m.ranges, r) != nil {
					return 0, fmt.Errorf("lock owners %d and %d both have %v", l.number, m.number, r)
				}
			}
		}
	}
	if f.waits == nil {
		return opens, nil
	}
	if s.locks.waiting[f.waits.index] != f || len(f.waits.list) == 0 || len(f.waits.list) > s.cfg.Limits.FileWaiters {
		return 0, fmt.Errorf("has %d waiters, listed at %d", len(f.waits.list), f.waits.index)
	}
	told := 0
	for i, w := range f.waits.list {
		if s.opens.byNumber[w.open.number] != w.open || w.open.file != f || i > 0 && f.waits.list[i-1].number >= w.number {
			return 0, fmt.Errorf("a waiter's open is gone, or they are not in order")
		}
		if !w.told.IsZero() {
			told++
			if n := f.waits.told.find(w.first, w.number); n == nil || n.of != w {
				return 0, fmt.Errorf("a waiter that was told can't be found")
			}
		}
	}
	if n := f.waits.told.root.count(); n != told {
		return 0, fmt.Errorf("%d waiters were told, counted %d", n, told)
	}
	return opens, nil
}

// find and count are for checks.
func (t *intervals[T]) find(first, number uint64) *interval[T] {
	n := t.root
	for n != nil && (n.first != first || n.number != number) {
		if n.before(first, number) {
			n = n.right
		} else {
			n = n.left
		}
	}
	return n
}

func (n *interval[T]) count() int {
	if n == nil {
		return 0
	}
	return 1 + n.left.count() + n.right.count()
}
