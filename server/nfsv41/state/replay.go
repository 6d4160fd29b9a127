package state

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// Replay reads a log, and has a State be what the log's writer was. Every record is checked against those before it: each
// beginning of a log is something that there was, or a part of that.
type Replay struct {
	s        *State // nobody else has it yet
	callback func(json.RawMessage) (any, error)
	own      func(volume uint64, file []byte) []byte
	whole    *wholeRecord // nil: not all is there yet
	// waits has the order of those that wait. State gets them in the end, so that nobody is told anything before.
	waits   map[replayedWait]int
	waited  int
	notices []LockFree
}

// replayedWait is a waiterKey with the number of the open, which may be gone.
type replayedWait struct {
	open  uint64
	owner string
	lockRange
}

// errDamaged is that a log contradicts itself.
var errDamaged = errors.New("it contradicts itself")

// NewReplay returns the Replay of an empty log. callback decodes what CreateSession was given, and own returns the
// FileID that a file is known by now.
func NewReplay(cfg Config, callback func(json.RawMessage) (any, error), own func(volume uint64, file []byte) []byte) *Replay {
	return &Replay{s: New(cfg), callback: callback, own: own, waits: map[replayedWait]int{}}
}

// Apply does what the records of a frame say. After an error the Replay is of no use.
func (p *Replay) Apply(records []byte) error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	d := json.NewDecoder(bytes.NewReader(records))
	for {
		var r record
		err := d.Decode(&r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = p.apply(&r)
		}
		if err != nil {
			return err
		}
	}
}

// +checklocks:p.s.mu
func (p *Replay) apply(r *record) error {
	s := p.s
	switch {
	case r.Whole != nil:
		p.whole = r.Whole
		s.cfg.Boot, s.opens.next = r.Whole.Boot, max(s.opens.next, r.Whole.Next)
	case r.Client != nil:
		return p.client(r.Client)
	case r.Gone != 0:
		if c := s.sessions.clients[r.Gone]; c != nil {
			s.dropLocked(c)
			s.finishLocked()
		}
	case r.Session != nil:
		return p.session(r.Session)
	case r.Open != nil:
		return p.open(r.Open)
	case r.Answered != 0:
		if o := s.opens.byNumber[r.Answered]; o != nil {
			o.unanswered = 0
		}
	case r.Closed != 0:
		if o := s.opens.byNumber[r.Closed]; o != nil {
			s.locks.removeOpen(o)
			s.finishLocked()
		}
	case r.Locks != nil:
		return p.locks(r.Locks)
	case r.Lock != nil:
		return p.lock(r.Lock)
	case r.Freed != 0:
		return p.freed(r.Freed)
	case r.Wait != nil:
		p.wait(r.Wait)
	case r.WaitEnds != nil:
		delete(p.waits, waitOf(r.WaitEnds))
	case r.Notice != nil:
		return p.notice(r.Notice)
	default:
		return p.grace(r)
	}
	return nil
}

// +checklocks:p.s.mu
func (p *Replay) grace(r *record) error {
	s := p.s
	g := &s.grace
	switch {
	case r.Grace != nil:
		g.start(min(max(0, r.Grace.Left), graceLeases*LongestLease))
	case r.Awaited != nil && g.active:
		owner := string(r.Awaited.Owner)
		g.forget(owner)
		w := g.await(owner)
		for _, id := range r.Awaited.Entries {
			// The lease is in the client tracking (complete). If that is damaged, it may be any.
			w.entries = append(w.entries, TrackedClient{ClientID: id, Owner: owner, Lease: LongestLease})
		}
		if r.Awaited.Done {
			g.reclaimed(owner)
		}
	case r.Reclaimed != nil:
		g.reclaimed(string(r.Reclaimed))
	case r.Forgotten != nil:
		g.forget(string(r.Forgotten))
	case r.GraceOver:
		g.over()
	default:
		return fmt.Errorf("a record that says nothing: %w", errDamaged)
	}
	s.graced.Store(g.active)
	return nil
}

