package state_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// busyWorld has two clients, one of which waits for the other's lock, with replies that can be
// asked for again.
func busyWorld(t testing.TB) (w *world, holder, waiter *node, lock nfs4.Stateid) {
	w = newWorld(t, state.Limits{})
	holder, waiter = w.ready("holder", 1), w.ready("waiter", 1)
	id := holder.mustOpen("x", 1)
	lock, _, e := holder.lock(id, "l", 1, true, 0, toEOF)
	w.want(e, nfs4.OK)
	_, _, e = waiter.lock(waiter.mustOpen("y", 1), "m", 1, false, 5, 5)
	w.want(e, nfs4.ErrDenied)
	w.ok()
	return w, holder, waiter, lock
}

// sorted are entries by their IDs.
func sorted(list []state.TrackedClient) []state.TrackedClient {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b state.TrackedClient) int { return cmp.Compare(a.ClientID, b.ClientID) })
	return list
}

func noFile(state.FileKey, state.Access) state.Descriptor { return nil }

// The next process answers a request that comes again from its slot, and tells who waits.
func TestRestore(t *testing.T) {
	w, holder, waiter, lock := busyWorld(t)
	again := state.SequenceArgs{Session: holder.session, Seq: 1, Digest: 7, Ops: 2, Conn: holder.conn}
	r, e := w.Sequence(again)
	w.want(e, nfs4.OK)
	r.Slot.Done([]byte("reply"), true)
	tracking := sorted(w.tracking.entries())
	b := w.save()
	w.tracking.list = nil // it was damaged
	w.pass(time.Hour)     // the pod was away, and nobody else could get anything
	if err := w.restore(b, noFile); err != nil {
		t.Fatal(err)
	}
	w.ok()
	if got := sorted(w.tracking.entries()); !slices.Equal(got, tracking) {
		t.Errorf("client tracking is %v, want %v", got, tracking)
	}
	if w.InGrace() || w.saw(state.ClientCame) != 2 {
		t.Error("clients notice")
	}
	again.Conn = newConn("10.0.0.1:701")
	r, e = w.Sequence(again)
	w.want(e, nfs4.OK)
	if string(r.Reply) != "reply" || r.Status != state.StatusCallbackPathDown|state.StatusCallbackPathDownSession {
		t.Errorf("the reply is %q, the status %#x", r.Reply, r.Status)
	}
	if paths := w.CallbackPaths(waiter.c.ID()); len(paths) != 0 {
		t.Errorf("there are connections: %+v", paths)
	}
	holder.c = w.Client(holder.c.ID())
	_, e = w.Unlock(holder.c, lock, file1(1), 0, toEOF)
	w.want(e, nfs4.OK)
	if len(w.free) != 1 || w.free[0].ClientID != waiter.c.ID() || w.free[0].Owner != "m" {
		t.Errorf("told %+v", w.free)
	}
	_, _, e = w.BindConn(waiter.session, newConn("10.0.0.2:700"), state.Back)
	w.want(e, nfs4.OK)
	if paths := w.CallbackPaths(waiter.c.ID()); len(paths) != 1 || paths[0].Callback != "waiter" {
		t.Errorf("paths are %+v", paths)
	}
	w.ok()
}

// Whoever was there before has longer than a lease to return, and then a lease as ever.
func TestReturn(t *testing.T) {
	w := newWorld(t, state.Limits{})
	holder := w.ready("holder", 1)
	lock, _, e := holder.lock(holder.mustOpen("x", 1), "l", 1, true, 0, toEOF)
	w.want(e, nfs4.OK)
	if err := w.restore(w.save(), noFile); err != nil {
		t.Fatal(err)
	}
	other := w.ready("other", 1)
	open := other.mustOpen("o", 1)
	locked := func(want nfs4.Status) {
		t.Helper()
		_, e := other.renew()
		w.want(e, nfs4.OK)
		_, _, e = other.lock(open, "l", 1, true, 0, toEOF)
		w.want(e, want)
	}
	w.pass(3 * lease)
	locked(nfs4.ErrDenied)
	_, e = holder.renew()
	w.want(e, nfs4.OK)
	w.pass(lease)
	locked(nfs4.ErrDenied)
	w.pass(1)
	locked(nfs4.OK)
	w.want(w.TestStateid(other.c, lock), nfs4.ErrBadStateid)
	w.ok()
}

