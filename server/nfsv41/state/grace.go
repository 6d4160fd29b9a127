package state

import (
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
)

// grace owns the time after a crash in which clients reclaim what they had, RFC 8881
// section 8.4.2. The client tracking that it begins with stays on the disk until it ends,
// beside the entries of those who reclaim, so that a crash within it loses nothing.
// State.mu guards all of it.
type grace struct {
	*work
	log *stateLog

	active  bool
	ending  bool // its entries are being removed
	until   time.Time
	lasts   time.Duration // from when clients get answers
	owners  map[string]*awaited
	missing map[string]int // of owners: how many are waited for, by the names of their nodes
}

// start begins it, without owners.
func (g *grace) start(left time.Duration) {
	g.active, g.ending, g.until, g.lasts = true, false, g.cfg.Now().Add(left), left
	g.owners, g.missing = map[string]*awaited{}, map[string]int{}
}

// over ends it.
func (g *grace) over() {
	g.active, g.ending, g.until = false, false, time.Time{}
	g.owners, g.missing = nil, nil
}

// late reports whether its time is over.
func (g *grace) late() bool {
	now := g.cfg.Now()
	return !now.Before(g.until) && now.Sub(g.cfg.Answering()) >= g.lasts
}

type awaited struct {
	entries []TrackedClient
	done    bool // its client has said RECLAIM_COMPLETE
	excused bool // nobody waits for it: Excuse
}

// await adds an owner that is not done.
func (g *grace) await(owner string) *awaited {
	w := &awaited{}
	g.owners[owner] = w
	node, _ := Node(owner)
	g.missing[node]++
	return w
}

// complete adds to the entries of those who are awaited what the log does not have of them.
func (g *grace) complete(had []TrackedClient) {
	for i := range had {
		w := g.owners[had[i].Owner]
		if w == nil {
			continue
		}
		for j := range w.entries {
			if w.entries[j].ClientID == had[i].ClientID {
				w.entries[j] = had[i]
			}
		}
	}
}

// notMissing notes that nobody waits for an owner any more.
func (g *grace) notMissing(owner string) {
	node, _ := Node(owner)
	if g.missing[node]--; g.missing[node] == 0 {
		delete(g.missing, node)
	}
}

// mayGrant says whether the client may get an open or a lock now.
func (g *grace) mayGrant(c *Client, reclaim bool) nfs4.Status {
	if reclaim {
		w := g.owners[c.owner]
		if !g.active || g.ending || c.complete || w == nil || w.done {
			return nfs4.ErrNoGrace
		}
		return nfs4.OK
	}
	// RFC 8881 section 18.51.3: before its own RECLAIM_COMPLETE a client gets nothing
	// new, though the grace period has long been over.
	if g.active || !c.complete {
		return nfs4.ErrGrace
	}
	return nfs4.OK
}

// entries returns by which entries an owner may still reclaim.
func (g *grace) entries(owner string) []TrackedClient {
	if w := g.owners[owner]; w != nil {
		return w.entries
	}
	return nil
}

// reclaimed notes that an owner has said RECLAIM_COMPLETE, and reports whether it was awaited.
func (g *grace) reclaimed(owner string) bool {
	w := g.owners[owner]
	if w == nil || w.done {
		return false
	}
	if w.done = true; !w.excused {
		g.notMissing(owner)
	}
	return true
}

// excuse has nobody wait for an owner any more. It may still reclaim.
func (g *grace) excuse(owner string) {
	if w := g.owners[owner]; w != nil && !w.done && !w.excused {
		w.excused = true
		g.notMissing(owner)
	}
}

// came has an owner be waited for that was excused, as it is there after all.
func (g *grace) came(owner string) {
	if w := g.owners[owner]; w != nil && !w.done && w.excused {
		w.excused = false
		node, _ := Node(owner)
		g.missing[node]++
	}
}

// forget takes an owner off the list of those who may reclaim. Its entries are no
// longer on the disk.
func (g *grace) forget(owner string) {
	if w := g.owners[owner]; w != nil {
		if !w.done && !w.excused {
			g.notMissing(owner)
		}
		delete(g.owners, owner)
	}
}

// logGrace logs what becomes of the grace period. A log that does not have yet what it is about loses nothing
// by it.
func (g *grace) logGrace(r record) {
	if g.log.out != nil {
		g.log.note(g.log.gen, r.append)
	}
}
