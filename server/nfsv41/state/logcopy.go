package state

import "encoding/json"

// A log that has become long is replaced by another that says the same. That is written in steps, between
// which clients go on, by a goroutine that waits for nothing else: the log would grow meanwhile; so each change is logged twice until then, but to the new one only if it is about
// something that the new one has. What it has not is copied later, with what has changed. So no log ever names
// what it does not have, and one that is not whole is not used.
//
// Client.gen, openState.gen, lockOwner.gen and fileWaiters.gen are the stateLog.gen of the newest log that has the thing.
// What comes new is logged at once if that is of which it is part, and comes with that otherwise.

// copyBytes is how long the frames of a log are that is copied, more or less.
const copyBytes = 64 << 10

// logCopy is how far the new log is. Of a list that may change meanwhile, it copies what is last first: what is
// removed is replaced by the last, which was copied. State.mu guards it.
type logCopy struct {
	log      *stateLog
	sessions *sessions
	opens    *opens
	locks    *locks
	grace    *grace

	records    []byte     // as stateLog.records
	awaited    []string   // owners of grace that are not copied yet
	clients    int        // so many of sessions.list are not
	open       *openState // the next one of its client, or nil
	locksOf    *openState // or nil
	lockOwners int        // so many of its lock owners are not
	files      int        // so many of locks.waiting are not
}

// newCopyLocked returns a copy that is not begun.
//
// +checklocks:s.mu
func (s *State) newCopyLocked() *logCopy {
	return &logCopy{log: &s.log, sessions: &s.sessions, opens: &s.opens, locks: &s.locks, grace: &s.grace}
}

// StartLog writes all there is to a log, and each change from now on. It is called before any client.
func (s *State) StartLog(log Log) error {
	s.mu.Lock()
	defer s.unlock()
	return s.newCopyLocked().copyTo(log)
}

// Leave writes all there is to a log, for a process that is meant to end: with the sessions, so that clients notice
// nothing but that their connections break, and with the notices that could not be told. callback encodes what
// CreateSession was given. If there is nothing, nothing is written. No call is under way any more, and nothing may be called
// afterwards but Stop.
func (s *State) Leave(log Log, callback func(any) json.RawMessage, notices []LockFree) error {
	s.mu.Lock()
	defer s.unlock()
	_ = s.log.flush() // the log before is of use if this one fails
	if len(s.sessions.clients) == 0 && !s.grace.active {
		return nil
	}
	for _, o := range s.opens.byNumber {
		o.unanswered = o.repeatable // the replies of this process are in the slots
	}
	s.log.leaving = &leaving{callback, notices}
	return s.newCopyLocked().copyTo(log)
}

// LogGrown gets something when the log has become long, and CopyLog is to be called.
func (s *State) LogGrown() <-chan struct{} { return s.grown }

// CopyLog replaces a log that has become long, in steps. It waits for nobody but the log, and is called
// by one goroutine. The error is that there was no room for another: the log goes on, and becomes longer.
func (s *State) CopyLog() error {
	s.mu.Lock()
	var err error
	p := s.newCopyLocked()
	begun := p.log.long && p.log.out != nil && p.log.copy == nil
	if begun {
		err = p.begin()
	}
	s.unlock()
	if begun && err == nil {
		s.finish(func() (more bool) {
			more, err = p.step()
			return more && err == nil
		})
	}
	return err
}

// copyTo writes all there is to a log, and has it be the log from now on.
func (p *logCopy) copyTo(log Log) error {
	p.log.out = log
	err := p.begin()
	for more := true; more && err == nil; {
		more, err = p.step()
	}
	if err != nil {
		p.log.end()
	}
	return err
}

// begin begins the new log.
func (p *logCopy) begin() error {
	if err := p.log.out.Begin(); err != nil {
		p.log.long = false
		return err
	}
	p.log.gen++
	p.log.copy, p.clients, p.files = p, len(p.sessions.list), len(p.locks.waiting)
	if g := p.grace; g.active {
		for owner := range g.owners { // at most one for each client of the process before
			p.awaited = append(p.awaited, owner)
		}
		p.log.steps += len(g.owners)
		p.copied((&record{Grace: &graceRecord{g.until.Sub(p.log.cfg.Now())}}).append)
	}
	return nil
}

// step is one step of the copy. After an error there is no copy any more.
func (p *logCopy) step() (more bool, err error) {
	if p.log.copy == nil {
		return false, nil
	}
	for began := p.log.steps; p.log.steps-began < stepWork && len(p.records) < copyBytes; p.log.steps++ {
		if !p.next() {
			return false, p.end()
		}
	}
	return true, p.log.flush()
}