// A restart within the grace period goes on with it.
func TestRestoreGrace(t *testing.T) {
	w, _, _, _ := busyWorld(t)
	w.crash()
	n := w.join("holder", 1)
	w.want(w.ReclaimComplete(n.c, false), nfs4.OK)
	w.pass(lease / 2)
	if err := w.restore(w.save(), noFile); err != nil {
		t.Fatal(err)
	}
	w.ok()
	if !w.InGrace() {
		t.Fatal("the grace period has ended")
	}
	w.pass(3*lease/2 + 1)
	w.Expire()
	if w.InGrace() {
		t.Error("the grace period lasts for more than two leases")
	}
}

// All that a process leaves is as it was in the next one, but for the connections. It is told what its clients were not.
func TestRestoreAll(t *testing.T) {
	w, _, _, _ := busyWorld(t)
	w.ready("holder", 2) // which has another verifier before
	w.join("idle", 1)
	var came []string
	for i := range 5 {
		came = append(came, fmt.Sprint("unconfirmed", i))
		_, e := w.exchange(came[i], 1)
		w.want(e, nfs4.OK)
	}
	w.dies() // what is uncertain stays so
	again := w.ready("again", 1)
	again.openBy("o", 1, state.Read)
	r, e := w.Sequence(state.SequenceArgs{Session: again.session, Slot: 1, Seq: 1, Digest: 1<<64 - 1, Ops: 2, Conn: again.conn})
	w.want(e, nfs4.OK)
	r.Slot.Done([]byte("\x00reply\xff"), true)
	for _, name := range came {
		_, e := w.exchange(name, 1)
		w.want(e, nfs4.OK)
	}
	for _, f := range []state.FileKey{file1(1), {Volume: 1<<64 - 1, Len: 46}} {
		want := w.WhatIsLeft()
		notices := []state.LockFree{{ClientID: 1, File: f, Owner: "\x00"}, {ClientID: 1<<64 - 1, File: f}}
		b := w.save(notices...)
		p, err := replay(w.config(), b)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(p.Notices(), notices) {
			t.Errorf("the notices are %v, want %v", p.Notices(), notices)
		}
		if err := w.restore(b, noFile); err != nil {
			t.Fatal(err)
		}
		w.ok()
		left := w.WhatIsLeft()
		if err := left.Differs(want); err != nil {
			t.Error(err)
		}
		if !slices.Equal(left.Unconfirmed, came) {
			t.Errorf("the unconfirmed clients came as %v, want %v", left.Unconfirmed, came)
		}
	}
}

// A process that has nothing leaves nothing.
func TestLeaveNothing(t *testing.T) {
	w := newWorld(t, state.Limits{})
	if b := w.save(); len(b) > 0 {
		t.Errorf("it leaves %q", b)
	}
}

// What is left can't be written: the log before goes on to be right, with what was not yet in it.
func TestLeaveFails(t *testing.T) {
	w, n, _, _ := busyWorld(t)
	answered := n.openBy("o", 2, state.Read)
	_, e := n.renew() // it has the reply, which is not in the log yet
	w.want(e, nfs4.OK)
	for _, left := range []*memoryLog{{err: io.ErrShortWrite}, {copyErr: io.ErrShortWrite}} {
		if err := w.Leave(left, encodeCallback, nil); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("it leaves: %v", err)
		}
	}
	w.Stop()
	p, err := replay(w.config(), w.logged.bytes)
	if err != nil {
		t.Fatal(err)
	}
	if p.Left() {
		t.Error("the log says that all is there")
	}
	s, err := p.State(nil, w.tracking.become, noFile)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.Counts(); n.Opens != 3 || n.Locks != 1 {
		t.Errorf("%+v", n)
	}
	if _, again, _ := s.ByStateid(answered); again != [2]state.Access{} {
		t.Error("an OPEN may come again")
	}
}

