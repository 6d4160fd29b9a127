package state

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"
)

// busyWorld has two clients, one of which waits for the other's lock, with replies that can be
// asked for again.
func busyWorld(t testing.TB) (w *world, holder, waiter *node, lock Stateid) {
	w = newWorld(t, Limits{})
	holder, waiter = w.ready("holder", 1), w.ready("waiter", 1)
	id := holder.mustOpen("x", 1)
	lock, _, e := holder.lock(id, "l", 1, true, 0, toEOF)
	w.want(e, OK)
	_, _, e = waiter.lock(waiter.mustOpen("y", 1), "m", 1, false, 5, 5)
	w.want(e, ErrDenied)
	w.ok()
	return w, holder, waiter, lock
}

func noFile(FileKey, Access) Held { return nil }

// The next process answers a request that comes again from its slot, and tells who waits.
func TestRestore(t *testing.T) {
	w, holder, waiter, lock := busyWorld(t)
	again := SequenceArgs{Session: holder.session, Seq: 1, Digest: 7, Ops: 2, Conn: holder.conn}
	r, e := w.Sequence(again)
	w.want(e, OK)
	r.Slot.Done([]byte("reply"), true)
	roster := w.roster.entries()
	b := w.save()
	var saved Saved
	if err := json.Unmarshal(b, &saved); err != nil {
		t.Fatal(err)
	}
	byID := func(a, b RosterEntry) int { return int(a.ClientID>>1) - int(b.ClientID>>1) }
	got := saved.Roster()
	slices.SortFunc(got, byID)
	slices.SortFunc(roster, byID)
	if !slices.Equal(got, roster) {
		t.Errorf("roster is %v, want %v", got, roster)
	}
	w.pass(time.Hour) // the pod was away, and nobody else could get anything
	if err := w.restore(b, noFile); err != nil {
		t.Fatal(err)
	}
	w.ok()
	if w.InGrace() || w.saw(ClientCame) != 2 {
		t.Error("clients notice")
	}
	again.Conn = newConn("10.0.0.1:701")
	r, e = w.Sequence(again)
	w.want(e, OK)
	if string(r.Reply) != "reply" || r.Status != StatusCallbackPathDown|StatusCallbackPathDownSession {
		t.Errorf("the reply is %q, the status %#x", r.Reply, r.Status)
	}
	if paths := w.CallbackPaths(waiter.c.ID()); len(paths) != 0 {
		t.Errorf("there are connections: %+v", paths)
	}
	holder.c = w.clients[holder.c.ID()]
	_, e = w.Unlock(holder.c, lock, file1(1), 0, toEOF)
	w.want(e, OK)
	if len(w.free) != 1 || w.free[0].ClientID != waiter.c.ID() || w.free[0].Owner != "m" {
		t.Errorf("told %+v", w.free)
	}
	_, _, e = w.BindConn(waiter.session, newConn("10.0.0.2:700"), Back)
	w.want(e, OK)
	if paths := w.CallbackPaths(waiter.c.ID()); len(paths) != 1 || paths[0].Callback != "waiter" {
		t.Errorf("paths are %+v", paths)
	}
	w.ok()
}

// Whoever was there before has longer than a lease to return, and then a lease as ever.
func TestReturn(t *testing.T) {
	w := newWorld(t, Limits{})
	holder := w.ready("holder", 1)
	lock, _, e := holder.lock(holder.mustOpen("x", 1), "l", 1, true, 0, toEOF)
	w.want(e, OK)
	if err := w.restore(w.save(), noFile); err != nil {
		t.Fatal(err)
	}
	other := w.ready("other", 1)
	open := other.mustOpen("o", 1)
	locked := func(want Error) {
		t.Helper()
		_, e := other.renew()
		w.want(e, OK)
		_, _, e = other.lock(open, "l", 1, true, 0, toEOF)
		w.want(e, want)
	}
	w.pass(3 * lease)
	locked(ErrDenied)
	_, e = holder.renew()
	w.want(e, OK)
	w.pass(lease)
	locked(ErrDenied)
	w.pass(1)
	locked(OK)
	w.want(w.TestStateid(other.c, lock), ErrBadStateid)
	w.ok()
}

// A restart within the grace period goes on with it.
func TestRestoreGrace(t *testing.T) {
	w, _, _, _ := busyWorld(t)
	w.crash()
	n := w.join("holder", 1)
	w.want(w.ReclaimComplete(n.c, false), OK)
	w.pass(lease / 2)
	if err := w.restore(w.save(), noFile); err != nil {
		t.Fatal(err)
	}
	w.ok()
	if !w.InGrace() {
		t.Fatal("the grace period has ended")
	}
	w.pass(lease/2 + 1)
	w.Expire()
	if w.InGrace() {
		t.Error("the grace period lasts for more than a lease")
	}
}

