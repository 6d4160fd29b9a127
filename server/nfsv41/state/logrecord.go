package state

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
)

// record is a change, or a part of all there is. One field is set.
type record struct {
	Whole     *wholeRecord   `json:"whole,omitempty"`  // all there was is in the log
	Client    *clientRecord  `json:"client,omitempty"` // without its sessions and opens
	Gone      uint64         `json:"gone,omitempty"`   // client, with all it had
	Session   *sessionRecord `json:"session,omitempty"`
	Open      *openRecord    `json:"open,omitempty"`     // without its locks
	Answered  uint64         `json:"answered,omitempty"` // number of an open: its client has the reply to the last OPEN
	Closed    uint64         `json:"closed,omitempty"`   // number of an open, with its locks
	Locks     *locksRecord   `json:"locks,omitempty"`    // all that a lock owner has
	Lock      *lockRecord    `json:"lock,omitempty"`
	Freed     uint64         `json:"freed,omitempty"` // number of a lock owner
	Wait      *waitRecord    `json:"wait,omitempty"`
	WaitEnds  *waitRecord    `json:"waitEnds,omitempty"`
	Notice    *noticeRecord  `json:"notice,omitempty"`
	Grace     *graceRecord   `json:"grace,omitempty"`
	Awaited   *awaitedRecord `json:"awaited,omitempty"`
	Reclaimed []byte         `json:"reclaimed,omitempty"` // owner that has said RECLAIM_COMPLETE
	Forgotten []byte         `json:"forgotten,omitempty"` // owner that may not reclaim any more
	GraceOver bool           `json:"graceOver,omitempty"`
}

type wholeRecord struct {
	Boot uint32 `json:"boot"`
	Next uint64 `json:"next"` // number of the next stateid
	// Left is set if the process has ended with this: sessions are in the log, and replies in their slots.
	Left bool `json:"left,omitempty"`
}

// clientRecord is a Client. Those of a Log are confirmed.
type clientRecord struct {
	ID        uint64          `json:"id"`
	Owner     []byte          `json:"owner"`
	Verifier  [8]byte         `json:"verifier"`
	Principal Principal       `json:"principal"`
	Minor     uint32          `json:"minor"`
	Since     time.Time       `json:"since"`
	Address   string          `json:"address"`
	Confirmed bool            `json:"confirmed"`
	Recorded  bool            `json:"recorded"`
	Complete  bool            `json:"complete"`
	CreateSeq uint32          `json:"createSeq"`
	Lease     time.Duration   `json:"lease"`
	Earlier   []earlierRecord `json:"earlier,omitempty"` // of the owner's confirmed record

	// Of a process that has left:
	Uncertain bool           `json:"uncertain,omitempty"` // whether it has the reply to its last CREATE_SESSION
	Created   *createdRecord `json:"created,omitempty"`   // that reply
}

type createdRecord struct {
	Result CreateSessionResult `json:"result"`
	Err    nfs4.Status         `json:"err"`
}

// earlierRecord is a formerVerifier.
type earlierRecord struct {
	Verifier [8]byte `json:"verifier"`
	Address  string  `json:"address"`
}

// sessionRecord is a session, without its connections.
type sessionRecord struct {
	Client      uint64          `json:"client"`
	ID          SessionID       `json:"id"`
	Fore        Channel         `json:"fore"`
	Back        Channel         `json:"back"`
	BackChannel bool            `json:"backChannel"`
	Callback    json.RawMessage `json:"callback,omitempty"`
	Slots       []slotRecord    `json:"slots"`
}

// slotRecord is a Slot. One whose request had no reply yet has none.
type slotRecord struct {
	Seq    uint32 `json:"seq"`
	Digest uint64 `json:"digest,omitempty"`
	Cached bool   `json:"cached,omitempty"`
	Reply  []byte `json:"reply,omitempty"`
}

