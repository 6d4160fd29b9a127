package state_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// memoryLog is a log that is read while it is written.
type memoryLog struct {
	config   state.Config
	bytes    []byte
	frames   int
	long     int // after so many frames it is to be rewritten; never if 0
	replay   *state.Replay
	wrong    error
	err      error // that the next call returns
	copyErr  error // that the next call about the copy returns
	next     *memoryLog
	replaced int // how often
}

func (l *memoryLog) Append(frame []byte) (bool, error) {
	if l.err != nil {
		return false, l.err
	}
	l.bytes = append(l.bytes, frame...)
	l.frames++
	l.read(frame)
	return l.long > 0 && l.frames > l.long, nil
}

func (l *memoryLog) Begin() error {
	l.next = &memoryLog{config: l.config, long: l.long, replay: state.NewReplay(l.config, decodeCallback)}
	return cmp.Or(l.err, l.copyErr)
}

func (l *memoryLog) Copy(frame []byte) error {
	if err := cmp.Or(l.err, l.copyErr); err != nil {
		return err
	}
	_, err := l.next.Append(frame)
	l.wrong = cmp.Or(l.wrong, l.next.wrong)
	return err
}

func (l *memoryLog) Replace() (io.Closer, error) {
	if err := cmp.Or(l.err, l.copyErr); err != nil {
		return nil, err
	}
	replaced := l.replaced
	*l = *l.next
	l.replaced = replaced + 1
	return io.NopCloser(nil), nil
}

func (l *memoryLog) read(frame []byte) {
	records, rest, ok := state.CutFrame(frame)
	switch {
	case !ok || len(rest) > 0:
		l.wrong = fmt.Errorf("a frame of %d bytes is not whole", len(frame))
	case l.wrong == nil:
		l.wrong = l.replay.Apply(records)
	}
}

// checkLog compares what the log says with what there is.
func (w *world) checkLog() {
	w.t.Helper()
	if w.logged == nil {
		return
	}
	if w.logged.wrong != nil {
		w.t.Fatalf("the log: %v", w.logged.wrong)
	}
	if err := w.logged.replay.SaysWhat(w.State); err != nil {
		w.t.Fatalf("the log: %v", err)
	}
}

// dies ends the process. The next one goes on with its log.
func (w *world) dies() {
	w.t.Helper()
	w.checkLog()
	w.boot++
	p, err := replay(w.config(), w.logged.bytes)
	if err != nil {
		w.t.Fatal(err)
	}
	if w.State, err = p.State(w.tracking.entries(), w.tracking.become, noFile); err != nil {
		w.t.Fatal(err)
	}
	w.startLog()
	w.ok()
}

// again makes another session for a client, as after BADSESSION.
func (n *node) again() {
	n.w.t.Helper()
	_, e := n.w.Sequence(state.SequenceArgs{Session: n.session, Seq: n.seq + 1, Ops: 1, Size: 100, Conn: n.conn})
	n.w.want(e, nfs4.ErrBadSession)
	n.create.Seq++
	n.conn = newConn("10.0.0.1:701")
	n.create.Conn = n.conn
	r, e := n.w.CreateSession(n.create)
	n.w.want(e, nfs4.OK)
	n.session, n.seq = r.ID, 0
	n.c = n.w.Client(n.create.ClientID)
}

// The next process has what clients have open and locked, and who waits. They need nothing but
// new sessions.
func TestLog(t *testing.T) {
	w, holder, waiter, lock := busyWorld(t)
	w.dies()
	if w.InGrace() {
		t.Error("there is a grace period")
	}
	holder.again()
	waiter.again()
	_, _, e := waiter.lock(waiter.mustOpen("y", 1), "m", 1, true, 0, 1)
	w.want(e, nfs4.ErrDenied)
	id, e := w.Unlock(holder.c, lock, file1(1), 0, toEOF)
	w.want(e, nfs4.OK)
	if id.Seqid != lock.Seqid+1 || id.Other != lock.Other {
		t.Errorf("LOCKU of %v returns %v", lock, id)
	}
	if len(w.free) == 0 || w.free[0].ClientID != waiter.c.ID() || w.free[0].Owner != "m" {
		t.Errorf("told %+v", w.free)
	}
	w.ok()
	next := holder.mustOpen("another", 2)
	w.dies()
	if id := waiter.c.ID(); w.Client(id) == nil {
		t.Error("a client is lost the second time")
	}
	holder.again()
	w.want(w.Close(holder.c, next, file1(2)), nfs4.OK)
	w.ok()
}