// changed returns a log with other records.
func changed(t *testing.T, b []byte, change func([]state.Record) []state.Record) []byte {
	t.Helper()
	var records []state.Record
	for d := json.NewDecoder(bytes.NewReader(recordsIn(b))); ; {
		var r state.Record
		err := d.Decode(&r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	var frames []byte
	for _, r := range change(records) {
		frames = append(frames, r.Frame()...)
	}
	return frames
}

// What contradicts itself is refused, and no file is opened for it.
func TestRestoreDamaged(t *testing.T) {
	w, _, _, _ := busyWorld(t)
	b := w.save()
	// first returns the first record that is one.
	first := func(list []state.Record, is func(*state.Record) bool) *state.Record {
		for i := range list {
			if is(&list[i]) {
				return &list[i]
			}
		}
		t.Fatal("there is no such record")
		return nil
	}
	client := func(r *state.Record) bool { return r.Client != nil }
	session := func(r *state.Record) bool { return r.Session != nil }
	open := func(r *state.Record) bool { return r.Open != nil }
	locks := func(r *state.Record) bool { return r.Locks != nil }
	// set changes the first record that is one, and twice has it come once more in the end.
	set := func(is func(*state.Record) bool, do func(*state.Record)) func([]state.Record) []state.Record {
		return func(list []state.Record) []state.Record { do(first(list, is)); return list }
	}
	twice := func(is func(*state.Record) bool, do func(*state.Record)) func([]state.Record) []state.Record {
		return func(list []state.Record) []state.Record {
			r := *first(list, is)
			do(&r)
			return append(list, r)
		}
	}
	for name, damage := range map[string]func([]state.Record) []state.Record{
		"nothing that says something":          func(list []state.Record) []state.Record { return append(list, state.Record{}) },
		"a client without an ID":               set(client, func(r *state.Record) { r.Client.ID = 0 }),
		"a client without a minor version":     set(client, func(r *state.Record) { r.Client.Minor = 0 }),
		"a client without a lease":             set(client, func(r *state.Record) { r.Client.Lease = 0 }),
		"an owner with two clients":            twice(client, func(r *state.Record) { c := *r.Client; c.ID++; r.Client = &c }),
		"another owner":                        twice(client, func(r *state.Record) { c := *r.Client; c.Owner = []byte("x"); r.Client = &c }),
		"no more confirmed":                    twice(client, func(r *state.Record) { c := *r.Client; c.Confirmed = false; r.Client = &c }),
		"off the client tracking with an open": twice(client, func(r *state.Record) { c := *r.Client; c.Recorded = false; r.Client = &c }),
		"an open off the client tracking":      set(client, func(r *state.Record) { r.Client.Recorded = false }),
		"many earlier verifiers":               set(client, func(r *state.Record) { r.Client.Earlier = make([]state.EarlierRecord, state.MaxEarlier+1) }),
		"a session of nobody":                  set(session, func(r *state.Record) { r.Session.Client++ }),
		"a session twice":                      twice(session, func(*state.Record) {}),
		"a session without slots":              set(session, func(r *state.Record) { r.Session.Slots = nil }),
		"a session of who has none": func(list []state.Record) []state.Record {
			first(list, client).Client.Confirmed = false
			return slices.DeleteFunc(list, func(r state.Record) bool { return r.Open != nil })
		},
		"a callback that is none": set(session, func(r *state.Record) { r.Session.Callback = json.RawMessage("1") }),
		"a long reply": set(session, func(r *state.Record) {
			r.Session.Slots[0] = state.SlotRecord{Cached: true, Reply: make([]byte, channel.MaxResponseCached+1)}
		}),
		"more replies than there is room for": set(session, func(r *state.Record) { r.Session.Fore.MaxResponseCached = 1<<32 - 1 }),
		"an open of nobody":                   set(open, func(r *state.Record) { r.Open.Client++ }),
		"an open by two numbers":              twice(open, func(r *state.Record) { o := *r.Open; o.Number += 100; r.Open = &o }),
		"an open of another file":             twice(open, func(r *state.Record) { o := *r.Open; o.Volume++; r.Open = &o }),
		"an open by another owner":            twice(open, func(r *state.Record) { o := *r.Open; o.Owner = []byte("x"); r.Open = &o }),
		"an open without a number":            twice(open, func(r *state.Record) { o := *r.Open; o.Number = 0; o.Owner = []byte("x"); r.Open = &o }),
		"an open that another denies":         set(open, func(r *state.Record) { r.Open.Deny = state.Both }),
		"an open for nothing":                 set(open, func(r *state.Record) { r.Open.Access = 0 }),
		"an open without OPENs":               set(open, func(r *state.Record) { r.Open.Combos = 0 }),
		"an open without a seqid":             set(open, func(r *state.Record) { r.Open.Seqid = 0 }),
		"a long file ID":                      set(open, func(r *state.Record) { r.Open.File = make([]byte, 47) }),
		"ranges out of order":                 set(locks, func(r *state.Record) { r.Locks.Ranges = append(r.Locks.Ranges, r.Locks.Ranges[0]) }),
		"a range that ends first":             set(locks, func(r *state.Record) { r.Locks.Ranges[0] = state.RangeRecord{First: 1} }),
		"an open's number":                    set(locks, func(r *state.Record) { r.Locks.Number++ }),
		"a lock without a seqid":              set(locks, func(r *state.Record) { r.Locks.Seqid = 0 }),
		"a lock of no open":                   set(locks, func(r *state.Record) { r.Locks.Open = 0 }),
		"an owner with two locks":             twice(locks, func(r *state.Record) { l := *r.Locks; l.Number += 100; l.Ranges = nil; r.Locks = &l }),
		"a lock of two": func(list []state.Record) []state.Record {
			for i := range list {
				if o := list[i].Open; o != nil && o.Number != first(list, locks).Locks.Open {
					list = append(list, state.Record{Locks: &state.LocksRecord{Open: o.Number, Number: 1001, Owner: []byte("n"), Seqid: 1, Ranges: first(list, locks).Locks.Ranges}})
				}
			}
			return list
		},
		"a LOCK of what another has": func(list []state.Record) []state.Record {
			for i := range list {
				if o := list[i].Open; o != nil && o.Number != first(list, locks).Locks.Open {
					list = append(list, state.Record{Lock: &state.LockRecord{Open: o.Number, Number: 1001, Owner: []byte("n"), Seqid: 1, Set: &state.RangeRecord{}}})
				}
			}
			return list
		},
		"a LOCK of nothing": twice(locks, func(r *state.Record) {
			l := r.Locks
			*r = state.Record{Lock: &state.LockRecord{Open: l.Open, Number: l.Number, Owner: l.Owner, Seqid: 2}}
		}),
		"a lock freed with range": twice(locks, func(r *state.Record) { *r = state.Record{Freed: r.Locks.Number} }),
		"a wait that ends first":  set(func(r *state.Record) bool { return r.Wait != nil }, func(r *state.Record) { r.Wait.Range = state.RangeRecord{First: 1} }),
		"reclaims without grace": func(list []state.Record) []state.Record {
			return append(list, state.Record{Awaited: &state.AwaitedRecord{}})
		},
		"a notice of a long file": func(list []state.Record) []state.Record {
			return append(list, state.Record{Notice: &state.NoticeRecord{File: make([]byte, 47)}})
		},
		"not all of it": func(list []state.Record) []state.Record { return list[:len(list)-1] },
	} {
		t.Run(name, func(t *testing.T) {
			if err := w.restore(changed(t, b, damage), func(state.FileKey, state.Access) state.Descriptor { t.Error("a file is opened"); return nil }); err == nil {
				t.Error("it was restored")
			}
		})
	}
	if err := w.restore(changed(t, b, func(list []state.Record) []state.Record { return list }), noFile); err != nil {
		t.Errorf("as it was: %v", err)
	}
	w.ok()
}

// What is cut anywhere is not whole.
func TestRestoreCut(t *testing.T) {
	w, _, _, _ := busyWorld(t)
	b := w.save()
	for i := range b {
		p, err := replay(w.config(), b[:i])
		if err != nil {
			t.Fatal(err)
		}
		if p.Left() {
			t.Fatalf("%d of %d bytes are all", i, len(b))
		}
	}
}

// One owner locks a file whole by one open, and in more pieces than a look passes over by others, as a podnas let it that
// counted them for each open: the next process takes that for what it is.
func TestRestoreOwnRanges(t *testing.T) {
	w := newWorld(t, state.Limits{Ranges: 5000}).unlogged()
	n := w.ready("node", 1)
	first, second, whole := n.mustOpen("a", 1), n.mustOpen("b", 1), n.mustOpen("c", 1)
	_, _, e := n.lock(whole, "l", 1, true, 0, toEOF)
	w.want(e, nfs4.OK)
	for _, o := range []nfs4.Stateid{first, second} {
		lock, _, e := n.lock(o, "l", 1, true, 0, 1)
		w.want(e, nfs4.OK)
		for i := uint64(1); i < 2048; i++ {
			lock, _, e = w.Lock(n.c, state.LockArgs{Stateid: lock, File: file1(1), Write: true, Offset: 2 * i, Length: 1})
			w.want(e, nfs4.OK)
		}
	}
	if err := w.restore(w.save(), noFile); err != nil {
		t.Fatal(err)
	}
}
