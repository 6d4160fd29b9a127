package state

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
		saved := SavedGrace{Left: g.until.Sub(s.cfg.Now())}
		s.copied((&record{Grace: &saved}).append)
	}
	return nil
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
	s.copied((&record{Whole: &loggedWhole{s.cfg.Boot, s.next}}).append)
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
	saved := w.save(owner)
	s.copied((&record{Awaited: &saved}).append)
}

// copyClient copies a client, and has its opens be copied next.
func (s *State) copyClient(c *Client) {
	if c.gen == s.gen {
		return
	}
	if c.gen = s.gen; c.confirmed { // or it is logged when it is
		saved := s.saveClient(c)
		s.copied((&record{Client: &saved}).append)
		s.copy.open = c.opens
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
