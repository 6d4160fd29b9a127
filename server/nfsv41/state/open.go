package state

import (
	"cmp"
	"errors"
	"slices"
	"syscall"
	"time"
)

// file is what is open of one file. It is there as long as it has opens, or locks that are being
// released.
type file struct {
	key     FileKey
	opens   [4]*open // lists: those that deny something, or have no access yet, are in the first, others in that of their access
	counts  [4]int32
	lockers int                   // lock owners
	locked  intervals[*lockOwner] // what they have
	waits   *fileWaiters          // nil: nobody waits
}

// The indexes of file.counts: how many opens read, write, deny reading, deny writing.
const (
	reading = iota
	writing
	denyingRead
	denyingWrite
)

func (f *file) add(o *open, n int32) {
	f.counts[reading] += n * int32(o.access&Read)
	f.counts[writing] += n * int32(o.access&Write>>1)
	f.counts[denyingRead] += n * int32(o.deny&Read)
	f.counts[denyingWrite] += n * int32(o.deny&Write>>1)
}

func (f *file) access() (a Access) { return f.union(reading, writing) }
func (f *file) deny() (a Access)   { return f.union(denyingRead, denyingWrite) }

func (f *file) union(r, w int) (a Access) {
	if f.counts[r] > 0 {
		a |= Read
	}
	if f.counts[w] > 0 {
		a |= Write
	}
	return a
}

// openKey finds an open by its owner.
type openKey struct {
	client *Client
	file   *file
	owner  string
}

// open is what a client's open owner has open of a file, by one or several OPENs.
type open struct {
	number uint64 // of its stateid
	client *Client
	file   *file
	owner  string // of open_owner4
	held   [2]Held
	locks  []*lockOwner
	since  time.Time
	seqid  uint32
	combos uint16 // which access and deny its OPENs had: for OPEN_DOWNGRADE
	// unanswered is the combo of the last OPEN, while its reply may be lost. uncertain and
	// repeatable are for the time after this process went on with the log of one that died: the
	// client may not know the seqid, or may send again an OPEN with that combo.
	unanswered uint16
	repeatable uint16
	uncertain  bool
	gone       bool   // it is closed
	gen        uint32 // see logCopy
	access     Access // their union
	deny       Access // their union

	nextOfClient, prevOfClient *open
	nextOfFile, prevOfFile     *open
}

// void reports whether it is closed, or its client is gone. What it denies and has locked excludes nobody
// any more, though it takes some steps until all of that is removed.
func (o *open) void() bool { return o.gone || o.client.gone }

// combo is the bit of open.combos for an OPEN.
func combo(access, deny Access) uint16 { return 1 << ((access-1)<<2 | deny) }

// isUnion reports whether access and deny are what the OPENs of combos had together.
func isUnion(combos uint16, access, deny Access) bool {
	var hasAccess, hasDeny Access
	for a := Read; a <= Both; a++ {
		for d := Access(0); d <= Both; d++ {
			if combos&combo(a, d) != 0 {
				hasAccess |= a
				hasDeny |= d
			}
		}
	}
	return hasAccess == access && hasDeny == deny
}

// validShare reports whether OPEN may have these.
func validShare(access, deny Access) bool {
	return access != 0 && access <= Both && deny <= Both
}

// Open is OPEN for CLAIM_NULL, CLAIM_FH and CLAIM_PREVIOUS. An owner that has the file
// open already gets more of it, by the same stateid. isNew reports that it had not.
//
// It may call the Roster, so it can wait for the disk.
func (s *State) Open(c *Client, a OpenArgs) (id Stateid, isNew bool, e Error) {
	s.mu.Lock()
	defer s.unlock()
	for {
		o, again, e := s.tryOpen(c, &a)
		if e != OK {
			return Stateid{}, false, e
		}
		if again {
			continue
		}
		if !c.recorded {
			if e := s.record(c); e != OK {
				return Stateid{}, false, e
			}
			continue
		}
		if isNew = o == nil; isNew {
			o = s.addOpen(c, s.newNumber(0), &a)
		}
		if o.repeatable == 0 || o.repeatable != combo(a.Access, a.Deny) {
			s.upgrade(o, a.Access, a.Deny)
		}
		s.hold(o, a.Access, a.Held)
		o.repeatable, o.unanswered = 0, 0
		if a.Slot != nil {
			o.unanswered = combo(a.Access, a.Deny)
			a.Slot.opened, a.Slot.seqid = o.number, o.seqid
		}
		s.logOpen(o)
		return s.openID(o), isNew, OK
	}
}

// MayOpen returns the error of an Open, and changes nothing: for an OPEN that
// truncates.
func (s *State) MayOpen(c *Client, a OpenArgs) Error {
	s.mu.Lock()
	defer s.unlock()
	for {
		if _, again, e := s.tryOpen(c, &a); !again {
			return e
		}
	}
}