// The reply to CREATE_SESSION is lost with the process, and its session is.
func TestLogCreateSession(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n := w.join("node", 1)
	w.dies()
	r, e := w.CreateSession(n.create) // the same again
	w.want(e, nfs4.OK)
	if r.Seq != n.create.Seq || w.Counts().Sessions != 1 {
		t.Errorf("CREATE_SESSION again: %+v", r)
	}
	again, e := w.CreateSession(n.create)
	w.want(e, nfs4.OK)
	if again.ID != r.ID {
		t.Error("the reply is not kept")
	}
	n.create.Seq += 2
	_, e = w.CreateSession(n.create)
	w.want(e, nfs4.ErrSeqMisordered)
	w.dies()
	id, e := w.exchange("node", 1)
	w.want(e, nfs4.OK)
	if !id.Confirmed || id.ClientID != n.create.ClientID || id.Seq != r.Seq+1 {
		t.Errorf("EXCHANGE_ID: %+v", id)
	}
	w.want(w.ReclaimComplete(w.Client(id.ClientID), false), nfs4.OK)
	w.dies()
	w.want(w.ReclaimComplete(w.Client(id.ClientID), false), nfs4.ErrCompleteAlready)
}

// What was done when the process died, and is sent again with the seqid before.
func TestLogSeqids(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n := w.ready("node", 1)
	open := n.mustOpen("o", 1)
	first, _, e := n.lock(open, "l", 1, true, 0, 10)
	w.want(e, nfs4.OK)
	_, e = w.Unlock(n.c, first, file1(1), 0, 5)
	w.want(e, nfs4.OK)
	_, e = w.Unlock(n.c, first, file1(1), 0, 5)
	w.want(e, nfs4.ErrOldStateid)
	w.dies()
	n.again()
	w.want(w.TestStateid(n.c, first), nfs4.OK)
	id, e := w.Unlock(n.c, first, file1(1), 0, 5)
	w.want(e, nfs4.OK)
	if id.Seqid != 3 {
		t.Errorf("stateid %v", id)
	}
	w.want(w.TestStateid(n.c, first), nfs4.ErrOldStateid)
	w.want(w.TestStateid(n.c, nfs4.Stateid{Seqid: 4, Other: id.Other}), nfs4.ErrBadStateid)
	id, e = w.Downgrade(n.c, open, file1(1), state.Both, 0)
	w.want(e, nfs4.OK)
	w.dies()
	n.again()
	again, e := w.Downgrade(n.c, open, file1(1), state.Both, 0)
	w.want(e, nfs4.OK)
	if again.Seqid != id.Seqid+1 {
		t.Errorf("stateid %v, and then %v", id, again)
	}
	w.want(w.Close(n.c, open, file1(1)), nfs4.ErrOldStateid)
	w.want(w.Close(n.c, again, file1(1)), nfs4.OK)
	w.dies()
	n.again()
	w.want(w.Close(n.c, again, file1(1)), nfs4.ErrBadStateid)
}

// openBy is OPEN as the only operation of a request.
func (n *node) openBy(owner string, f int, access state.Access) nfs4.Stateid {
	n.w.t.Helper()
	id, e := n.openWith(state.OpenArgs{Owner: []byte(owner), File: file1(f), Access: access})
	n.w.want(e, nfs4.OK)
	n.last = id
	return id
}

