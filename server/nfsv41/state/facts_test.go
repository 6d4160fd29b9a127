package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// SaysWhat returns an error unless the log says what s has, if that is known, and keeps the invariants.
func (p *Replay) SaysWhat(s *State) error {
	if err := p.s.Verify(); err != nil || s == nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(differ(p.s.facts(false), s.facts(false)), differ(p.waitFacts(), s.waitFacts()))
}

// Left is what a process leaves to the next one, in an order of its own.
type Left struct {
	Facts, Waits []string
	Unconfirmed  []string // the owners, in the order in which they came
}

// WhatIsLeft returns all that the next process is to have, but for the connections.
func (s *State) WhatIsLeft() Left {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := Left{Facts: s.facts(true), Waits: s.waitFacts()}
	for e := s.sessions.unconfirmed.Front(); e != nil; e = e.Next() {
		l.Unconfirmed = append(l.Unconfirmed, e.Value.(*Client).owner)
	}
	return l
}

// Differs returns an error unless it is as want.
func (l Left) Differs(want Left) error {
	return cmp.Or(differ(l.Facts, want.Facts), differ(l.Waits, want.Waits), differ(l.Unconfirmed, want.Unconfirmed))
}

// facts are what a log says, and with all what a process leaves that is meant to end, but for the waiters.
func (s *State) facts(all bool) []string {
	list := []string{fmt.Sprintf("next stateid %d, in grace %t", s.opens.next, s.grace.active)}
	say := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	for owner, w := range s.grace.owners {
		var entries []uint64
		for _, e := range w.entries {
			entries = append(entries, e.ClientID)
		}
		slices.Sort(entries)
		say("%q may reclaim %t by %x", owner, !w.done, entries)
	}
	for _, c := range s.sessions.clients {
		if !c.confirmed && !all {
			continue
		}
		say("client %x of %q, verifier %x, %v, since %v, confirmed %t, recorded %t, complete %t, sequence %d, earlier %v, minor version %d",
			c.id, c.owner, c.verifier, c.principal, c.since.UTC(), c.confirmed, c.recorded, c.complete, c.createSeq, s.sessions.owners[c.owner].earlier, c.minor)
		if all {
			say("client %x is from %s, uncertain %t", c.id, c.address, c.uncertain)
			if c.created != nil {
				say("client %x was told %+v, %v", c.id, c.created.result, c.created.err)
			}
		}
		for o := c.opens; o != nil; o = o.nextOfClient {
			say("client %x has open %d of file %v by %q, access %d, deny %d, combos %x, since %v, seqid %d",
				c.id, o.number, o.file.key, o.owner, o.access, o.deny, o.combos, o.since.UTC(), o.seqid)
			if all {
				say("open %d is uncertain %t, may come again %x", o.number, o.uncertain, o.repeatable)
			}
			for _, l := range o.locks {
				say("open %d has lock %d of %q, seqid %d: %v", o.number, l.number, l.owner, l.seqid, l.ranges)
				if all {
					say("lock %d is uncertain %t", l.number, l.uncertain)
				}
			}
		}
	}
	for _, ses := range s.sessions.byID {
		if !all {
			break
		}
		say("session %x of client %x: %+v, %+v, back channel %t, %v", ses.id, ses.client.id, ses.fore, ses.back, ses.backChannel, ses.callback)
		for i, t := range ses.slots {
			if !t.cached {
				t.reply = nil
			}
			say("slot %d of session %x: sequence %d, digest %x, cached %t, reply %q", i, ses.id, t.seq, t.digest, t.cached, t.reply)
		}
	}
	slices.Sort(list)
	return list
}

// waitFacts are the waiters of each file, in their order.
func (s *State) waitFacts() []string {
	var list []string
	for _, f := range s.locks.waiting {
		said := fmt.Sprintf("file %v", f.key)
		for _, w := range f.waits.list {
			if !w.open.void() {
				said += fmt.Sprintf(", open %d of %q for %v", w.open.number, w.owner, w.lockRange)
			}
		}
		list = append(list, said)
	}
	slices.Sort(list)
	return list
}

// waitFacts are those of the waiters that State will have.
func (p *Replay) waitFacts() []string {
	said := map[FileKey]string{}
	for _, wait := range slices.SortedFunc(maps.Keys(p.waits), func(a, b replayedWait) int { return cmp.Compare(p.waits[a], p.waits[b]) }) {
		if o := p.s.opens.byNumber[wait.open]; o != nil {
			key := o.file.key
			said[key] = cmp.Or(said[key], fmt.Sprintf("file %v", key)) + fmt.Sprintf(", open %d of %q for %v", wait.open, wait.owner, wait.lockRange)
		}
	}
	return slices.Sorted(maps.Values(said))
}

// differ returns the first of the facts that are not the same.
func differ(got, want []string) error {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(want):
			return fmt.Errorf("%s\nis not so", got[i])
		case i >= len(got) || got[i] != want[i]:
			return fmt.Errorf("%s\nand not, but in what was read\n%s", want[i], append(got, "nothing")[i])
		}
	}
	return nil
}
