package state

import "github.com/podnas/podnas/nfs/nfs4"

// locks owns the lock owners with their byte ranges, and the waiters (waiters.go). It knows the opens,
// since a lock ends with its open. State.mu guards all of it.
type locks struct {
	*work
	sessions *sessions
	opens    *opens
	log      *stateLog

	byNumber map[uint64]*lockOwner
	byOwner  map[lockerKey]*lockOwner // the first of an owner; lockOwner.next is the next
	ranges   int                      // of all lock owners

	waiters  map[waiterKey]*waiter
	waiting  []*file // files that have waiters
	lastWait uint64  // number of the last waiter
}

func newLocks(w *work, ss *sessions, op *opens, log *stateLog) locks {
	return locks{
		work: w, sessions: ss, opens: op, log: log,
		byNumber: map[uint64]*lockOwner{},
		byOwner:  map[lockerKey]*lockOwner{},
		waiters:  map[waiterKey]*waiter{},
	}
}

// Of the locks in the way of another, so many are looked at: those of silent clients, and those of
// the owner itself, of which there are Limits.Ranges at most, or that are being released.
const (
	silentMax = 256
	ownMax    = 4096
)

// ownerOpens is through how many opens of a file one owner can lock. Linux has an owner for each open.
const ownerOpens = 64

// conflict is what is in the way of a lock.
type conflict struct {
	holder *lockOwner // nil: nothing
	at     lockRange
	silent bool // the holder's client is, and so are those of all others that were looked at: they can be taken
	// unknown is set if there was nothing among as much as may be looked at.
	unknown bool
}

// conflict returns what excludes r, which is for c's owner.
func (t *locks) conflict(f *file, c *Client, owner string, r lockRange) (found conflict) {
	if f.locked.root == nil {
		return found
	}
	silent, own := 0, 0
	f.locked.excluding(r, &t.steps, func(i *interval[*lockOwner]) bool {
		l := i.of
		if l.open.void() || l.isOf(c, owner) {
			own++
			found.unknown = own >= ownMax
			return !found.unknown
		}
		found.holder, found.at, found.silent = l, i.lockRange, t.sessions.leaseOver(l.open.client)
		silent++
		return found.silent && silent < silentMax
	})
	return found
}

// deniedBy is what a client is told of a conflict.
func (t *locks) deniedBy(in *conflict, to *Client) Denied {
	return t.denied(to, in.holder.open.client, in.holder.owner, in.at)
}

// denied is what a client is told of a lock of c. It has c's client ID only for whoever may be c anyway.
func (t *locks) denied(to, c *Client, owner string, r lockRange) Denied {
	d := Denied{Owner: owner, Write: r.write, Offset: r.first, Length: r.length()}
	if t.sessions.mayBe(c, to.address) {
		d.ClientID = c.id
	}
	return d
}

func (t *locks) lockID(l *lockOwner) nfs4.Stateid {
	return nfs4.Stateid{Seqid: l.seqid, Other: t.opens.other(l.number)}
}

// findLock returns the lock owner of a stateid that must be of one.
func (t *locks) findLock(c *Client, id *nfs4.Stateid, f *FileKey) (*lockOwner, nfs4.Status) {
	if e := c.usable(); e != nfs4.OK {
		return nil, e
	}
	l := t.byNumber[t.opens.number(id)]
	if l == nil || l.open.void() || l.open.client != c || l.open.file.key != *f {
		return nil, nfs4.ErrBadStateid
	}
	return l, checkSeqid(id.Seqid, l.seqid, l.uncertain)
}

// throughOpen returns the lock owner of an open, or nil, and through how many opens of the file the owner has any.
func (t *locks) throughOpen(o *openState, owner string) (l *lockOwner, opens int) {
	for of := t.byOwner[lockerKey{o.client, o.file, owner}]; of != nil; of = of.next {
		if opens++; of.open == o {
			l = of
		}
	}
	t.steps += opens
	return l, opens
}

func (t *locks) addLockOwner(o *openState, number uint64, owner string) *lockOwner {
	key := lockerKey{o.client, o.file, owner}
	l := &lockOwner{number: number, open: o, at: len(o.locks), next: t.byOwner[key], owner: owner, gen: o.gen}
	t.byNumber[l.number] = l
	t.byOwner[key] = l
	o.locks = append(o.locks, l)
	o.file.lockers++
	t.sessions.use(o.client, usage{locks: 1, ownerBytes: len(owner)})
	return l
}

// removeLockOwner removes a lock owner that has no ranges.
func (t *locks) removeLockOwner(l *lockOwner) {
	o := l.open
	last := o.locks[len(o.locks)-1]
	o.locks[l.at], last.at = last, l.at
	o.locks[len(o.locks)-1] = nil
	o.locks = o.locks[:len(o.locks)-1]
	o.file.lockers--
	delete(t.byNumber, l.number)
	t.unlink(l)
	t.sessions.use(o.client, usage{locks: -1, ownerBytes: -len(l.owner)})
}

// unlink removes a lock owner from those of its name.
func (t *locks) unlink(l *lockOwner) {
	key := lockerKey{l.open.client, l.open.file, l.owner}
	first := t.byOwner[key]
	if first == l {
		if t.byOwner[key] = l.next; l.next == nil {
			delete(t.byOwner, key)
		}
		return
	}
	before := first
	for before.next != l {
		before = before.next
		t.steps++
	}
	before.next = l.next
}