func (n *node) openWith(a state.OpenArgs) (nfs4.Stateid, nfs4.Status) {
	n.w.t.Helper()
	n.seq++
	r, e := n.w.Sequence(state.SequenceArgs{Session: n.session, Seq: n.seq, Ops: 2, Size: 100, Conn: n.conn})
	n.w.want(e, nfs4.OK)
	defer r.Slot.Done(nil, false)
	a.Slot = r.Slot
	if a.Truncates {
		a.Reserved = &state.Reservation{}
		if e := n.w.Reserve(n.c, a, a.Reserved); e != nfs4.OK {
			return nfs4.Stateid{}, e
		}
		a.Truncates = false
	}
	id, _, e := n.w.Open(n.c, a)
	return id, e
}

// An OPEN that denies what it does itself is not denied when it is sent again. Another of the same owner is.
func TestLogOpenThatDeniesItself(t *testing.T) {
	for name, a := range map[string]state.OpenArgs{
		"denies writing":                      {Access: state.Both, Deny: state.Write},
		"denies all":                          {Access: state.Write, Deny: state.Both},
		"denies writing, and sets the size":   {Access: state.Read, Deny: state.Write, Truncates: true},
		"denies writing, in the grace period": {Access: state.Both, Deny: state.Write, Reclaim: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, state.Limits{})
			n, other := w.ready("node", 1), w.ready("other", 1)
			a.Owner, a.File = []byte("o"), file1(1)
			if a.Reclaim {
				n.mustOpen("o", 1)
				other.mustOpen("o", 2)
				w.crash()
				n, other = w.join("node", 1), w.join("other", 1)
			}
			first, e := n.openWith(a)
			w.want(e, nfs4.OK)
			w.dies()
			n.again()
			other.again()
			again, e := n.openWith(a)
			w.want(e, nfs4.OK)
			if again != first {
				t.Errorf("OPEN again: %v, was %v", again, first)
			}
			w.ok()
			denied := nfs4.ErrShareDenied
			if a.Reclaim {
				denied = nfs4.ErrReclaimConflict
			}
			_, e = n.openWith(a)
			w.want(e, denied)
			if !a.Reclaim {
				_, e = other.open("o", 1, state.Write, 0)
				w.want(e, denied)
			}
			w.want(w.Close(n.c, again, file1(1)), nfs4.OK)
			w.ok()
		})
	}
}

// An OPEN whose reply is lost gets the same seqid when it is sent again, and any other the next.
func TestLogOpenAgain(t *testing.T) {
	for _, tt := range []struct {
		name     string
		answered func(w *world, n *node)
		after    time.Duration // it dies twice, so long after it has a new session
		access   state.Access
		seqid    uint32
	}{
		{"the reply is lost", func(*world, *node) {}, 0, state.Read, 2},
		{"the process dies again", func(*world, *node) {}, time.Second, state.Read, 2},
		{"it is long ago", func(*world, *node) {}, state.SettleFor + 1, state.Read, 3},
		{"another OPEN", func(*world, *node) {}, 0, state.Write, 3},
		{"the reply has come", func(w *world, n *node) {
			_, e := n.renew()
			w.want(e, nfs4.OK)
			w.Expire()
		}, 0, state.Read, 3},
		{"the reply has come, and something else was done", func(w *world, n *node) {
			n.openBy("other", 2, state.Read)
		}, 0, state.Read, 3},
		{"what was opened was changed", func(w *world, n *node) {
			_, e := w.Downgrade(n.c, nfs4.Stateid{Other: n.last.Other}, file1(1), state.Read, 0)
			w.want(e, nfs4.OK)
		}, 0, state.Read, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, state.Limits{})
			n := w.ready("node", 1)
			n.openBy("o", 1, state.Both)
			n.openBy("o", 1, state.Read)
			tt.answered(w, n)
			w.dies()
			n.again()
			if tt.after > 0 {
				w.pass(tt.after)
				w.Expire()
				w.dies()
				n.again()
			}
			if id := n.openBy("o", 1, tt.access); id.Seqid != tt.seqid {
				t.Errorf("seqid %d, want %d", id.Seqid, tt.seqid)
			}
			id := n.openBy("o", 1, tt.access)
			if id.Seqid != tt.seqid+1 {
				t.Errorf("the next has seqid %d, want %d", id.Seqid, tt.seqid+1)
			}
			w.ok()
			w.want(w.Close(n.c, id, file1(1)), nfs4.OK)
			w.ok()
		})
	}
}

