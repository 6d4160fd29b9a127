package state

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Saved is a State for the next process, which goes on with it: clients notice nothing but
// that their connections break. It is all but what Restore finds out again, and encodes as
// JSON.
type Saved struct {
	Boot    uint32        `json:"boot"`
	Next    uint64        `json:"next"` // number of the next stateid
	Grace   *SavedGrace   `json:"grace,omitempty"`
	Clients []SavedClient `json:"clients"`
	Waits   []SavedWait   `json:"waits,omitempty"` // of each file in their order
}

// SavedGrace is a grace period that has not ended.
type SavedGrace struct {
	Left   time.Duration     `json:"left"`
	Owners []SavedGraceOwner `json:"owners"`
}

// SavedGraceOwner is one who may reclaim, or has.
type SavedGraceOwner struct {
	Owner   []byte   `json:"owner"`
	Entries []uint64 `json:"entries"` // client IDs on the roster
	Done    bool     `json:"done"`
}

// SavedClient is a Client, with its sessions and opens.
type SavedClient struct {
	ID        uint64         `json:"id"`
	Owner     []byte         `json:"owner"`
	Verifier  [8]byte        `json:"verifier"`
	Principal Principal      `json:"principal"`
	Since     time.Time      `json:"since"`
	Address   string         `json:"address"`
	Confirmed bool           `json:"confirmed"`
	Recorded  bool           `json:"recorded"`
	Complete  bool           `json:"complete"`
	CreateSeq uint32         `json:"createSeq"`
	Uncertain bool           `json:"uncertain,omitempty"` // whether it has the reply to its last CREATE_SESSION
	Created   *SavedCreated  `json:"created,omitempty"`
	Earlier   []SavedEarlier `json:"earlier,omitempty"` // of the owner's confirmed record
	Sessions  []SavedSession `json:"sessions,omitempty"`
	Opens     []SavedOpen    `json:"opens,omitempty"`
}

// SavedCreated is the reply to a client's last CREATE_SESSION.
type SavedCreated struct {
	Result CreateSessionResult `json:"result"`
	Err    Error               `json:"err"`
}

// SavedEarlier is a verifier of an incarnation that is gone.
type SavedEarlier struct {
	Verifier [8]byte `json:"verifier"`
	Address  string  `json:"address"`
}

// SavedSession is a session, without its connections.
type SavedSession struct {
	ID          SessionID       `json:"id"`
	Fore        Channel         `json:"fore"`
	Back        Channel         `json:"back"`
	BackChannel bool            `json:"backChannel"`
	Callback    json.RawMessage `json:"callback,omitempty"`
	Slots       []SavedSlot     `json:"slots"`
}

// SavedSlot is a slot. One whose request had no reply yet has none.
type SavedSlot struct {
	Seq    uint32 `json:"seq"`
	Digest uint64 `json:"digest,omitempty"`
	Cached bool   `json:"cached,omitempty"`
	Reply  []byte `json:"reply,omitempty"`
}

// SavedOpen is an open, with its locks.
type SavedOpen struct {
	Number uint64      `json:"number"`
	Volume uint64      `json:"volume"`
	File   []byte      `json:"file"`
	Owner  []byte      `json:"owner"`
	Access Access      `json:"access"`
	Deny   Access      `json:"deny,omitempty"`
	Combos uint16      `json:"combos"`
	Seqid  uint32      `json:"seqid"`
	Since  time.Time   `json:"since"`
	Locks  []SavedLock `json:"locks,omitempty"`
	// Uncertain is set if the client may not know the seqid. Unanswered then has what the last
	// OPEN was for, as a bit of Combos, if its reply may be lost.
	Uncertain  bool   `json:"uncertain,omitempty"`
	Unanswered uint16 `json:"unanswered,omitempty"`
}

// SavedLock is what a lock owner has locked.
type SavedLock struct {
	Number uint64       `json:"number"`
	Owner  []byte       `json:"owner"`
	Seqid  uint32       `json:"seqid"`
	Ranges []SavedRange `json:"ranges,omitempty"`
	// Uncertain is set if the client may not know the seqid.
	Uncertain bool `json:"uncertain,omitempty"`
}

// SavedRange is a range of bytes with its last.
type SavedRange struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	Write bool   `json:"write"`
}

// SavedWait is a LOCK that waits.
type SavedWait struct {
	Open  uint64     `json:"open"` // number
	Owner []byte     `json:"owner"`
	Range SavedRange `json:"range"`
}