// elsewhere returns how many ranges the owner has through other opens than o, and how many more these are if those of r are gone.
func (t *locks) elsewhere(o *openState, owner string, r lockRange) (has, more int) {
	for l := t.byOwner[lockerKey{o.client, o.file, owner}]; l != nil; l = l.next {
		t.steps++
		if l.open == o || l.open.void() {
			continue
		}
		change := clearRange(l.ranges, r)
		has += len(l.ranges)
		more += change.more()
	}
	return has, more
}

// roomForRanges reports whether an owner that has so many ranges of a file may have more.
func (t *locks) roomForRanges(has, more int) bool {
	return more <= 0 || has+more <= t.cfg.Limits.Ranges
}

// changeRanges sets or clears r, unless the client would have too many. What the owner has of it through other opens is gone.
func (t *locks) changeRanges(l *lockOwner, r lockRange, change func([]lockRange, lockRange) edit) nfs4.Status {
	e := change(l.ranges, r)
	has, more := t.elsewhere(l.open, l.owner, r)
	has, more = has+len(l.ranges), more+e.more()
	if more > 0 && !t.sessions.roomForLocks(l.open.client, more) || !t.roomForRanges(has, more) {
		return nfs4.ErrServerFault
	}
	for other := t.byOwner[lockerKey{l.open.client, l.open.file, l.owner}]; other != nil; other = other.next {
		if other == l || other.open.void() {
			continue
		}
		if e := clearRange(other.ranges, r); e.from < e.to {
			t.edit(other, e)
			t.logRange(other, r, false)
		}
	}
	t.edit(l, e)
	return nfs4.OK
}

// edit changes what a lock owner has.
func (t *locks) edit(l *lockOwner, e edit) {
	more := e.more()
	locked := &l.open.file.locked
	for _, old := range l.ranges[e.from:e.to] {
		t.steps += locked.remove(old.first, l.number)
	}
	for _, piece := range e.pieces[:e.n] {
		t.steps += locked.add(piece, l.number, l)
	}
	l.ranges = e.apply(l.ranges)
	if len(l.ranges) == 0 {
		l.ranges = nil
	}
	t.useRanges(l.open.client, more)
}

func (t *locks) useRanges(c *Client, n int) {
	if n == 0 {
		return
	}
	c.ranges += n
	t.ranges += n
	t.sessions.use(c, usage{locks: n})
}

// releaseAll is the task that removes what a client held that is gone.
func (t *locks) releaseAll(c *Client) (more bool) {
	for began := t.steps; c.opens != nil; {
		if t.steps-began >= stepWork {
			return true
		}
		t.removeOpen(c.opens) // with those that wait
	}
	return false
}

// releaseVolume is the task that removes what clients hold of a volume that has ended.
func (t *locks) releaseVolume(volume uint64) (more bool) {
	for began := t.steps; t.opens.volumes[volume] != nil; {
		if t.steps-began >= stepWork {
			return true
		}
		t.removeOpen(t.opens.volumes[volume])
	}
	return false
}

// removeOpen removes an open. Its locks are void at once.
func (t *locks) removeOpen(o *openState) {
	c, f := o.client, o.file
	t.opens.logClosed(o)
	t.log.notCopied(o)
	o.gone = true
	if len(c.waits) > 0 {
		t.dropWaitersOf(c, o)
	}
	t.opens.setShare(o, 0, 0)
	t.opens.releaseDescriptors(o)
	f.unlink(o)
	t.opens.unlinkOfVolume(o)
	delete(t.opens.byNumber, o.number)
	delete(t.opens.byOwner, openKey{c, f, o.owner})
	if o.prevOfClient == nil {
		c.opens = o.nextOfClient
	} else {
		o.prevOfClient.nextOfClient = o.nextOfClient
	}
	if o.nextOfClient != nil {
		o.nextOfClient.prevOfClient = o.prevOfClient
	}
	t.sessions.use(c, usage{opens: -1, ownerBytes: -len(o.owner)})
	t.steps++
	if t.releaseLocks(o) {
		t.goOn(func() bool { return t.releaseLocks(o) })
	}
}

// releaseLocks is the task that releases the locks of an open that is void.
func (t *locks) releaseLocks(o *openState) (more bool) {
	for began := t.steps; len(o.locks) > 0; t.steps++ {
		if t.steps-began >= stepWork {
			return true
		}
		l := o.locks[len(o.locks)-1]
		n := len(l.ranges)
		if n == 0 {
			t.removeLockOwner(l)
			continue
		}
		t.steps += o.file.locked.remove(l.ranges[n-1].first, l.number)
		l.ranges = l.ranges[:n-1]
		t.useRanges(o.client, -1)
	}
	t.opens.dropFile(o.file)
	t.wake(o.file)
	return false
}

// logRange logs that a LOCK, or a LOCKU, has changed what l has.
func (t *locks) logRange(l *lockOwner, r lockRange, isLock bool) {
	if t.log.out != nil {
		t.log.note(l.gen, func(b []byte) []byte { return appendLock(b, l, r, isLock) })
	}
}

func (t *locks) logFreed(l *lockOwner) {
	if t.log.out != nil {
		t.log.note(l.gen, (&record{Freed: l.number}).append)
	}
}