// A meant restart after one that was not: what was uncertain still is.
func TestLogThenSave(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n := w.ready("node", 1)
	id := n.openBy("o", 1, state.Read)
	w.dies()
	if err := w.restore(w.save(), noFile); err != nil {
		t.Fatal(err)
	}
	n.again()
	if again := n.openBy("o", 1, state.Read); again != id {
		t.Errorf("OPEN again: %v, was %v", again, id)
	}
	if err := w.restore(w.save(), noFile); err != nil {
		t.Fatal(err)
	}
	n.c = w.Client(n.create.ClientID)
	if next := n.openBy("o", 1, state.Read); next.Seqid != 2 {
		t.Errorf("the next OPEN: %v", next)
	}
}

// The process can die between what it does to the client tracking and what it logs of that. What the log says is right: nobody
// was given anything meanwhile.
func TestLogAndTracking(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n, other := w.ready("node", 1), w.ready("other", 1)
	other.mustOpen("o", 2)
	var logs [][]byte
	w.tracking.before = func(bool, state.TrackedClient) { logs = append(logs, slices.Clone(w.logged.bytes)) }
	n.mustOpen("o", 1)
	w.want(w.Evict(n.c.ID()), nfs4.OK)
	if len(logs) != 2 {
		t.Fatalf("%d changes of the client tracking", len(logs))
	}
	others := w.tracking.entries()
	for _, tt := range []struct {
		name     string
		log      []byte
		tracking []state.TrackedClient
		opens    int
	}{
		{"before it is added", logs[0], others, 1},
		{"before it is removed", logs[1], append(others, state.TrackedClient{ClientID: n.c.ID(), Owner: "node", Address: "10.0.0.1", Verifier: verifier(1), Lease: lease}), 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := replay(w.config(), tt.log)
			if err != nil {
				t.Fatal(err)
			}
			var tracking fakeTracking
			s, err := p.State(nil, tracking.become, noFile)
			if err != nil {
				t.Fatal(err)
			}
			if n := s.Counts(); n.Clients != 2 || n.Opens != tt.opens {
				t.Errorf("%+v", n)
			}
			if got := tracking.entries(); !slices.Equal(sorted(got), sorted(tt.tracking)) {
				t.Errorf("the client tracking is %v, want %v", got, tt.tracking)
			}
		})
	}
	p, err := replay(w.config(), logs[1])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.State(nil, (&fakeTracking{err: io.ErrShortWrite}).become, noFile); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a client tracking that can't be written: %v", err)
	}
}

// A process that dies in the grace period, or when it has ended on the disk only: it goes on then.
func TestLogGrace(t *testing.T) {
	w, _, _, _ := busyWorld(t)
	w.crash()
	n := w.join("holder", 1)
	w.want(w.ReclaimComplete(n.c, false), nfs4.OK)
	w.dies()
	n.again()
	if got := w.Counts(); !got.InGrace || got.Awaited != 1 {
		t.Fatalf("%+v", got)
	}
	_, e := n.open("x", 1, state.Both, 0)
	w.want(e, nfs4.ErrGrace)
	for _, e := range w.tracking.entries() {
		if err := w.tracking.Remove(e); err != nil {
			t.Fatal(err)
		}
	}
	w.dies()
	if got := w.Counts(); !got.InGrace || got.Awaited != 1 || len(w.tracking.owners()) != 2 {
		t.Errorf("%+v, client tracking %v", got, w.tracking.owners())
	}
	for _, e := range w.tracking.entries() {
		if e.Lease <= 0 {
			t.Errorf("%v would be read as damaged", e)
		}
	}
	w.pass(2*lease + 1)
	w.Expire()
	if w.InGrace() {
		t.Error("the grace period has not ended")
	}
	n.again()
	n.mustOpen("x", 1)
	w.ok()
}