// openRecord is an open, but for its locks.
type openRecord struct {
	Client     uint64    `json:"client"`
	Number     uint64    `json:"number"`
	Volume     uint64    `json:"volume"`
	File       []byte    `json:"file"`
	Owner      []byte    `json:"owner"`
	Access     Access    `json:"access"`
	Deny       Access    `json:"deny,omitempty"`
	Combos     uint16    `json:"combos"`
	Seqid      uint32    `json:"seqid"`
	Since      time.Time `json:"since"`
	Unanswered uint16    `json:"unanswered,omitempty"`
	Uncertain  bool      `json:"uncertain,omitempty"` // of a process that has left
}

// locksRecord is all that a lock owner has.
type locksRecord struct {
	Open      uint64        `json:"open"` // number
	Number    uint64        `json:"number"`
	Owner     []byte        `json:"owner"`
	Seqid     uint32        `json:"seqid"`
	Ranges    []rangeRecord `json:"ranges,omitempty"`
	Uncertain bool          `json:"uncertain,omitempty"` // of a process that has left
}

// lockRecord is a LOCK or LOCKU, not all ranges that the owner has: there may be many.
type lockRecord struct {
	Open   uint64       `json:"open"` // number
	Number uint64       `json:"number"`
	Owner  []byte       `json:"owner"`
	Seqid  uint32       `json:"seqid"`
	Set    *rangeRecord `json:"set,omitempty"`
	Clear  *rangeRecord `json:"clear,omitempty"`
}

// rangeRecord is a lockRange.
type rangeRecord struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	Write bool   `json:"write"`
}

// waitRecord is a LOCK that waits. Those of a file are in the order in which they came.
type waitRecord struct {
	Open  uint64      `json:"open"` // number
	Owner []byte      `json:"owner"`
	Range rangeRecord `json:"range"`
}

// noticeRecord is a LockFree that its client could not be told.
type noticeRecord struct {
	Client uint64 `json:"client"`
	Volume uint64 `json:"volume"`
	File   []byte `json:"file"`
	Owner  []byte `json:"owner"`
}

// graceRecord is a grace period that has not ended, without its owners.
type graceRecord struct {
	Left time.Duration `json:"left"`
}

// awaitedRecord is one who may reclaim, or has.
type awaitedRecord struct {
	Owner   []byte   `json:"owner"`
	Entries []uint64 `json:"entries"` // client IDs in the client tracking
	Done    bool     `json:"done"`
}

func (r *record) append(b []byte) []byte {
	encoded, err := json.Marshal(r)
	if err != nil {
		panic(err) // a record has nothing that JSON hasn't
	}
	return append(b, encoded...)
}

// record returns the record of a session. callback encodes what CreateSession was given.
func (ses *session) record(callback func(any) json.RawMessage) *sessionRecord {
	r := &sessionRecord{Client: ses.client.id, ID: ses.id, Fore: ses.fore, Back: ses.back, BackChannel: ses.backChannel}
	if ses.callback != nil {
		r.Callback = callback(ses.callback)
	}
	for i := range ses.slots {
		t := &ses.slots[i]
		slot := slotRecord{Seq: t.seq, Digest: t.digest, Cached: t.cached}
		if t.cached {
			slot.Reply = t.reply
		}
		r.Slots = append(r.Slots, slot)
	}
	return r
}

func (w *awaited) record(owner string) *awaitedRecord {
	r := &awaitedRecord{Owner: []byte(owner), Done: w.done}
	for _, e := range w.entries {
		r.Entries = append(r.Entries, e.ClientID)
	}
	return r
}

// appendOpen appends the record of an open. What is logged often, or often at once, is encoded by hand:
// encoding/json takes seven times as long (go test -bench Record), under State.mu.
func appendOpen(b []byte, o *openState) []byte {
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
	return append(appendUncertain(b, o.uncertain), "}}"...)
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
	return append(appendUncertain(append(b, ']'), l.uncertain), "}}"...)
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

func appendUncertain(b []byte, uncertain bool) []byte {
	if !uncertain {
		return b
	}
	return append(b, `,"uncertain":true`...)
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