// +checklocks:p.s.mu
func (p *Replay) client(r *clientRecord) error {
	s, owner := p.s, string(r.Owner)
	c, rec := s.sessions.clients[r.ID], s.sessions.owners[owner]
	if rec == nil {
		rec = &ownerRecord{}
	}
	if c == nil {
		entry := &rec.unconfirmed
		if r.Confirmed {
			entry = &rec.confirmed
		}
		if *entry != nil || r.ID == 0 || r.Minor == 0 || r.Lease <= 0 {
			return fmt.Errorf("client %x: %w", r.ID, errDamaged)
		}
		c = &Client{
			id: r.ID, owner: owner, verifier: r.Verifier, principal: r.Principal, minor: r.Minor, since: r.Since,
			came: r.Address, address: r.Address, confirmed: r.Confirmed, seen: s.cfg.Now(), returning: r.Confirmed,
			lease: max(s.cfg.Lease, min(r.Lease, LongestLease)),
		}
		*entry = c
		s.sessions.owners[owner] = rec
		s.sessions.addClient(c, s.sessions.addressOf(c.address))
	}
	if c.owner != owner || c.confirmed != r.Confirmed || len(r.Earlier) > maxEarlier || c.opens != nil && !r.Recorded {
		return fmt.Errorf("client %x: %w", r.ID, errDamaged)
	}
	c.address, c.recorded, c.complete = r.Address, r.Recorded, r.Complete
	c.createSeq, c.uncertain = r.CreateSeq, r.Uncertain
	if c.created = nil; r.Created != nil {
		c.created = &createReply{result: r.Created.Result, err: r.Created.Err}
	}
	if c.confirmed {
		rec.earlier = nil
		for _, e := range r.Earlier {
			rec.earlier = append(rec.earlier, formerVerifier{e.Verifier, e.Address})
		}
	}
	return nil
}

// +checklocks:p.s.mu
func (p *Replay) session(r *sessionRecord) error {
	s := p.s
	c := s.sessions.clients[r.Client]
	if c == nil || !c.confirmed || s.sessions.byID[r.ID] != nil || len(r.Slots) == 0 {
		return fmt.Errorf("a session of client %x: %w", r.Client, errDamaged)
	}
	ses := &session{state: s, id: r.ID, client: c, fore: r.Fore, back: r.Back, backChannel: r.BackChannel, slots: make([]Slot, len(r.Slots))}
	if r.Callback != nil {
		var err error
		if ses.callback, err = p.callback(r.Callback); err != nil {
			return err
		}
	}
	for i, t := range r.Slots {
		if len(t.Reply) > int(ses.fore.MaxResponseCached) {
			return fmt.Errorf("a reply to client %x: %w", r.Client, errDamaged)
		}
		ses.slots[i] = Slot{session: ses, seq: t.Seq, digest: t.Digest, cached: t.Cached, reply: t.Reply}
	}
	s.sessions.keepSession(ses)
	return nil
}

// fileKey returns how a file is known here.
func (p *Replay) fileKey(volume uint64, file []byte) (key FileKey, err error) {
	if len(file) > len(key.ID) {
		return key, fmt.Errorf("a file: %w", errDamaged)
	}
	if p.own != nil {
		file = p.own(volume, file)
	}
	key.Volume, key.Len = volume, uint8(copy(key.ID[:], file))
	return key, nil
}

// +checklocks:p.s.mu
func (p *Replay) open(r *openRecord) error {
	s := p.s
	key, err := p.fileKey(r.Volume, r.File)
	if err != nil {
		return err
	}
	damaged := fmt.Errorf("an open of client %x: %w", r.Client, errDamaged)
	c, f, o := s.sessions.clients[r.Client], s.opens.files[key], s.opens.byNumber[r.Number]
	switch {
	case c == nil, !c.confirmed, !c.recorded:
		return damaged
	case o != nil && (o.client != c || o.file != f || o.owner != string(r.Owner)):
		return damaged
	case o != nil:
		s.opens.setShare(o, 0, 0)
	case isLock(r.Number), r.Number == 0, f != nil && s.opens.byOwner[openKey{c, f, string(r.Owner)}] != nil:
		return damaged
	default:
		o = s.opens.addOpen(c, r.Number, &OpenArgs{Owner: r.Owner, File: key})
		s.opens.next = max(s.opens.next, r.Number)
	}
	if r.Seqid == 0 || !validShare(r.Access, r.Deny) || !isUnion(r.Combos, r.Access, r.Deny) || r.Access&o.file.counts.deny() != 0 || r.Deny&o.file.counts.access() != 0 {
		return damaged
	}
	s.opens.setShare(o, r.Access, r.Deny)
	o.combos, o.seqid, o.since, o.unanswered, o.uncertain = r.Combos, r.Seqid, r.Since, r.Unanswered, r.Uncertain
	return nil
}

