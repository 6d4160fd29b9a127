package state

import (
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"io"
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
//   - A stateid may have an older seqid, until its seqid changes (openState.uncertain): Linux
//     repeats a LOCK or LOCKU that gets OLD_STATEID for ever, as it never learns the new one.
//   - An OPEN may be the last one again (openState.repeatable). It gets the same seqid again: for a
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

// leaving is what a process that leaves adds to the log.
type leaving struct {
	callback func(any) json.RawMessage
	notices  []LockFree
}

// stateLog owns what is to be written to the Log, and the copy that replaces it (logcopy.go).
// State.mu guards all of it.
type stateLog struct {
	*work

	out     Log           // nil: there is none
	records []byte        // what is to be logged, after the place of a frame's header
	noted   bool          // it is to be logged by unlock
	long    bool          // out is
	copy    *logCopy      // nil: out is not being replaced
	gen     uint32        // of the newest log
	leaving *leaving      // nil: this process goes on
	grown   chan struct{} // for State.LogGrown
}

// note logs a change, of something that the logs have that were begun since gen.
func (l *stateLog) note(gen uint32, add func([]byte) []byte) {
	l.noteLater(gen, add)
	l.noted = true
}

// noteLater is note for what is no reason to write. The caller has checked that there is a log.
func (l *stateLog) noteLater(gen uint32, add func([]byte) []byte) {
	if len(l.records) == 0 {
		l.soon() // what need not be written at once is by then
		l.records = beginFrame(l.records)
	}
	from := len(l.records)
	l.records = add(l.records)
	if l.copy != nil && gen == l.gen {
		l.copy.records = append(beginFrame(l.copy.records), l.records[from:]...)
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

// flush appends what was noted. The error is that of the copy.
func (l *stateLog) flush() error {
	l.noted = false
	if l.out != nil && len(l.records) > 0 {
		long, err := l.out.Append(endFrame(l.records))
		if l.records = emptied(l.records); err != nil { // the log knows
			l.end()
			return nil
		}
		if long && !l.long {
			l.long = true
			select {
			case l.grown <- struct{}{}:
			default:
			}
		}
	}
	if p := l.copy; p != nil && len(p.records) > 0 {
		err := l.out.Copy(endFrame(p.records))
		if p.records = p.records[:0]; err != nil {
			l.copy, l.long = nil, false
			return err
		}
	}
	return nil
}

// end is for a log that has failed.
func (l *stateLog) end() { l.out, l.copy, l.records, l.noted, l.long = nil, nil, nil, false, false }

// notCopied takes an open that is removed out of the way of the copy.
func (l *stateLog) notCopied(o *openState) {
	if l.copy != nil && l.copy.open == o {
		l.copy.open = o.nextOfClient
	}
}