// tryOpen checks an OPEN, and returns the open that it is to be added to, if any.
// again means that mu was let go, to take the file from a silent client.
func (s *State) tryOpen(c *Client, a *OpenArgs) (o *open, again bool, e Error) {
	if !validShare(a.Access, a.Deny) || len(a.Owner) > OwnerMax {
		return nil, false, ErrInval
	}
	if e := c.usable(); e != OK {
		return nil, false, e
	}
	if e := s.mayGrant(c, a.Reclaim); e != OK {
		return nil, false, e
	}
	f := s.files[a.File]
	if f != nil {
		o = s.byOwner[openKey{c, f, string(a.Owner)}]
	}
	if again, e := s.shareConflict(f, a.Access, a.Deny); again || e != OK {
		if e == ErrShareDenied && a.Reclaim {
			e = ErrReclaimConflict
		}
		return nil, again, e
	}
	if o == nil && (!s.roomForOpen(c) || !s.roomForOwner(c, len(a.Owner))) {
		if again, e := s.makeRoomFor(c, usage{opens: 1, ownerBytes: len(a.Owner)}); again || e != OK {
			return nil, again, e
		}
		return nil, false, ErrNoSpc
	}
	return o, false, OK
}

// shareConflict compares with all opens of the file, as RFC 8881 section 9.7 does:
// those of the same owner, too. again means that a silent client lost the file, and
// mu was let go meanwhile.
//
// It looks at a bounded number of opens. That is enough, as the lists leave out most that are not in the way: of those that deny
// something, each denies the same, since they exclude each other otherwise, but for two at most.
func (s *State) shareConflict(f *file, access, deny Access) (again bool, e Error) {
	if f == nil || access&f.deny() == 0 && deny&f.access() == 0 {
		return false, OK
	}
	var silent *Client
	more, void := false, false
	for of, first := range f.opens {
		if of != denying && deny&Access(of) == 0 {
			continue
		}
		o := first
		for looked := 0; o != nil && looked < silentMax; o, looked = o.nextOfFile, looked+1 {
			s.steps++
			switch {
			case o.void():
				void = true
			case access&o.deny == 0 && deny&o.access == 0:
			case !s.leaseOver(o.client):
				return false, ErrShareDenied
			default:
				silent = o.client
			}
		}
		more = more || o != nil
	}
	switch {
	case silent == nil && !more: // all that are in the way go at this moment
		return false, OK
	case silent == nil && void:
		return false, ErrDelay
	case silent == nil:
		return false, ErrShareDenied
	}
	if e := s.dismiss(silent, ClientRevoked); e != OK {
		return false, e
	}
	return true, OK
}

// record writes a client to the roster. It lets go of mu meanwhile.
func (s *State) record(c *Client) Error {
	if s.cfg.Roster != nil {
		c.changing++
		s.unlock()
		err := s.cfg.Roster.Add(RosterEntry{ClientID: c.id, Owner: c.owner})
		s.mu.Lock()
		c.changing--
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			return ErrNoSpc
		}
		if err != nil {
			return ErrServerFault
		}
	}
	c.recorded = true
	s.logClient(c)
	return OK
}

// denying is the list in file.opens of those that deny something.
const denying = 0

func (f *file) listOf(o *open) **open {
	if o.deny != 0 {
		return &f.opens[denying]
	}
	return &f.opens[o.access]
}

func (f *file) link(o *open) {
	list := f.listOf(o)
	if o.prevOfFile, o.nextOfFile = nil, *list; *list != nil {
		(*list).prevOfFile = o
	}
	*list = o
}

func (f *file) unlink(o *open) {
	if o.prevOfFile == nil {
		*f.listOf(o) = o.nextOfFile
	} else {
		o.prevOfFile.nextOfFile = o.nextOfFile
	}
	if o.nextOfFile != nil {
		o.nextOfFile.prevOfFile = o.prevOfFile
	}
}

// dropFile forgets a file that has nothing.
func (s *State) dropFile(f *file) {
	if f.opens == [4]*open{} && f.lockers == 0 {
		delete(s.files, f.key)
	}
}

// addOpen adds an open that may do nothing yet.
func (s *State) addOpen(c *Client, number uint64, a *OpenArgs) *open {
	f := s.files[a.File]
	if f == nil {
		f = &file{key: a.File}
		s.files[a.File] = f
	}
	o := &open{
		number: number, client: c, file: f,
		owner: string(a.Owner), since: s.cfg.Now(), gen: c.gen,
	}
	s.opens[o.number] = o
	s.byOwner[openKey{c, f, o.owner}] = o
	if o.nextOfClient = c.opens; c.opens != nil {
		c.opens.prevOfClient = o
	}
	c.opens = o
	f.link(o)
	s.use(c, usage{opens: 1, ownerBytes: len(o.owner)})
	return o
}

