package state

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// What is encoded by hand is what encoding/json makes of it, or the same to it.
func TestRecords(t *testing.T) {
	w, _, _, _ := busyWorld(t)
	for _, uncertain := range []bool{false, true} {
		for _, o := range w.opens.byNumber {
			o.uncertain, o.unanswered = uncertain, 3
			want := recordOf(o)
			var r record
			if err := json.Unmarshal(appendOpen(nil, o), &r); err != nil {
				t.Fatal(err)
			}
			r.Open.Since, want.Since = r.Open.Since.UTC(), want.Since.UTC()
			if !reflect.DeepEqual(r, record{Open: want}) {
				t.Errorf("%s\nis %+v, want %+v", appendOpen(nil, o), r.Open, want)
			}
		}
		for _, l := range w.locks.byNumber {
			l.uncertain = uncertain
			var all, r record
			if err := json.Unmarshal(appendLocks(nil, l), &all); err != nil {
				t.Fatal(err)
			}
			want := &locksRecord{Open: l.open.number, Number: l.number, Owner: []byte(l.owner), Seqid: l.seqid, Ranges: []rangeRecord{rangeOf(l.ranges[0])}, Uncertain: uncertain}
			if !reflect.DeepEqual(all, record{Locks: want}) {
				t.Errorf("%s\nis %+v, want %+v", appendLocks(nil, l), all.Locks, want)
			}
			if err := json.Unmarshal(appendLock(nil, l, l.ranges[0], true), &r); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(r.Lock, &lockRecord{Open: want.Open, Number: want.Number, Owner: want.Owner, Seqid: want.Seqid, Set: &want.Ranges[0]}) {
				t.Errorf("a lock is %+v", r.Lock)
			}
		}
	}
	for _, x := range w.locks.waiters {
		var r record
		if err := json.Unmarshal(appendWait(nil, `{"wait":`, x), &r); err != nil {
			t.Fatal(err)
		}
		if want := (&waitRecord{x.open.number, []byte(x.owner), rangeOf(x.lockRange)}); !reflect.DeepEqual(r, record{Wait: want}) {
			t.Errorf("%s\nis %+v, want %+v", appendWait(nil, `{"wait":`, x), r.Wait, want)
		}
	}
}

func rangeOf(r lockRange) rangeRecord { return rangeRecord{r.first, r.last, r.write} }

// recordOf is the record of an open.
func recordOf(o *openState) *openRecord {
	return &openRecord{
		Client: o.client.id, Number: o.number, Volume: o.file.key.Volume, File: o.file.key.ID[:o.file.key.Len], Owner: []byte(o.owner),
		Access: o.access, Deny: o.deny, Combos: o.combos, Seqid: o.seqid, Since: o.since, Unanswered: o.unanswered, Uncertain: o.uncertain,
	}
}

// go test -bench Record ./server/nfsv41/state
func BenchmarkRecord(b *testing.B) {
	w := newWorld(b, Limits{}).unlogged()
	n := w.ready("node", 1)
	id := n.mustOpen("open id:00000000000000000001", 1)
	o := w.opens.byNumber[w.opens.number(&id)]
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

// What a log costs: go test -bench Logged ./server/nfsv41/state
func BenchmarkLogged(b *testing.B) {
	for _, logged := range []bool{false, true} {
		start := func(b *testing.B) *node {
			w := &world{State: New(Config{Lease: time.Hour, Boot: 1}), t: b}
			if logged {
				dir := "/dev/shm"
				if _, err := os.Stat(dir); err != nil {
					dir = b.TempDir()
				}
				f, err := os.CreateTemp(dir, "podnas-log-*")
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { f.Close(); os.Remove(filepath.Clean(f.Name())) })
				if err := w.StartLog(fileLog{f}); err != nil {
					b.Fatal(err)
				}
			}
			return w.ready("node", 1)
		}
		b.Run(fmt.Sprintf("open-close/log=%t", logged), func(b *testing.B) {
			n := start(b)
			for b.Loop() {
				id, _ := n.open("owner of the open", 1, Both, 0)
				n.w.Close(n.c, id, file1(1))
			}
		})
		b.Run(fmt.Sprintf("lock-unlock/log=%t", logged), func(b *testing.B) {
			n := start(b)
			id := n.mustOpen("owner of the open", 1)
			for b.Loop() {
				l, _, _ := n.lock(id, "owner of the lock", 1, true, 0, 10)
				_, _ = n.w.Unlock(n.c, l, file1(1), 0, 10)
			}
		})
	}
}

// fileLog is a log as a server has it.
type fileLog struct{ *os.File }

func (l fileLog) Append(frame []byte) (bool, error) {
	_, err := l.Write(frame)
	return false, err
}

func (l fileLog) Begin() error { return nil }

func (l fileLog) Copy(frame []byte) error {
	_, err := l.Write(frame)
	return err
}

func (l fileLog) Replace() (io.Closer, error) { return nil, nil }
