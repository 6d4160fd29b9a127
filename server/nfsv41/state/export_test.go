package state

import "github.com/podnas/podnas/nfs/nfs4"

// What tests know beside what the server's other parts call: the checks of check_test.go and facts_test.go, and this.

// Times and sizes that tests wait for, or go beyond.
const (
	FreshFor     = freshFor
	MaxEarlier   = maxEarlier
	ReturnLeases = returnLeases
	SettleFor    = settleFor
	TryEvery     = tryEvery
	SilentMax    = silentMax
	SlotBytes    = slotBytes
	StepWork     = stepWork
	WaitFor      = waitFor
	OwnerOpens   = ownerOpens
)

// Client returns a client that is there. A handler has it from its slot, whose sequence a test would change.
func (s *State) Client(id uint64) *Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions.clients[id]
}

// LimitsOf returns the limits with their defaults, which tests of full tables fill.
func (s *State) LimitsOf() Limits { return s.cfg.Limits }

// MostSteps returns the most steps that do takes under one lock.
func (s *State) MostSteps(do func()) int {
	s.mu.Lock()
	s.most = 0
	s.mu.Unlock()
	do()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// ByStateid returns the open or the locks that have a stateid, and what OPEN may come again: no call says it of one open among several of an owner.
func (s *State) ByStateid(id nfs4.Stateid) (o OpenInfo, again [2]Access, locks []RangeRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if open := s.opens.byNumber[s.opens.number(&id)]; open != nil && s.opens.openID(open) == id {
		for a := Read; a <= Both; a++ {
			for d := Access(0); d <= Both; d++ {
				if open.repeatable == combo(a, d) {
					again = [2]Access{a, d}
				}
			}
		}
		return OpenInfo{File: open.file.key, ClientID: open.client.id, Owner: open.owner, Access: open.access, Deny: open.deny}, again, make([]RangeRecord, len(open.locks))
	}
	if l := s.locks.byNumber[s.opens.number(&id)]; l != nil && s.locks.lockID(l) == id {
		o.ClientID = l.open.client.id
		for _, r := range l.ranges {
			locks = append(locks, RangeRecord{First: r.first, Last: r.last, Write: r.write})
		}
	}
	return o, again, locks
}

// CopySome goes on with the copy of the log by n records, or begins one: a goroutine does it otherwise, and
// passes the moments in which tests do something.
func (s *State) CopySome(n int) (done bool, err error) {
	s.mu.Lock()
	defer s.unlock()
	if s.log.copy == nil {
		err = s.newCopyLocked().begin()
	}
	p := s.log.copy
	for ; n > 0 && err == nil && !done; n-- {
		if !p.next() {
			done, err = true, p.end()
		}
	}
	if err == nil {
		err = s.log.flush()
	}
	return done, err
}

// StepOfCopy returns a step of the copy that is under way, which may find that there is no copy any more.
func (s *State) StepOfCopy() func() (more bool, err error) {
	p := s.log.copy
	return func() (bool, error) {
		s.mu.Lock()
		defer s.unlock()
		return p.step()
	}
}

// Logs reports whether a log is written, and whether it is copied.
func (s *State) Logs() (written, copied bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.out != nil, s.log.copy != nil
}

// The records of a log, which tests change as a disk may, or another version.
type (
	Record        = record
	EarlierRecord = earlierRecord
	SlotRecord    = slotRecord
	LocksRecord   = locksRecord
	LockRecord    = lockRecord
	RangeRecord   = rangeRecord
	AwaitedRecord = awaitedRecord
	NoticeRecord  = noticeRecord
)

// Frame returns a frame of the log with a record.
func (r *record) Frame() []byte { return AppendFrame(nil, r.append(nil)) }
