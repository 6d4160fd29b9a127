package state

import "encoding/json"

// A log that has become long is replaced by another that says the same. That is written in steps, between
// which clients go on, by a goroutine that waits for nothing else: the log would grow meanwhile; so each change is logged twice until then, but to the new one only if it is about
// something that the new one has. What it has not is copied later, with what has changed. So no log ever names
// what it does not have, and one that is not whole is not used.
//
// Client.gen, open.gen, lockOwner.gen and fileWaiters.gen are the State.gen of the newest log that has the thing.
// What comes new is logged at once if that is of which it is part, and comes with that otherwise.

// logCopy is how far the new log is. Of a list that may change meanwhile, it copies what is last first: what is
// removed is replaced by the last, which was copied.
type logCopy struct {
	records []byte   // as State.records
	awaited []string // owners of State.grace that are not copied yet
	clients int      // so many of State.list are not
	open    *open    // the next one of its client, or nil
	locksOf *open    // or nil
	locks   int      // so many of its lock owners are not
	files   int      // so many of State.waiting are not
}

// copyBytes is how long the frames of a log are that is copied, more or less.
const copyBytes = 64 << 10

// beginCopy begins the new log.
func (s *State) beginCopy() error {
	if err := s.log.Begin(); err != nil {
		s.long = false
		return err
	}
	s.gen++
	s.copy = &logCopy{clients: len(s.list), files: len(s.waiting)}
	if g := &s.grace; g.active {
		for owner := range g.owners { // at most one for each client of the process before
			s.copy.awaited = append(s.copy.awaited, owner)
		}
		s.steps += len(g.owners)
		s.copied((&record{Grace: &graceRecord{g.until.Sub(s.cfg.Now())}}).append)
	}
	return nil
}

// copyTo writes all there is to a log, and has it be the log from now on.
func (s *State) copyTo(log Log) error {
	s.log = log
	err := s.beginCopy()
	for more := true; more && err == nil; {
		more, err = s.copySome()
	}
	if err != nil {
		s.endLog()
	}
	return err
}

// leaving is what a process that leaves adds to the log.
type leaving struct {
	callback func(any) json.RawMessage
	notices  []LockFree
}

// Leave writes all there is to a log, for a process that is meant to end: with the sessions, so that clients notice
// nothing but that their connections break, and with the notices that could not be told. callback encodes what
// CreateSession was given. If there is nothing, nothing is written. No call is under way any more, and nothing may be called
// afterwards but Stop.
func (s *State) Leave(log Log, callback func(any) json.RawMessage, notices []LockFree) error {
	s.mu.Lock()
	defer s.unlock()
	_ = s.flushLog() // the log before is of use if this one fails
	if len(s.clients) == 0 && !s.grace.active {
		return nil
	}
	for _, o := range s.opens {
		o.unanswered = o.repeatable // the replies of this process are in the slots
	}
	s.leaving = &leaving{callback, notices}
	return s.copyTo(log)
}

// copyRest copies what only a process leaves behind that is meant to end, but for the sessions.
func (s *State) copyRest() {
	for e := s.unconfirmed.Front(); e != nil; e = e.Next() { // in the order in which they came
		s.copied((&record{Client: s.recordOf(e.Value.(*Client))}).append)
	}
	for _, f := range s.leaving.notices {
		s.copied((&record{Notice: &noticeRecord{f.ClientID, f.File.Volume, f.File.ID[:f.File.Len], []byte(f.Owner)}}).append)
	}
}

// LogGrown gets something when the log has become long, and CopyLog is to be called.
func (s *State) LogGrown() <-chan struct{} { return s.grown }

// CopyLog replaces a log that has become long, in steps. It waits for nobody but the log, and is called
// by one goroutine. The error is that there was no room for another: the log goes on, and becomes longer.
func (s *State) CopyLog() error {
	s.mu.Lock()
	var err error
	begun := s.long && s.log != nil && s.copy == nil
	if begun {
		err = s.beginCopy()
	}
	s.unlock()
	if begun && err == nil {
		s.finish(func() (more bool) {
			more, err = s.copySome()
			return more && err == nil
		})
	}
	return err
}

