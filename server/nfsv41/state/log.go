package state

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"time"
)

// A log has what the next process needs if this one dies. Whatever an operation changes is
// appended before the operation returns, so before its reply can be sent: what a client was told
// is in the log, and the last change may be there although nobody was told.
//
// What a process leaves that is meant to end is a log, too, of all that there is (Leave).
//
// Sessions, slots and replies are not in the log of a process that may die: they would cost every call a copy, and a call that
// the end of the process has cut off could not be told from one that was done anyway. So clients
// get BADSESSION and make new sessions, and what they send again is taken for what it is:
//
//   - CREATE_SESSION may have the sequence of the last one, whose reply may be lost
//     (Client.uncertain).
//   - A stateid may have an older seqid, until its seqid changes (open.uncertain): Linux
//     repeats a LOCK or LOCKU that gets OLD_STATEID for ever, as it never learns the new one.
//   - An OPEN may be the last one again (open.repeatable). It gets the same seqid again: for a
//     seqid that is left out Linux waits 5 seconds.
//
// A frame is what one hold of State.mu appends: the length of its records, their CRC-32C, and the
// records, JSON objects one after another.

// Log keeps frames for the next process. Its methods are called one at a time, under State.mu. After an
// error of Append none is called again.
type Log interface {
	// Append adds a frame. It reports whether the log has become much longer than
	// what it says.
	Append(frame []byte) (long bool, err error)
	// Begin begins another log, and Copy adds a frame to that one.
	Begin() error
	Copy(frame []byte) error
	// Replace puts what was begun in the place of the log, if there is one. What is left of
	// that is closed later, without State.mu. After an error of these three what was begun is
	// gone, and the log, if there is one, is as it was, and long only when it has become longer yet.
	Replace() (old io.Closer, err error)
}

const (
	frameHeader = 8
	// keepBuffer bounds the memory that is kept for frames.
	keepBuffer = 64 << 10
)

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// AppendFrame appends a frame.
func AppendFrame(b, records []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(records)))
	b = binary.BigEndian.AppendUint32(b, checksum(records))
	return append(b, records...)
}

// CutFrame returns the records of the first frame, and what is after it. ok is false if it is not
// whole: what its writer did was never acknowledged.
func CutFrame(b []byte) (records, rest []byte, ok bool) {
	if len(b) < frameHeader {
		return nil, b, false
	}
	n := binary.BigEndian.Uint32(b)
	if n == 0 || uint64(n) > uint64(len(b)-frameHeader) {
		return nil, b, false
	}
	records = b[frameHeader : frameHeader+int(n)]
	if checksum(records) != binary.BigEndian.Uint32(b[4:]) {
		return nil, b, false
	}
	return records, b[frameHeader+int(n):], true
}

// StartLog writes all there is to a log, and each change from now on. It is called before any client.
func (s *State) StartLog(log Log) error {
	s.mu.Lock()
	defer s.unlock()
	return s.copyTo(log)
}

// note logs a change, of something that the logs have that were begun since gen.
func (s *State) note(gen uint32, add func([]byte) []byte) {
	s.noteLater(gen, add)
	s.noted = true
}

// noteLater is note for what is no reason to write. The caller has checked that there is a log.
func (s *State) noteLater(gen uint32, add func([]byte) []byte) {
	if len(s.records) == 0 {
		s.soon() // what need not be written at once is by then
		s.records = beginFrame(s.records)
	}
	from := len(s.records)
	s.records = add(s.records)
	if s.copy != nil && gen == s.gen {
		s.copy.records = append(beginFrame(s.copy.records), s.records[from:]...)
	}
}

// beginFrame leaves the place of a header.
func beginFrame(b []byte) []byte {
	if len(b) == 0 {
		b = append(b, make([]byte, frameHeader)...)
	}
	return b
}

// endFrame fills in the header.
func endFrame(frame []byte) []byte {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-frameHeader))
	binary.BigEndian.PutUint32(frame[4:], checksum(frame[frameHeader:]))
	return frame
}

// emptied returns the place of the next frame.
func emptied(frame []byte) []byte {
	if cap(frame) > keepBuffer {
		return nil
	}
	return frame[:0]
}