// lockOwner returns a lock owner of an open, which may be new.
//
// +checklocks:p.s.mu
func (p *Replay) lockOwner(open, number uint64, owner []byte, seqid uint32) (*lockOwner, error) {
	s := p.s
	o, l := s.opens.byNumber[open], s.locks.byNumber[number]
	var known *lockOwner
	if o != nil && l == nil {
		known, _ = s.locks.throughOpen(o, string(owner))
	}
	switch {
	case o == nil, !isLock(number), seqid == 0, l != nil && (l.open != o || l.owner != string(owner)):
		return nil, fmt.Errorf("a lock: %w", errDamaged)
	case l != nil:
	case known != nil:
		return nil, fmt.Errorf("a lock: %w", errDamaged)
	default:
		l = s.locks.addLockOwner(o, number, string(owner))
		s.opens.next = max(s.opens.next, number&^1)
	}
	l.seqid = seqid
	return l, nil
}

// +checklocks:p.s.mu
func (p *Replay) locks(r *locksRecord) error {
	s := p.s
	l, err := p.lockOwner(r.Open, r.Number, r.Owner, r.Seqid)
	if err != nil {
		return err
	}
	l.uncertain = r.Uncertain
	for _, of := range r.Ranges {
		r := lockRange{of.First, of.Last, of.Write}
		if !r.comesAfter(l.ranges) || p.excluded(l, r) {
			return fmt.Errorf("a lock: %w", errDamaged)
		}
		l.open.file.locked.add(r, l.number, l)
		l.ranges = append(l.ranges, r)
	}
	s.locks.useRanges(l.open.client, len(r.Ranges))
	return nil
}

// +checklocks:p.s.mu
func (p *Replay) lock(r *lockRecord) error {
	l, err := p.lockOwner(r.Open, r.Number, r.Owner, r.Seqid)
	if err != nil {
		return err
	}
	change, of := setRange, r.Set
	if of == nil {
		change, of = clearRange, r.Clear
	}
	if of == nil || of.First > of.Last {
		return fmt.Errorf("a lock: %w", errDamaged)
	}
	set := lockRange{of.First, of.Last, of.Write}
	if r.Set != nil && p.excluded(l, set) {
		return fmt.Errorf("a lock: %w", errDamaged)
	}
	p.s.locks.edit(l, change(l.ranges, set))
	return nil
}

// excluded reports whether another owner has locked some of a range. What is unknown is the owner's own: its locks by
// other opens, which may be any number, do not exclude it.
//
// +checklocks:p.s.mu
func (p *Replay) excluded(l *lockOwner, r lockRange) bool {
	return p.s.locks.conflict(l.open.file, l.open.client, l.owner, r).holder != nil
}

// +checklocks:p.s.mu
func (p *Replay) freed(number uint64) error {
	l := p.s.locks.byNumber[number]
	if l == nil {
		return nil
	}
	if len(l.ranges) > 0 {
		return fmt.Errorf("a lock: %w", errDamaged)
	}
	p.s.locks.removeLockOwner(l)
	return nil
}

func waitOf(r *waitRecord) replayedWait {
	return replayedWait{r.Open, string(r.Owner), lockRange{r.Range.First, r.Range.Last, r.Range.Write}}
}

func (p *Replay) wait(r *waitRecord) {
	if w := waitOf(r); p.waits[w] == 0 {
		p.waited++
		p.waits[w] = p.waited
	}
}