// Save returns all there is, when no call is under way any more. callback encodes what
// CreateSession was given. Nothing may be called afterwards but Stop.
func (s *State) Save(callback func(any) (json.RawMessage, error)) (*Saved, error) {
	s.mu.Lock()
	defer s.unlock()
	saved := s.saveAll()
	for _, c := range s.clients {
		if !c.confirmed {
			saved.Clients = append(saved.Clients, s.saveClient(c))
		}
	}
	for i := range saved.Clients {
		to := &saved.Clients[i]
		if err := s.clients[to.ID].saveSessions(to, callback); err != nil {
			return nil, err
		}
		for j := range to.Opens {
			// The replies of this process are in the slots.
			to.Opens[j].Unanswered = s.opens[to.Opens[j].Number].repeatable
		}
	}
	saved.sortClients()
	return saved, nil
}

// saveAll returns all but sessions and clients that are not confirmed.
func (s *State) saveAll() *Saved {
	saved := &Saved{Boot: s.cfg.Boot, Next: s.next, Grace: s.grace.save(s.cfg.Now())}
	for _, c := range s.clients {
		if !c.confirmed {
			continue
		}
		client := s.saveClient(c)
		for o := c.opens; o != nil; o = o.nextOfClient {
			client.Opens = append(client.Opens, o.saveAll())
		}
		saved.Clients = append(saved.Clients, client)
	}
	saved.sortClients()
	for _, f := range s.waiting {
		for _, w := range f.waits.list {
			if !w.open.void() {
				saved.Waits = append(saved.Waits, w.save())
			}
		}
	}
	return saved
}

func (d *Saved) sortClients() {
	slices.SortFunc(d.Clients, func(a, b SavedClient) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	})
}

func (g *grace) save(now time.Time) *SavedGrace {
	if !g.active {
		return nil
	}
	saved := &SavedGrace{Left: g.until.Sub(now)}
	for owner, w := range g.owners {
		saved.Owners = append(saved.Owners, w.save(owner))
	}
	return saved
}

func (w *awaited) save(owner string) SavedGraceOwner {
	saved := SavedGraceOwner{Owner: []byte(owner), Done: w.done}
	for _, e := range w.entries {
		saved.Entries = append(saved.Entries, e.ClientID)
	}
	return saved
}

// saveClient returns a client without its sessions and opens.
func (s *State) saveClient(c *Client) SavedClient {
	saved := SavedClient{
		ID: c.id, Owner: []byte(c.owner), Verifier: c.verifier, Principal: c.principal, Since: c.since, Address: c.address,
		Confirmed: c.confirmed, Recorded: c.recorded, Complete: c.complete, CreateSeq: c.createSeq, Uncertain: c.uncertain,
	}
	if c.confirmed {
		for _, f := range s.owners[c.owner].earlier {
			saved.Earlier = append(saved.Earlier, SavedEarlier{f.verifier, f.address})
		}
	}
	return saved
}

func (c *Client) saveSessions(saved *SavedClient, callback func(any) (json.RawMessage, error)) error {
	if c.created != nil {
		saved.Created = &SavedCreated{c.created.result, c.created.err}
	}
	for _, ses := range c.sessions {
		to := SavedSession{ID: ses.id, Fore: ses.fore, Back: ses.back, BackChannel: ses.backChannel}
		if ses.callback != nil {
			var err error
			if to.Callback, err = callback(ses.callback); err != nil {
				return err
			}
		}
		for i := range ses.slots {
			t := &ses.slots[i]
			slot := SavedSlot{Seq: t.seq, Digest: t.digest}
			if t.cached {
				slot.Cached, slot.Reply = true, t.reply
			}
			to.Slots = append(to.Slots, slot)
		}
		saved.Sessions = append(saved.Sessions, to)
	}
	return nil
}

// save returns an open without its locks.
func (o *open) save() SavedOpen {
	return SavedOpen{
		Number: o.number, Volume: o.file.key.Volume, File: o.file.key.ID[:o.file.key.Len], Owner: []byte(o.owner),
		Access: o.access, Deny: o.deny, Combos: o.combos, Seqid: o.seqid, Since: o.since,
		Uncertain: o.uncertain, Unanswered: o.unanswered,
	}
}

func (o *open) saveAll() SavedOpen {
	saved := o.save()
	for _, l := range o.locks {
		saved.Locks = append(saved.Locks, l.save())
	}
	return saved
}

