package state

import (
	"testing"
	"time"
)

// recordOf is the record of an open.
func recordOf(o *openState) *openRecord {
	return &openRecord{
		Client: o.client.id, Number: o.number, Volume: o.file.key.Volume, File: o.file.key.ID[:o.file.key.Len], Owner: []byte(o.owner),
		Access: o.access, Deny: o.deny, Combos: o.combos, Seqid: o.seqid, Since: o.since, Unanswered: o.unanswered, Uncertain: o.uncertain,
	}
}

// go test -bench Record ./server/nfsv41/state
func BenchmarkRecord(b *testing.B) {
	o := &openState{
		client: &Client{id: 1 << 60}, file: &file{key: FileKey{Volume: 1, Len: 8}}, number: 1, owner: "open id:00000000000000000001",
		access: Both, combos: combo(Both, 0), seqid: 1, since: time.Now(),
	}
	var to []byte
	b.Run("by-hand", func(b *testing.B) {
		for b.Loop() {
			to = appendOpen(to[:0], o)
		}
	})
	b.Run("json", func(b *testing.B) {
		for b.Loop() {
			to = (&record{Open: recordOf(o)}).append(to[:0])
		}
	})
}