// What contradicts itself is refused.
func TestRestoreDamaged(t *testing.T) {
	w, _, _, _ := busyWorld(t)
	b := w.save()
	for name, damage := range map[string]func(*Saved){
		"a client twice":              func(d *Saved) { d.Clients = append(d.Clients, d.Clients[0]) },
		"a client without an ID":      func(d *Saved) { d.Clients[0].ID = 0 },
		"an open off the roster":      func(d *Saved) { d.Clients[0].Recorded = false },
		"a session twice":             func(d *Saved) { d.Clients[1].Sessions = d.Clients[0].Sessions },
		"a session without slots":     func(d *Saved) { d.Clients[0].Sessions[0].Slots = nil },
		"a callback that is none":     func(d *Saved) { d.Clients[0].Sessions[0].Callback = json.RawMessage("1") },
		"an open twice":               func(d *Saved) { d.Clients[0].Opens = append(d.Clients[0].Opens, d.Clients[0].Opens[0]) },
		"a number of the future":      func(d *Saved) { d.Next = 0 },
		"an open that another denies": func(d *Saved) { d.Clients[0].Opens[0].Deny = Both },
		"an open for nothing":         func(d *Saved) { d.Clients[0].Opens[0].Access = 0 },
		"an open without OPENs":       func(d *Saved) { d.Clients[0].Opens[0].Combos = 0 },
		"a long reply": func(d *Saved) {
			d.Clients[0].Sessions[0].Slots[0] = SavedSlot{Cached: true, Reply: make([]byte, channel.MaxResponseCached+1)}
		},
		"a long file ID":          func(d *Saved) { d.Clients[0].Opens[0].File = make([]byte, 47) },
		"ranges out of order":     func(d *Saved) { l := d.lock(); l.Ranges = append(l.Ranges, l.Ranges[0]) },
		"a range that ends first": func(d *Saved) { d.lock().Ranges[0] = SavedRange{First: 1} },
		"an open's number":        func(d *Saved) { d.lock().Number++ },
		"a lock of two": func(d *Saved) {
			o := &d.Clients[1].Opens[0]
			o.Locks = append(o.Locks, SavedLock{Number: d.Next - 1 | 1, Owner: []byte("n"), Seqid: 1, Ranges: d.lock().Ranges})
		},
		"a waiter without an open": func(d *Saved) { d.Waits[0].Open = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			var saved Saved
			if err := json.Unmarshal(b, &saved); err != nil {
				t.Fatal(err)
			}
			damage(&saved)
			damaged, err := json.Marshal(saved)
			if err != nil {
				t.Fatal(err)
			}
			h := newHeld(t)
			if err := w.restore(damaged, func(FileKey, Access) Held { h.Retain(); return h }); err == nil {
				t.Error("it was restored")
			}
			if n := h.users.Load(); n != 1 {
				t.Errorf("a descriptor has %d users", n)
			}
		})
	}
	if err := w.restore(b, noFile); err != nil {
		t.Errorf("as it was: %v", err)
	}
	w.ok()
}

// lock is one that is held.
func (d *Saved) lock() *SavedLock {
	for i := range d.Clients {
		for j := range d.Clients[i].Opens {
			if locks := d.Clients[i].Opens[j].Locks; len(locks) > 0 {
				return &locks[0]
			}
		}
	}
	return nil
}

// Whatever is restored keeps the invariants, or is refused.
func FuzzRestore(f *testing.F) {
	w, _, _, _ := busyWorld(f)
	b := w.save()
	f.Add(b)
	f.Add(bytes.Replace(b, []byte(`"access":3`), []byte(`"access":1`), 1))
	f.Add(bytes.Replace(b, []byte(`"first":0`), []byte(`"first":18446744073709551615`), 1))
	f.Add([]byte(`{"grace":{"left":-1,"owners":[{"owner":"AA==","entries":[1,1]},{"owner":"AA=="}]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		w := newWorld(t, Limits{})
		if w.restore(b, noFile) == nil {
			w.ok()
		}
	})
}

// One owner locks a file whole by one open, and in more pieces than a look passes over by others: the next process
// takes that for what it is.
func TestRestoreOwnRanges(t *testing.T) {
	w := newWorld(t, Limits{}).unlogged()
	n := w.ready("node", 1)
	first, second, whole := n.mustOpen("a", 1), n.mustOpen("b", 1), n.mustOpen("c", 1)
	_, _, e := n.lock(whole, "l", 1, true, 0, toEOF)
	w.want(e, OK)
	for _, o := range []Stateid{first, second} {
		lock, _, e := n.lock(o, "l", 1, true, 0, 1)
		w.want(e, OK)
		for i := uint64(1); i < 2048; i++ {
			lock, _, e = w.Lock(n.c, LockArgs{Stateid: lock, File: file1(1), Write: true, Offset: 2 * i, Length: 1})
			w.want(e, OK)
		}
	}
	if err := w.restore(w.save(), noFile); err != nil {
		t.Fatal(err)
	}
}
