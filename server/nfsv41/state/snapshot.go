package state

import (
	"cmp"
	"slices"
	"time"
)

// Counts are for metrics.
type Counts struct {
	Clients    int // nodes that have a confirmed client
	Silent     int // of Clients: all their leases ran out, and they keep what nobody else wants
	Awaited    int // nodes that have not reclaimed, in the grace period
	Sessions   int
	Opens      int
	Locks      int // ranges
	Waiters    int
	ReplyBytes int // that slots may cache
	InGrace    bool
}

// Counts returns how much there is.
func (s *State) Counts() (n Counts) {
	n.Clients, n.Silent = s.countClients()
	s.mu.Lock()
	defer s.unlock()
	n.Sessions, n.Opens, n.Locks, n.Waiters, n.ReplyBytes = len(s.sessions.byID), len(s.opens.byNumber), s.locks.ranges, len(s.locks.waiters), s.sessions.replies
	n.InGrace, n.Awaited = s.grace.active, len(s.grace.missing)
	return n
}

// countClients counts the nodes with confirmed clients, and of these the silent ones. Not checked: eachClient holds mu.
//
// +checklocksignore
func (s *State) countClients() (all, silent int) {
	var clients []ClientInfo
	s.eachClient(func(c *Client) {
		if c.confirmed {
			clients = append(clients, ClientInfo{Owner: c.owner, Address: c.address, Verifier: c.verifier, Silent: s.sessions.leaseOver(c)})
		}
	})
	nodes := Nodes(clients)
	for _, node := range nodes {
		if !slices.ContainsFunc(node, func(c ClientInfo) bool { return !c.Silent }) {
			silent++
		}
	}
	return len(nodes), silent
}

// Bytes estimates how much memory the tables take, with what is reserved for replies. TestResident compares it
// with what the kernel counts.
func (s *State) Bytes() int {
	s.mu.Lock()
	defer s.unlock()
	return 750*len(s.opens.byNumber) + 150*(s.sessions.all.locks+len(s.locks.waiters)) + s.sessions.all.ownerBytes + 1400*len(s.sessions.list) + 800*len(s.sessions.byID) + s.sessions.replies
}

// Snapshot is who has what, for people.
type Snapshot struct {
	Clients []ClientInfo // by owner
	Opens   []OpenInfo   // by file
	Locks   []LockInfo   // by file and offset
	Grace   GraceInfo
	// Cut is how many opens and locks it leaves out.
	Cut int
}

// ClientInfo is a client.
type ClientInfo struct {
	ID              uint64
	Owner           string // any bytes
	Address         string
	Verifier        [8]byte
	Principal       Principal
	Minor           uint32 // version
	Confirmed       bool
	Since           time.Time
	Seen            time.Time
	Silent          bool // its lease ran out; it keeps what nobody else wants
	Sessions        int
	Opens           int
	Locks           int // ranges
	Recorded        bool
	ReclaimComplete bool
}

// OpenInfo is an open.
type OpenInfo struct {
	File     FileKey
	ClientID uint64
	Owner    string // any bytes
	Access   Access
	Deny     Access
	Since    time.Time
}

// LockInfo is a locked range, or one that somebody waits for.
type LockInfo struct {
	File     FileKey
	ClientID uint64
	Owner    string // any bytes
	Write    bool
	Waiting  bool
	Offset   uint64
	Length   uint64
	Since    time.Time // of the open
}

// GraceInfo is the grace period.
type GraceInfo struct {
	Active  bool
	Until   time.Time
	Awaited []string // owners that have not reclaimed
}

// Snapshot returns who has what, of opens and locks at most limit each: they are
// copied under the lock, which others wait for.
func (s *State) Snapshot(limit int) Snapshot {
	snap := s.copyAll(limit)
	slices.SortFunc(snap.Clients, func(a, b ClientInfo) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(snap.Opens, func(a, b OpenInfo) int {
		return cmp.Or(a.File.compare(&b.File), a.Since.Compare(b.Since))
	})
	slices.SortFunc(snap.Locks, func(a, b LockInfo) int {
		return cmp.Or(a.File.compare(&b.File), cmp.Compare(a.Offset, b.Offset))
	})
	slices.Sort(snap.Grace.Awaited)
	return snap
}

func (k *FileKey) compare(o *FileKey) int {
	return cmp.Or(cmp.Compare(k.Volume, o.Volume), slices.Compare(k.ID[:], o.ID[:]))
}

// copyAll copies in steps: of a client that comes or goes meanwhile there may be less.
func (s *State) copyAll(limit int) (snap Snapshot) {
	s.copyClients(&snap, limit)
	s.eachFileWaitedFor(func(f *file) {
		for _, w := range f.waits.list { // at most Limits.FileWaiters
			snap.addLock(w.open, w.owner, w.lockRange, true, limit)
		}
	})
	s.mu.Lock()
	defer s.unlock()
	snap.Cut = max(0, len(s.opens.byNumber)-len(snap.Opens)+s.locks.ranges+len(s.locks.waiters)-len(snap.Locks))
	g := &s.grace
	snap.Grace = GraceInfo{Active: g.active, Until: g.until}
	for owner, w := range g.owners {
		if !w.done {
			snap.Grace.Awaited = append(snap.Grace.Awaited, owner)
		}
	}
	return snap
}

// copyClients copies the clients, and what they have. Not checked: eachClient holds mu.
//
// +checklocksignore
func (s *State) copyClients(snap *Snapshot, limit int) {
	s.eachClient(func(c *Client) {
		snap.Clients = append(snap.Clients, ClientInfo{
			ID: c.id, Owner: c.owner, Address: c.address, Verifier: c.verifier, Principal: c.principal, Minor: c.minor,
			Confirmed: c.confirmed, Since: c.since, Seen: c.seen, Silent: s.sessions.leaseOver(c),
			Sessions: len(c.sessions), Opens: c.usage.opens, Locks: c.ranges,
			Recorded: c.recorded, ReclaimComplete: c.complete,
		})
		for o := c.opens; o != nil && len(snap.Opens) < limit; o = o.nextOfClient {
			s.steps++
			snap.Opens = append(snap.Opens, OpenInfo{
				File: o.file.key, ClientID: c.id, Owner: o.owner,
				Access: o.access, Deny: o.deny, Since: o.since,
			})
			snap.addLocks(o, limit)
		}
	})
}

func (snap *Snapshot) addLocks(o *openState, limit int) {
	for _, l := range o.locks {
		for _, r := range l.ranges {
			if len(snap.Locks) >= limit {
				return
			}
			snap.addLock(o, l.owner, r, false, limit)
		}
	}
}

func (snap *Snapshot) addLock(o *openState, owner string, r lockRange, waiting bool, limit int) {
	if len(snap.Locks) < limit {
		snap.Locks = append(snap.Locks, LockInfo{
			File: o.file.key, ClientID: o.client.id, Owner: owner, Write: r.write, Waiting: waiting,
			Offset: r.first, Length: r.length(), Since: o.since,
		})
	}
}
