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

// Replay reads a log.
type Replay struct {
	whole   bool
	boot    uint32
	next    uint64
	grace   *SavedGrace
	owners  map[string]*SavedGraceOwner // of grace
	clients map[uint64]*replayedClient
	opens   map[uint64]*replayedOpen
	locks   map[uint64]*replayedLock
	waits   map[replayedWait]int // their order
	waited  int
}

type replayedClient struct {
	SavedClient
	opens map[uint64]*replayedOpen
}

type replayedOpen struct {
	SavedOpen
	client *replayedClient
	locks  map[uint64]*replayedLock
}

type replayedLock struct {
	open   *replayedOpen
	number uint64
	owner  []byte
	seqid  uint32
	ranges []lockRange
}

type replayedWait struct {
	open  uint64
	owner string
	lockRange
}

// NewReplay returns the Replay of an empty log.
func NewReplay() *Replay {
	return &Replay{
		owners: map[string]*SavedGraceOwner{}, clients: map[uint64]*replayedClient{},
		opens: map[uint64]*replayedOpen{}, locks: map[uint64]*replayedLock{}, waits: map[replayedWait]int{},
	}
}

// Apply does what the records of a frame say. After an error the Replay is of no use.
func (p *Replay) Apply(records []byte) error {
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

func (p *Replay) apply(r *record) error {
	switch {
	case r.Whole != nil:
		p.whole, p.boot, p.next = true, r.Whole.Boot, max(p.next, r.Whole.Next)
	case r.Client != nil:
		p.client(r.Client)
	case r.Gone != 0:
		p.gone(r.Gone)
	case r.Open != nil:
		return p.open(r.Open)
	case r.Answered != 0:
		if o := p.opens[r.Answered]; o != nil {
			o.Unanswered = 0
		}
	case r.Closed != 0:
		p.closed(r.Closed)
	case r.Locks != nil:
		return p.allLocks(r.Locks)
	case r.Lock != nil:
		return p.lock(r.Lock)
	case r.Freed != 0:
		p.freed(r.Freed)
	case r.Wait != nil:
		if w := waitOf(r.Wait); p.waits[w] == 0 {
			p.waited++
			p.waits[w] = p.waited
		}
	case r.WaitEnds != nil:
		delete(p.waits, waitOf(r.WaitEnds))
	case r.Grace != nil:
		p.grace = r.Grace
	case r.Awaited != nil:
		p.owners[string(r.Awaited.Owner)] = r.Awaited
	case r.Reclaimed != nil:
		if o := p.owners[string(r.Reclaimed)]; o != nil {
			o.Done = true
		}
	case r.Forgotten != nil:
		delete(p.owners, string(r.Forgotten))
	case r.GraceOver:
		p.grace = nil
		clear(p.owners)
	default:
		return fmt.Errorf("a record that says nothing: %w", errDamaged)
	}
	return nil
}

func waitOf(w *SavedWait) replayedWait {
	return replayedWait{w.Open, string(w.Owner), lockRange{w.Range.First, w.Range.Last, w.Range.Write}}
}

func (p *Replay) client(saved *SavedClient) {
	c := p.clients[saved.ID]
	if c == nil {
		c = &replayedClient{opens: map[uint64]*replayedOpen{}}
		p.clients[saved.ID] = c
	}
	c.SavedClient = *saved
	c.Opens, c.Sessions, c.Created = nil, nil, nil
}

func (p *Replay) gone(id uint64) {
	if c := p.clients[id]; c != nil {
		for number := range c.opens {
			p.closed(number)
		}
		delete(p.clients, id)
	}
}

func (p *Replay) open(logged *loggedOpen) error {
	c := p.clients[logged.Client]
	o := p.opens[logged.Number]
	if c == nil || o != nil && o.client != c {
		return fmt.Errorf("an open: %w", errDamaged)
	}
	if o == nil {
		o = &replayedOpen{client: c, locks: map[uint64]*replayedLock{}}
		p.opens[logged.Number], c.opens[logged.Number] = o, o
		p.next = max(p.next, logged.Number)
	}
	o.SavedOpen = logged.SavedOpen
	o.Locks = nil
	return nil
}

func (p *Replay) allLocks(logged *loggedLocks) error {
	l, err := p.lockOf(logged.Open, logged.Number, logged.Owner, logged.Seqid)
	if err != nil {
		return err
	}
	for _, saved := range logged.Ranges {
		r := lockRange{saved.First, saved.Last, saved.Write}
		if !r.comesAfter(l.ranges) {
			return fmt.Errorf("a lock: %w", errDamaged)
		}
		l.ranges = append(l.ranges, r)
	}
	return nil
}

func (p *Replay) closed(number uint64) {
	o := p.opens[number]
	if o == nil {
		return
	}
	for lock := range o.locks {
		delete(p.locks, lock)
	}
	delete(o.client.opens, number)
	delete(p.opens, number)
}

// lockOf returns a lock owner of an open, which may be new.
func (p *Replay) lockOf(open, number uint64, owner []byte, seqid uint32) (*replayedLock, error) {
	o, l := p.opens[open], p.locks[number]
	if o == nil {
		return nil, fmt.Errorf("a lock: %w", errDamaged)
	}
	if l == nil {
		l = &replayedLock{open: o, number: number, owner: owner}
		p.locks[number], o.locks[number] = l, l
		p.next = max(p.next, number&^1)
	}
	if l.open != o || !bytes.Equal(l.owner, owner) {
		return nil, fmt.Errorf("a lock: %w", errDamaged)
	}
	l.seqid = seqid
	return l, nil
}

func (p *Replay) lock(logged *loggedLock) error {
	l, err := p.lockOf(logged.Open, logged.Number, logged.Owner, logged.Seqid)
	if err != nil {
		return err
	}
	makeChange, r := setRange, logged.Set
	if r == nil {
		makeChange, r = clearRange, logged.Clear
	}
	if r == nil || r.First > r.Last {
		return fmt.Errorf("a lock: %w", errDamaged)
	}
	change := makeChange(l.ranges, lockRange{r.First, r.Last, r.Write})
	l.ranges = change.apply(l.ranges)
	return nil
}

func (p *Replay) freed(number uint64) {
	if l := p.locks[number]; l != nil {
		delete(l.open.locks, number)
		delete(p.locks, number)
	}
}

// Saved returns what the process had that wrote the log, for Restore. What was under way when it
// died is not known.
func (p *Replay) Saved() (*Saved, error) {
	if !p.whole {
		return nil, errors.New("it is not whole")
	}
	saved := &Saved{Boot: p.boot, Next: p.next}
	if p.grace != nil {
		saved.Grace = &SavedGrace{Left: p.grace.Left}
		for _, owner := range slices.Sorted(maps.Keys(p.owners)) {
			saved.Grace.Owners = append(saved.Grace.Owners, *p.owners[owner])
		}
	}
	for _, c := range p.clients {
		client := c.SavedClient
		client.Uncertain = true
		for _, o := range c.opens {
			client.Opens = append(client.Opens, o.saved())
		}
		slices.SortFunc(client.Opens, func(a, b SavedOpen) int { return cmp.Compare(b.Number, a.Number) }) // the newest first, as Save has them
		saved.Clients = append(saved.Clients, client)
	}
	saved.sortClients()
	waits := slices.SortedFunc(maps.Keys(p.waits), func(a, b replayedWait) int { return cmp.Compare(p.waits[a], p.waits[b]) })
	for _, w := range waits {
		if p.opens[w.open] != nil {
			saved.Waits = append(saved.Waits, SavedWait{w.open, []byte(w.owner), w.save()})
		}
	}
	return saved, nil
}

func (o *replayedOpen) saved() SavedOpen {
	saved := o.SavedOpen
	saved.Uncertain = true
	for _, l := range o.locks {
		lock := SavedLock{Number: l.number, Owner: l.owner, Seqid: l.seqid, Uncertain: true}
		for _, r := range l.ranges {
			lock.Ranges = append(lock.Ranges, r.save())
		}
		saved.Locks = append(saved.Locks, lock)
	}
	slices.SortFunc(saved.Locks, func(a, b SavedLock) int { return cmp.Compare(a.Number, b.Number) })
	return saved
}

// Fit compares with the roster that the disk has after the process died. It changed the disk
// first, and the log after that: a client may be on the roster that is unrecorded in the log, and
// one that was being removed may be on it no more, and is removed here. An error means that
// somebody else has changed the roster.
func (d *Saved) Fit(roster []RosterEntry) error {
	onDisk := make(map[uint64]string, len(roster))
	for _, e := range roster {
		onDisk[e.ClientID] = e.Owner
	}
	is := func(id uint64, owner []byte) bool {
		o, ok := onDisk[id]
		return ok && o == string(owner)
	}
	known := 0
	removed := map[uint64]bool{} // opens
	d.Clients = slices.DeleteFunc(d.Clients, func(c SavedClient) bool {
		if is(c.ID, c.Owner) {
			known++
			return false
		}
		for i := range c.Opens {
			removed[c.Opens[i].Number] = true
		}
		return c.Recorded
	})
	for i := range d.Clients {
		c := &d.Clients[i]
		c.Recorded = is(c.ID, c.Owner)
	}
	d.Waits = slices.DeleteFunc(d.Waits, func(w SavedWait) bool { return removed[w.Open] })
	if d.Grace != nil {
		for i := range d.Grace.Owners {
			o := &d.Grace.Owners[i]
			o.Entries = slices.DeleteFunc(o.Entries, func(id uint64) bool { return !is(id, o.Owner) })
			known += len(o.Entries)
		}
		d.Grace.Owners = slices.DeleteFunc(d.Grace.Owners, func(o SavedGraceOwner) bool { return len(o.Entries) == 0 })
	}
	if known != len(onDisk) {
		return errors.New("another podnas has changed the list of clients on the disk since")
	}
	return nil
}
