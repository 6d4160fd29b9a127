package state

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"
)

// record is a change. One field is set.
type record struct {
	Whole     *loggedWhole     `json:"whole,omitempty"`  // all there was is in the log
	Client    *SavedClient     `json:"client,omitempty"` // without its sessions and opens
	Gone      uint64           `json:"gone,omitempty"`   // client, with all it had
	Open      *loggedOpen      `json:"open,omitempty"`
	Answered  uint64           `json:"answered,omitempty"` // number of an open: its client has the reply to the last OPEN
	Closed    uint64           `json:"closed,omitempty"`   // number of an open, with its locks
	Locks     *loggedLocks     `json:"locks,omitempty"`
	Lock      *loggedLock      `json:"lock,omitempty"`
	Freed     uint64           `json:"freed,omitempty"` // number of a lock owner
	Wait      *SavedWait       `json:"wait,omitempty"`
	WaitEnds  *SavedWait       `json:"waitEnds,omitempty"`
	Grace     *SavedGrace      `json:"grace,omitempty"` // without its owners
	Awaited   *SavedGraceOwner `json:"awaited,omitempty"`
	Reclaimed []byte           `json:"reclaimed,omitempty"` // owner that has said RECLAIM_COMPLETE
	Forgotten []byte           `json:"forgotten,omitempty"` // owner that may not reclaim any more
	GraceOver bool             `json:"graceOver,omitempty"`
}

type loggedWhole struct {
	Boot uint32 `json:"boot"`
	Next uint64 `json:"next"`
}

// loggedOpen is an open without its locks.
type loggedOpen struct {
	Client uint64 `json:"client"`
	SavedOpen
}

// loggedLocks is all that a lock owner has.
type loggedLocks struct {
	Open uint64 `json:"open"` // number
	SavedLock
}

// loggedLock is a LOCK or LOCKU, not all ranges that the owner has: there may be many.
type loggedLock struct {
	Open   uint64      `json:"open"` // number
	Number uint64      `json:"number"`
	Owner  []byte      `json:"owner"`
	Seqid  uint32      `json:"seqid"`
	Set    *SavedRange `json:"set,omitempty"`
	Clear  *SavedRange `json:"clear,omitempty"`
}

func (r *record) append(b []byte) []byte {
	encoded, err := json.Marshal(r)
	if err != nil {
		panic(err) // a record has nothing that JSON hasn't
	}
	return append(b, encoded...)
}

// appendOpen appends the record of an open. What is logged often, or often at once, is encoded by hand:
// encoding/json takes seven times as long (go test -bench Record), under State.mu.
func appendOpen(b []byte, o *open) []byte {
	b = appendNumber(append(b, `{"open":{`...), `"client":`, o.client.id)
	b = appendNumber(b, `,"number":`, o.number)
	b = appendNumber(b, `,"volume":`, o.file.key.Volume)
	b = base64.StdEncoding.AppendEncode(append(b, `,"file":"`...), o.file.key.ID[:o.file.key.Len])
	b = appendOwner(append(b, '"'), o.owner)
	b = appendNumber(b, `,"access":`, uint64(o.access))
	b = appendNumber(b, `,"deny":`, uint64(o.deny))
	b = appendNumber(b, `,"combos":`, uint64(o.combos))
	b = appendNumber(b, `,"seqid":`, uint64(o.seqid))
	b = o.since.AppendFormat(append(b, `,"since":"`...), time.RFC3339Nano)
	b = appendNumber(append(b, '"'), `,"unanswered":`, uint64(o.unanswered))
	return append(b, "}}"...)
}

// appendLocks appends the record of all that a lock owner has.
func appendLocks(b []byte, l *lockOwner) []byte {
	b = appendNumber(append(b, `{"locks":{`...), `"open":`, l.open.number)
	b = appendOwner(appendNumber(b, `,"number":`, l.number), l.owner)
	b = append(appendNumber(b, `,"seqid":`, uint64(l.seqid)), `,"ranges":[`...)
	for i, r := range l.ranges {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendRange(b, r)
	}
	return append(b, "]}}"...)
}

// appendWait appends the record of a LOCK that waits, or does not any more.
func appendWait(b []byte, name string, w *waiter) []byte {
	b = appendNumber(append(b, name...), `{"open":`, w.open.number)
	b = append(appendOwner(b, w.owner), `,"range":`...)
	return append(appendRange(b, w.lockRange), "}}"...)
}

// appendLock appends the record of a LOCK, or a LOCKU.
func appendLock(b []byte, l *lockOwner, r lockRange, isLock bool) []byte {
	b = appendNumber(append(b, `{"lock":{`...), `"open":`, l.open.number)
	b = appendNumber(b, `,"number":`, l.number)
	b = appendOwner(b, l.owner)
	b = appendNumber(b, `,"seqid":`, uint64(l.seqid))
	if isLock {
		b = append(b, `,"set":`...)
	} else {
		b = append(b, `,"clear":`...)
	}
	return append(appendRange(b, r), "}}"...)
}

// appendOne appends a record that is a number.
func appendOne(b []byte, name string, number uint64) []byte {
	return append(appendNumber(append(b, '{'), name, number), '}')
}

func appendNumber(b []byte, name string, n uint64) []byte {
	return strconv.AppendUint(append(b, name...), n, 10)
}

func appendOwner(b []byte, owner string) []byte {
	b = base64.StdEncoding.AppendEncode(append(b, `,"owner":"`...), []byte(owner))
	return append(b, '"')
}

func appendRange(b []byte, r lockRange) []byte {
	b = appendNumber(appendNumber(append(b, '{'), `"first":`, r.first), `,"last":`, r.last)
	return append(strconv.AppendBool(append(b, `,"write":`...), r.write), '}')
}