// upgrade adds what one OPEN may do.
func (s *State) upgrade(o *open, access, deny Access) {
	s.setShare(o, o.access|access, o.deny|deny)
	o.combos |= combo(access, deny)
	o.seqid, o.uncertain = nextSeqid(o.seqid), false
}

// setShare changes what the open may do and denies.
func (s *State) setShare(o *open, access, deny Access) {
	if had, has := o.deny != 0, deny != 0; had != has {
		if has {
			s.denying.Add(1)
		} else {
			s.denying.Add(-1)
		}
	}
	o.file.add(o, -1)
	o.file.unlink(o)
	o.access, o.deny = access, deny
	o.file.link(o)
	o.file.add(o, 1)
}

// hold takes over h, for what the open had no descriptor for.
func (s *State) hold(o *open, access Access, h Held) {
	if h == nil {
		return
	}
	used := false
	for i, a := range [...]Access{Read, Write} {
		if access&a == 0 || o.held[i] != nil {
			continue
		}
		if used {
			h.Retain()
		}
		o.held[i] = h
		used = true
	}
	if !used {
		s.release(h)
	}
}

// letGo releases the descriptors for what the open may no longer do.
func (s *State) letGo(o *open) {
	for i, a := range [...]Access{Read, Write} {
		if o.access&a == 0 {
			s.release(o.held[i])
			o.held[i] = nil
		}
	}
}

func (s *State) openID(o *open) Stateid { return Stateid{Seqid: o.seqid, Other: s.other(o.number)} }

// Downgrade is OPEN_DOWNGRADE, RFC 8881 section 18.18: access and deny must be the
// union of what some of the OPENs had.
func (s *State) Downgrade(c *Client, id Stateid, f FileKey, access, deny Access) (Stateid, Error) {
	s.mu.Lock()
	defer s.unlock()
	o, e := s.findOpen(c, &id, &f)
	if e != OK {
		return Stateid{}, e
	}
	if !validShare(access, deny) {
		return Stateid{}, ErrInval
	}
	left, leftAccess, leftDeny := uint16(0), Access(0), Access(0)
	for a := Read; a <= Both; a++ {
		for d := Access(0); d <= Both; d++ {
			if o.combos&combo(a, d) != 0 && a&^access == 0 && d&^deny == 0 {
				left |= combo(a, d)
				leftAccess |= a
				leftDeny |= d
			}
		}
	}
	if leftAccess != access || leftDeny != deny {
		return Stateid{}, ErrInval
	}
	s.setShare(o, access, deny)
	o.combos = left
	o.seqid, o.uncertain = nextSeqid(o.seqid), false
	o.repeatable, o.unanswered = 0, 0
	s.letGo(o)
	s.logOpen(o)
	return s.openID(o), OK
}

// Close is CLOSE, RFC 8881 section 18.2. Locks that are left are released. The
// stateid to answer is Invalid.
func (s *State) Close(c *Client, id Stateid, f FileKey) Error {
	s.mu.Lock()
	defer s.unlock()
	o, e := s.findOpen(c, &id, &f)
	if e != OK {
		return e
	}
	s.removeOpen(o)
	return OK
}

// removeOpen removes an open. Its locks are void at once.
func (s *State) removeOpen(o *open) {
	c, f := o.client, o.file
	s.logClosed(o)
	s.notCopied(o)
	o.gone = true
	if len(c.waits) > 0 {
		s.dropWaitersOf(c, o)
	}
	s.setShare(o, 0, 0)
	s.letGo(o)
	f.unlink(o)
	delete(s.opens, o.number)
	delete(s.byOwner, openKey{c, f, o.owner})
	if o.prevOfClient == nil {
		c.opens = o.nextOfClient
	} else {
		o.prevOfClient.nextOfClient = o.nextOfClient
	}
	if o.nextOfClient != nil {
		o.nextOfClient.prevOfClient = o.prevOfClient
	}
	s.use(c, usage{opens: -1, ownerBytes: -len(o.owner)})
	s.steps++
	if s.releaseLocks(o) {
		s.goOn(func() bool { return s.releaseLocks(o) })
	}
}

// dropWaitersOf forgets those of an open; a client has at most Limits.Waiters.
func (s *State) dropWaitersOf(c *Client, o *open) {
	var of []*waiter
	for _, waits := range c.waits {
		for _, w := range waits {
			s.steps++
			if w.open == o {
				of = append(of, w)
			}
		}
	}
	slices.SortFunc(of, func(a, b *waiter) int { return cmp.Compare(a.number, b.number) })
	for _, w := range of {
		s.dropWaiter(w)
	}
}