func (l *lockOwner) save() SavedLock {
	saved := SavedLock{Number: l.number, Owner: []byte(l.owner), Seqid: l.seqid, Uncertain: l.uncertain}
	for _, r := range l.ranges {
		saved.Ranges = append(saved.Ranges, r.save())
	}
	return saved
}

func (r lockRange) save() SavedRange { return SavedRange{r.first, r.last, r.write} }

func (w *waiter) save() SavedWait {
	return SavedWait{w.open.number, []byte(w.owner), w.lockRange.save()}
}

// Roster returns the entries that the roster on the disk must have: with others, somebody
// has granted something since, and Saved is void.
func (d *Saved) Roster() []RosterEntry {
	entries := map[uint64]string{}
	for i := range d.Clients {
		if c := &d.Clients[i]; c.Recorded {
			entries[c.ID] = string(c.Owner)
		}
	}
	if d.Grace != nil {
		for _, o := range d.Grace.Owners {
			for _, id := range o.Entries {
				entries[id] = string(o.Owner)
			}
		}
	}
	var list []RosterEntry
	for id, owner := range entries {
		list = append(list, RosterEntry{id, owner})
	}
	return list
}

// errDamaged is that what was saved contradicts itself.
var errDamaged = errors.New("it contradicts itself")

// Restore returns a State with what another had. Leases begin anew (returnLeases). callback decodes what
// CreateSession was given, and reopen opens a file again. An error means that saved does not
// fit together, and that nothing was done with it but that files are open.
func Restore(cfg Config, saved *Saved, callback func(json.RawMessage) (any, error), reopen func(FileKey, Access) Held) (*State, error) {
	cfg.Boot = saved.Boot
	s := New(cfg)
	s.mu.Lock()
	defer s.unlock()
	s.next = saved.Next
	if err := s.restore(saved, callback, reopen); err != nil {
		for _, o := range s.opens {
			for _, h := range o.held {
				s.release(h)
			}
		}
		return nil, err
	}
	return s, nil
}

func (s *State) restore(saved *Saved, callback func(json.RawMessage) (any, error), reopen func(FileKey, Access) Held) error {
	s.restoreGrace(saved.Grace)
	for i := range saved.Clients {
		if err := s.restoreClient(&saved.Clients[i], callback, reopen); err != nil {
			return fmt.Errorf("client %x: %w", saved.Clients[i].ID, err)
		}
	}
	for _, w := range saved.Waits {
		o := s.opens[w.Open]
		if o == nil || w.Range.First > w.Range.Last {
			return fmt.Errorf("a lock that is waited for: %w", errDamaged)
		}
		if w := s.addWaiter(o, string(w.Owner), lockRange{w.Range.First, w.Range.Last, w.Range.Write}); w != nil {
			w.asked = w.asked.Add(-freshFor - 1) // it may have given up, see deadlocked
		}
	}
	return nil
}

func (s *State) restoreGrace(saved *SavedGrace) {
	if saved == nil {
		return
	}
	s.grace = grace{active: true, until: s.cfg.Now().Add(min(max(0, saved.Left), s.cfg.Lease)), owners: map[string]*awaited{}}
	for _, o := range saved.Owners {
		w := &awaited{done: o.Done}
		for _, id := range o.Entries {
			w.entries = append(w.entries, RosterEntry{id, string(o.Owner)})
		}
		s.grace.owners[string(o.Owner)] = w
	}
	for w := range maps.Values(s.grace.owners) {
		if !w.done {
			s.grace.missing++
		}
	}
	s.graced.Store(true)
}