// copySome is one step of the copy. After an error there is no copy any more.
func (s *State) copySome() (more bool, err error) {
	if s.copy == nil {
		return false, nil
	}
	for began := s.steps; s.steps-began < stepWork && len(s.copy.records) < copyBytes; s.steps++ {
		if !s.copyNext() {
			return false, s.endCopy()
		}
	}
	return true, s.flushLog()
}

// endCopy goes over to the new log.
func (s *State) endCopy() error {
	if s.leaving != nil {
		s.copyRest()
	}
	s.copied((&record{Whole: &wholeRecord{s.cfg.Boot, s.next, s.leaving != nil}}).append)
	if err := s.flushLog(); err != nil {
		return err
	}
	if s.copy == nil { // the log itself has failed
		return nil
	}
	s.copy, s.long = nil, false
	old, err := s.log.Replace()
	if err != nil {
		return err
	}
	if old != nil {
		s.later().close = old
	}
	return nil
}

// copied adds to the new log alone.
func (s *State) copied(add func([]byte) []byte) {
	s.copy.records = add(beginFrame(s.copy.records))
}

// copyNext copies one thing more, and reports false when there is none.
func (s *State) copyNext() bool {
	p := s.copy
	if o := p.locksOf; o != nil && (o.void() || p.locks == 0) {
		p.locksOf = nil
	}
	if o := p.open; o != nil && o.client.gone {
		p.open = nil
	}
	switch {
	case len(p.awaited) > 0:
		last := len(p.awaited) - 1
		s.copyAwaited(p.awaited[last])
		p.awaited = p.awaited[:last]
	case p.locksOf != nil:
		if p.locks = min(p.locks, len(p.locksOf.locks)); p.locks > 0 {
			p.locks--
			s.copyLocks(p.locksOf.locks[p.locks])
		}
	case p.open != nil:
		o := p.open
		p.open = o.nextOfClient
		s.copyOpen(o)
	case p.clients > 0:
		if p.clients = min(p.clients, len(s.list)); p.clients > 0 {
			p.clients--
			s.copyClient(s.list[p.clients])
		}
	case p.files > 0:
		if p.files = min(p.files, len(s.waiting)); p.files > 0 {
			p.files--
			s.copyWaits(s.waiting[p.files])
		}
	default:
		return false
	}
	return true
}

func (s *State) copyAwaited(owner string) {
	w := s.grace.owners[owner]
	if w == nil { // it can't reclaim any more, or nobody can
		return
	}
	s.copied((&record{Awaited: w.record(owner)}).append)
}

// copyClient copies a client, and has its opens be copied next.
func (s *State) copyClient(c *Client) {
	if c.gen == s.gen {
		return
	}
	if c.gen = s.gen; c.confirmed { // or it is logged when it is
		s.copied((&record{Client: s.recordOf(c)}).append)
		s.copy.open = c.opens
		s.copySessions(c)
	}
}

// copySessions copies the sessions of a client, if this process leaves: at most Limits.Sessions, with as many
// slots each.
func (s *State) copySessions(c *Client) {
	if s.leaving == nil {
		return
	}
	for _, ses := range c.sessions {
		s.copied((&record{Session: ses.record(s.leaving.callback)}).append)
	}
}

// copyOpen copies an open, and has its locks be copied next.
func (s *State) copyOpen(o *open) {
	if o.gen == s.gen {
		return
	}
	o.gen = s.gen
	s.copied(func(b []byte) []byte { return appendOpen(b, o) })
	s.copy.locksOf, s.copy.locks = o, len(o.locks)
}

// copyLocks copies what one lock owner has: at most Limits.Ranges.
func (s *State) copyLocks(l *lockOwner) {
	if l.gen == s.gen {
		return
	}
	l.gen = s.gen
	s.copied(func(b []byte) []byte { return appendLocks(b, l) })
	s.steps += len(l.ranges)
}

// copyWaits copies who waits for a file, in their order: at most Limits.FileWaiters.
func (s *State) copyWaits(f *file) {
	if f.waits.gen == s.gen {
		return
	}
	f.waits.gen = s.gen
	for _, w := range f.waits.list {
		if !w.open.void() {
			s.copied(func(b []byte) []byte { return appendWait(b, `{"wait":`, w) })
		}
	}
	s.steps += len(f.waits.list)
}

// notCopied takes an open that is removed out of the way of the copy.
func (s *State) notCopied(o *open) {
	if s.copy != nil && s.copy.open == o {
		s.copy.open = o.nextOfClient
	}
}