func (p *Replay) notice(r *noticeRecord) error {
	key, err := p.fileKey(r.Volume, r.File)
	p.notices = append(p.notices, LockFree{ClientID: r.Client, File: key, Owner: string(r.Owner)})
	return err
}

// Left reports whether all is there that a process had which was meant to end.
func (p *Replay) Left() bool { return p.whole != nil && p.whole.Left }

// Notices are what clients could not be told.
func (p *Replay) Notices() []LockFree { return p.notices }

// State returns what the log's writer was, and the Replay is of no use any more. Leases begin anew (returnLeases). had is the client
// tracking on the disk, which has of those who are awaited more than the log. follow
// makes the client tracking on the disk what it must be: it is another one if the writer died when it had changed the client tracking, but
// not yet the log, or if the client tracking was damaged. reopen opens a file. After an error no file was opened, and unless it is that
// of follow, the client tracking is as it was.
func (p *Replay) State(had []TrackedClient, follow func([]TrackedClient) error, reopen func(FileKey, Access) Descriptor) (*State, error) {
	s := p.s
	s.mu.Lock()
	defer s.unlock()
	if p.whole == nil {
		return nil, errors.New("it is not whole")
	}
	if err := p.checkLimits(); err != nil {
		return nil, err
	}
	if err := p.addWaiters(); err != nil {
		return nil, err
	}
	s.grace.complete(had)
	if err := follow(s.allTrackedLocked()); err != nil {
		return nil, err
	}
	for _, c := range s.sessions.list {
		p.inherit(c, reopen)
	}
	return s, nil
}

// +checklocks:p.s.mu
func (p *Replay) checkLimits() error {
	s := p.s
	l := &s.cfg.Limits
	for _, c := range s.sessions.list {
		if u := &c.usage; u.opens > l.Opens || u.locks > l.Locks || u.ownerBytes > l.OwnerBytes || len(c.sessions) > l.Sessions {
			return fmt.Errorf("client %x has more than it may have", c.id)
		}
	}
	if s.sessions.replies > max(l.ReplyBytes, s.sessions.leastOfAll()) {
		return errors.New("clients may have more replies kept than there is room for")
	}
	return nil
}

// +checklocks:p.s.mu
func (p *Replay) addWaiters() error {
	for _, wait := range slices.SortedFunc(maps.Keys(p.waits), func(a, b replayedWait) int { return cmp.Compare(p.waits[a], p.waits[b]) }) {
		o := p.s.opens.byNumber[wait.open]
		switch {
		case wait.first > wait.last:
			return fmt.Errorf("a lock that is waited for: %w", errDamaged)
		case o == nil: // its client is gone
			continue
		}
		if w := p.s.locks.addWaiter(o, wait.owner, wait.lockRange); w != nil {
			w.asked = w.asked.Add(-freshFor - 1) // it may have given up, see deadlocked
		}
	}
	return nil
}

// allTrackedLocked returns what the client tracking on the disk must have.
//
// +checklocks:s.mu
func (s *State) allTrackedLocked() (list []TrackedClient) {
	for _, c := range s.sessions.list {
		if c.recorded {
			list = append(list, c.tracked())
		}
	}
	for _, w := range s.grace.owners {
		list = append(list, w.entries...)
	}
	return list
}

// inherit has a client go on with what it has. Of what was under way when the writer died, nobody knows whether the client
// was told.
//
// +checklocks:p.s.mu
func (p *Replay) inherit(c *Client, reopen func(FileKey, Access) Descriptor) {
	s, died := p.s, !p.whole.Left
	if c.uncertain = c.uncertain || died; !c.uncertain {
		c.settles = s.cfg.Now().Add(settleFor) // it has a session already
	}
	for o := c.opens; o != nil; o = o.nextOfClient {
		if o.uncertain = o.uncertain || died; !o.uncertain {
			o.unanswered = 0
		}
		if o.repeatable = o.unanswered; o.repeatable != 0 {
			c.unsettled = append(c.unsettled, o)
		}
		for _, l := range o.locks {
			l.uncertain = l.uncertain || died
		}
		s.opens.keepDescriptor(o, o.access, reopen(o.file.key, o.access))
	}
}