func (s *State) restoreClient(saved *SavedClient, callback func(json.RawMessage) (any, error), reopen func(FileKey, Access) Held) error {
	c := &Client{
		id: saved.ID, owner: string(saved.Owner), verifier: saved.Verifier, principal: saved.Principal, since: saved.Since,
		address: saved.Address, confirmed: saved.Confirmed, seen: s.cfg.Now(), returning: saved.Confirmed,
		createSeq: saved.CreateSeq, uncertain: saved.Uncertain, recorded: saved.Recorded, complete: saved.Complete,
	}
	if !c.uncertain {
		c.settles = s.cfg.Now().Add(settleFor) // it has a session already
	}
	if saved.Created != nil {
		c.created = &createReply{result: saved.Created.Result, err: saved.Created.Err}
	}
	rec := s.owners[c.owner]
	if rec == nil {
		rec = &ownerRecord{}
		s.owners[c.owner] = rec
	}
	place := &rec.unconfirmed
	if c.confirmed {
		place = &rec.confirmed
		for _, e := range saved.Earlier {
			rec.earlier = append(rec.earlier, formerVerifier{e.Verifier, e.Address})
		}
	}
	if *place != nil || s.clients[c.id] != nil || c.id == 0 || !c.confirmed && len(saved.Opens)+len(saved.Sessions) > 0 || !c.recorded && len(saved.Opens) > 0 {
		return errDamaged
	}
	*place = c
	s.addClient(c, s.addressOf(c.address))
	for i := range saved.Sessions {
		if err := s.restoreSession(c, &saved.Sessions[i], callback); err != nil {
			return err
		}
	}
	for i := len(saved.Opens) - 1; i >= 0; i-- { // each is put before the others
		if err := s.restoreOpen(c, &saved.Opens[i], reopen); err != nil {
			return err
		}
	}
	if l := &s.cfg.Limits; c.usage.opens > l.Opens || c.usage.locks > l.Locks || c.usage.ownerBytes > l.OwnerBytes || len(c.sessions) > l.Sessions {
		return errors.New("it has more than it may have")
	}
	return nil
}

func (s *State) restoreSession(c *Client, saved *SavedSession, callback func(json.RawMessage) (any, error)) error {
	if s.sessions[saved.ID] != nil || len(saved.Slots) == 0 {
		return errDamaged
	}
	ses := &session{
		state: s, id: saved.ID, client: c, fore: saved.Fore, back: saved.Back, backChannel: saved.BackChannel,
		slots: make([]Slot, len(saved.Slots)),
	}
	if saved.Callback != nil {
		var err error
		if ses.callback, err = callback(saved.Callback); err != nil {
			return err
		}
	}
	for i, t := range saved.Slots {
		if len(t.Reply) > int(ses.fore.MaxResponseCached) {
			return errDamaged
		}
		ses.slots[i] = Slot{session: ses, seq: t.Seq, digest: t.Digest, cached: t.Cached, reply: t.Reply}
	}
	s.keepSession(ses)
	return nil
}

func (s *State) restoreOpen(c *Client, saved *SavedOpen, reopen func(FileKey, Access) Held) error {
	key := FileKey{Volume: saved.Volume, Len: uint8(len(saved.File))}
	if len(saved.File) > len(key.ID) {
		return errDamaged
	}
	copy(key.ID[:], saved.File)
	f := s.files[key]
	switch {
	case isLock(saved.Number) || saved.Number > s.next || s.opens[saved.Number] != nil || saved.Seqid == 0,
		!validShare(saved.Access, saved.Deny), !isUnion(saved.Combos, saved.Access, saved.Deny),
		f != nil && (saved.Access&f.deny() != 0 || saved.Deny&f.access() != 0 || s.byOwner[openKey{c, f, string(saved.Owner)}] != nil):
		return errDamaged
	}
	o := s.addOpen(c, saved.Number, &OpenArgs{Owner: saved.Owner, File: key})
	s.setShare(o, saved.Access, saved.Deny)
	o.combos, o.seqid, o.since = saved.Combos, saved.Seqid, saved.Since
	if o.uncertain = saved.Uncertain; o.uncertain {
		o.unanswered, o.repeatable = saved.Unanswered, saved.Unanswered
		if o.repeatable != 0 {
			c.unsettled = append(c.unsettled, o)
		}
	}
	s.hold(o, saved.Access, reopen(key, saved.Access))
	for i := range saved.Locks {
		if err := s.restoreLock(o, &saved.Locks[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *State) restoreLock(o *open, saved *SavedLock) error {
	if !isLock(saved.Number) || saved.Number > s.next|1 || s.locks[saved.Number] != nil || saved.Seqid == 0 {
		return errDamaged
	}
	l := s.addLockOwner(o, saved.Number, string(saved.Owner))
	l.seqid, l.uncertain = saved.Seqid, saved.Uncertain
	for _, r := range saved.Ranges {
		r := lockRange{r.First, r.Last, r.Write}
		if !r.comesAfter(l.ranges) {
			return errDamaged
		}
		// What is unknown is the owner's own: its locks by other opens, which may be any number, do not make it damaged.
		if in := s.conflict(o.file, o.client, l.owner, r); in.holder != nil {
			return errDamaged
		}
		o.file.locked.add(r, l.number, l)
		l.ranges = append(l.ranges, r)
	}
	s.useRanges(o.client, len(l.ranges))
	return nil
}