// A log that can't be written is no more used, and nothing else changes.
func TestLogFails(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n := w.ready("node", 1)
	w.logged.err = io.ErrShortWrite
	id := n.mustOpen("x", 1)
	if written, _ := w.Logs(); written {
		t.Error("the log is still written")
	}
	w.want(w.Close(n.c, id, file1(1)), nfs4.OK)
	if err := w.StartLog(w.logged); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("StartLog: %v", err)
	}
	w.logged = nil
	w.ok()
}

// A frame is whole or none.
func TestFrames(t *testing.T) {
	whole := state.AppendFrame(nil, []byte("some records"))
	for i := range whole {
		if _, _, ok := state.CutFrame(whole[:i]); ok {
			t.Errorf("%d of %d bytes are whole", i, len(whole))
		}
		for bit := range 8 {
			bad := slices.Clone(whole)
			bad[i] ^= 1 << bit
			if _, _, ok := state.CutFrame(slices.Concat(bad, whole)); ok {
				t.Errorf("byte %d is wrong, and nobody notices", i)
			}
		}
	}
	records, rest, ok := state.CutFrame(append(whole, 1, 2))
	if !ok || string(records) != "some records" || len(rest) != 2 {
		t.Errorf("%q, %v, %t", records, rest, ok)
	}
	if _, _, ok := state.CutFrame(make([]byte, 100)); ok {
		t.Error("zeros are a frame")
	}
}

// recordsIn returns the records of all frames.
func recordsIn(b []byte) (all []byte) {
	for {
		records, rest, ok := state.CutFrame(b)
		if !ok {
			return all
		}
		all, b = append(all, records...), rest
	}
}

// Whatever a log says, it is refused, or keeps the invariants.
func FuzzReplay(f *testing.F) {
	w, n, _, lock := busyWorld(f)
	f.Add(recordsIn(w.logged.bytes))
	w.logged.bytes = nil
	_, _ = w.Unlock(n.c, lock, file1(1), 5, 5)
	w.want(w.Evict(n.c.ID()), nfs4.OK)
	w.crash()
	f.Add(recordsIn(w.logged.bytes))
	f.Add(recordsIn(w.save(state.LockFree{ClientID: n.c.ID(), File: file1(1), Owner: "l"})))
	f.Add([]byte(`{"client":{"id":1,"owner":"AA==","minor":1,"lease":1,"confirmed":true,"recorded":true}}{"open":{"client":1,"number":2,"access":1,"combos":1,"seqid":1}}{"locks":{"open":2,"number":3,"seqid":1,"ranges":[{"first":1,"last":5},{"first":3,"last":9}]}}{"whole":{"boot":1,"next":9}}{"lock":{"open":2,"number":3,"seqid":2,"set":{"first":0,"last":18446744073709551615,"write":true}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if records, rest, ok := state.CutFrame(b); ok && len(state.AppendFrame(nil, records))+len(rest) != len(b) {
			t.Errorf("%d bytes are a frame of %d, and %d", len(b), len(records), len(rest))
		}
		w := newWorld(t, state.Limits{})
		p := state.NewReplay(w.config(), decodeCallback)
		if p.Apply(b) != nil {
			return
		}
		if err := p.SaysWhat(nil); err != nil {
			t.Fatal(err)
		}
		left := p.Left()
		s, err := p.State(w.tracking.entries(), w.tracking.become, noFile)
		if err != nil {
			return
		}
		w.State = s
		w.startLog()
		w.ok()
		if !left || len(w.Snapshot(0).Clients) == 0 && !w.InGrace() { // which leaves nothing
			return
		}
		want := w.WhatIsLeft()
		if err := w.restore(w.save(p.Notices()...), noFile); err != nil {
			t.Fatal(err)
		}
		if err := w.WhatIsLeft().Differs(want); err != nil {
			t.Error(err)
		}
	})
}