// end goes over to the new log.
func (p *logCopy) end() error {
	if p.log.leaving != nil {
		p.rest()
	}
	p.copied((&record{Whole: &wholeRecord{p.log.cfg.Boot, p.opens.next, p.log.leaving != nil}}).append)
	if err := p.log.flush(); err != nil {
		return err
	}
	if p.log.copy == nil { // the log itself has failed
		return nil
	}
	p.log.copy, p.log.long = nil, false
	old, err := p.log.out.Replace()
	if err != nil {
		return err
	}
	if old != nil {
		p.log.later().close = old
	}
	return nil
}

// rest copies what only a process leaves behind that is meant to end, but for the sessions.
func (p *logCopy) rest() {
	for e := p.sessions.unconfirmed.Front(); e != nil; e = e.Next() { // in the order in which they came
		p.copied((&record{Client: p.sessions.recordOf(e.Value.(*Client))}).append)
	}
	for _, f := range p.log.leaving.notices {
		p.copied((&record{Notice: &noticeRecord{f.ClientID, f.File.Volume, f.File.ID[:f.File.Len], []byte(f.Owner)}}).append)
	}
}

// copied adds to the new log alone.
func (p *logCopy) copied(add func([]byte) []byte) {
	p.records = add(beginFrame(p.records))
}

// next copies one thing more, and reports false when there is none.
func (p *logCopy) next() bool {
	if o := p.locksOf; o != nil && (o.void() || p.lockOwners == 0) {
		p.locksOf = nil
	}
	if o := p.open; o != nil && o.client.gone {
		p.open = nil
	}
	switch {
	case len(p.awaited) > 0:
		last := len(p.awaited) - 1
		p.copyAwaited(p.awaited[last])
		p.awaited = p.awaited[:last]
	case p.locksOf != nil:
		if p.lockOwners = min(p.lockOwners, len(p.locksOf.locks)); p.lockOwners > 0 {
			p.lockOwners--
			p.copyLocks(p.locksOf.locks[p.lockOwners])
		}
	case p.open != nil:
		o := p.open
		p.open = o.nextOfClient
		p.copyOpen(o)
	case p.clients > 0:
		if p.clients = min(p.clients, len(p.sessions.list)); p.clients > 0 {
			p.clients--
			p.copyClient(p.sessions.list[p.clients])
		}
	case p.files > 0:
		if p.files = min(p.files, len(p.locks.waiting)); p.files > 0 {
			p.files--
			p.copyWaits(p.locks.waiting[p.files])
		}
	default:
		return false
	}
	return true
}

func (p *logCopy) copyAwaited(owner string) {
	w := p.grace.owners[owner]
	if w == nil { // it can't reclaim any more, or nobody can
		return
	}
	p.copied((&record{Awaited: w.record(owner)}).append)
}

// copyClient copies a client, and has its opens be copied next.
func (p *logCopy) copyClient(c *Client) {
	if c.gen == p.log.gen {
		return
	}
	if c.gen = p.log.gen; c.confirmed { // or it is logged when it is
		p.copied((&record{Client: p.sessions.recordOf(c)}).append)
		p.open = c.opens
		p.copySessions(c)
	}
}

// copySessions copies the sessions of a client, if this process leaves: at most Limits.Sessions, with as many
// slots each.
func (p *logCopy) copySessions(c *Client) {
	if p.log.leaving == nil {
		return
	}
	for _, ses := range c.sessions {
		p.copied((&record{Session: ses.record(p.log.leaving.callback)}).append)
	}
}

// copyOpen copies an open, and has its locks be copied next.
func (p *logCopy) copyOpen(o *openState) {
	if o.gen == p.log.gen {
		return
	}
	o.gen = p.log.gen
	p.copied(func(b []byte) []byte { return appendOpen(b, o) })
	p.locksOf, p.lockOwners = o, len(o.locks)
}

// copyLocks copies what one lock owner has: at most Limits.Ranges.
func (p *logCopy) copyLocks(l *lockOwner) {
	if l.gen == p.log.gen {
		return
	}
	l.gen = p.log.gen
	p.copied(func(b []byte) []byte { return appendLocks(b, l) })
	p.log.steps += len(l.ranges)
}

// copyWaits copies who waits for a file, in their order: at most Limits.FileWaiters.
func (p *logCopy) copyWaits(f *file) {
	if f.waits.gen == p.log.gen {
		return
	}
	f.waits.gen = p.log.gen
	for _, w := range f.waits.list {
		if !w.open.void() {
			p.copied(func(b []byte) []byte { return appendWait(b, `{"wait":`, w) })
		}
	}
	p.log.steps += len(f.waits.list)
}