// flushLog appends what was noted. The error is that of the copy.
func (s *State) flushLog() error {
	s.noted = false
	if s.log != nil && len(s.records) > 0 {
		long, err := s.log.Append(endFrame(s.records))
		if s.records = emptied(s.records); err != nil { // the log knows
			s.endLog()
			return nil
		}
		if long && !s.long {
			s.long = true
			select {
			case s.grown <- struct{}{}:
			default:
			}
		}
	}
	if p := s.copy; p != nil && len(p.records) > 0 {
		err := s.log.Copy(endFrame(p.records))
		if p.records = p.records[:0]; err != nil {
			s.copy, s.long = nil, false
			return err
		}
	}
	return nil
}

// endLog is for a log that has failed.
func (s *State) endLog() { s.log, s.copy, s.records, s.noted, s.long = nil, nil, nil, false, false }

// logClient logs a client that is confirmed.
func (s *State) logClient(c *Client) {
	if s.log != nil && c.confirmed {
		s.note(c.gen, (&record{Client: s.recordOf(c)}).append)
	}
}

func (s *State) logGone(c *Client) {
	if s.log != nil && c.confirmed {
		s.note(c.gen, (&record{Gone: c.id}).append)
	}
}

// logOpen logs an open, but not its locks.
func (s *State) logOpen(o *open) {
	if s.log != nil {
		s.note(o.gen, func(b []byte) []byte { return appendOpen(b, o) })
	}
}

func (s *State) logClosed(o *open) {
	if s.log != nil && !o.client.gone {
		s.note(o.gen, func(b []byte) []byte { return appendOne(b, `"closed":`, o.number) })
	}
}

// answered notes that the client has sent the next request of a slot, so that it has the reply
// to an OPEN. It is no reason to write: if it is lost, an OPEN may get a seqid a second time.
func (s *State) answered(number uint64, seqid uint32) {
	if o := s.opens[number]; o != nil && o.seqid == seqid && o.unanswered != 0 {
		o.unanswered = 0
		if s.log != nil {
			s.noteLater(o.gen, func(b []byte) []byte { return appendOne(b, `"answered":`, number) })
		}
	}
}

// settleFor is how long a client may take to send again what had no reply when the process before
// died, once it has a new session. Linux does it at once.
const settleFor = 2 * time.Second

// settle ends the time in which a client may send an OPEN again.
func (s *State) settle(c *Client) {
	c.settles = time.Time{}
	s.begin(func() bool {
		for began := s.steps; len(c.unsettled) > 0 && s.steps-began < stepWork; s.steps++ {
			last := len(c.unsettled) - 1
			if o := c.unsettled[last]; o.repeatable != 0 && !o.gone {
				s.notRepeated(o)
			}
			c.unsettled[last] = nil
			c.unsettled = c.unsettled[:last]
		}
		return len(c.unsettled) > 0
	})
}

// notRepeated notes that the client does not send the last OPEN again.
func (s *State) notRepeated(o *open) {
	o.repeatable = 0
	s.answered(o.number, o.seqid)
}

// logRange logs that a LOCK, or a LOCKU, has changed what l has.
func (s *State) logRange(l *lockOwner, r lockRange, isLock bool) {
	if s.log != nil {
		s.note(l.gen, func(b []byte) []byte { return appendLock(b, l, r, isLock) })
	}
}

func (s *State) logFreed(l *lockOwner) {
	if s.log != nil {
		s.note(l.gen, (&record{Freed: l.number}).append)
	}
}

func (s *State) logWait(w *waiter) {
	if s.log != nil {
		s.note(w.open.file.waits.gen, func(b []byte) []byte { return appendWait(b, `{"wait":`, w) })
	}
}

func (s *State) logWaitEnds(w *waiter) {
	if s.log != nil && !w.open.client.gone {
		s.note(w.open.file.waits.gen, func(b []byte) []byte { return appendWait(b, `{"waitEnds":`, w) })
	}
}

// logGrace logs what becomes of the grace period. A log that does not have yet what it is about loses nothing
// by it.
func (s *State) logGrace(r record) {
	if s.log != nil {
		s.note(s.gen, r.append)
	}
}
