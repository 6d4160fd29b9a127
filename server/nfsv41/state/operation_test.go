package state_test

import (
	"fmt"
	"slices"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// operation does one operation of a client.
func (r *runner) operation(c *state.Client, mc *mClient) {
	switch n := r.rand.IntN(20); {
	case n < 2:
		r.opReclaimComplete(c, mc)
	case n < 7:
		r.opOpen(c, mc)
	case n < 9:
		r.opWithOpen(c, mc)
	case n < 11:
		r.opCheck(c, mc)
	case n < 12:
		r.opFree(c, mc)
	case n < 17:
		r.opLock(c, mc)
	case n < 18:
		r.opTestLock(c, mc)
	default:
		r.opUnlock(c, mc)
	}
}

func (r *runner) opReclaimComplete(c *state.Client, mc *mClient) {
	oneFS := mostly(r, false, true)
	e := r.ReclaimComplete(c, oneFS)
	r.same("reclaim complete", e, OKor(mc.complete && !oneFS, nfs4.ErrCompleteAlready))
	if e == nfs4.OK && !oneFS {
		mc.complete = true
		if r.m.grace != nil && r.m.grace.awaited[mc.owner] {
			r.m.grace.awaited[mc.owner] = false
			r.m.endGrace()
		}
	}
}

var fileOwners = []string{"", "o\x00", "o\x00\x00"}

func (r *runner) opOpen(c *state.Client, mc *mClient) {
	owner, f := pick(r, fileOwners), r.rand.IntN(3)
	access := mostly(r, state.Access(1+r.rand.IntN(3)), state.Access(r.rand.IntN(5)))
	deny := mostly(r, 0, state.Access(r.rand.IntN(5)))
	reclaim := mostly(r, r.m.grace != nil && !mc.complete, r.m.grace == nil)
	h := newHeld(r.t)
	a := state.OpenArgs{Owner: []byte(owner), File: file1(f), Access: access, Deny: deny, Reclaim: reclaim, Descriptor: h}
	known := r.m.openOf(mc, owner, f) != nil
	if r.rand.IntN(2) == 0 {
		a.Slot = r.slot
	}
	// What is reserved and given up changes nothing, and Open finds what Reserve has found.
	var reserved state.Reservation
	if r.rand.IntN(2) == 0 && r.Reserve(c, a, &reserved) == nfs4.OK {
		if r.rand.IntN(2) == 0 {
			r.Unreserve(&reserved)
		}
		a.Reserved = &reserved
	}
	id, isNew, e := r.Open(c, a)
	want := r.m.open(mc, owner, f, access, deny, reclaim)
	r.same(fmt.Sprintf("open reclaim=%t", reclaim), e, want)
	if e != nfs4.OK {
		return
	}
	r.helds = append(r.helds, h)
	o := r.m.openOf(mc, owner, f)
	if a.Slot != nil {
		o.unanswered = [2]state.Access{access, deny}
		r.mslot.opened, r.mslot.seqid = o, o.id.Seqid
	}
	if isNew == known {
		r.t.Fatalf("new is %t", isNew)
	}
	if isNew {
		o.id.Other = id.Other
		if slices.ContainsFunc(r.stale, func(old nfs4.Stateid) bool { return old.Other == id.Other }) {
			r.t.Fatalf("stateid %v comes a second time", id)
		}
	}
	if id != o.id {
		r.t.Fatalf("stateid is %v, the model says %v", id, o.id)
	}
	r.stale = append(r.stale, id)
}

// someStateid returns a stateid of any time and any client, or near one.
func (r *runner) someStateid(mc *mClient, locksOnly bool) nfs4.Stateid {
	var mine []nfs4.Stateid
	for _, o := range r.m.opensOf(mc) {
		if !locksOnly {
			mine = append(mine, o.id)
		}
		for _, l := range o.locks {
			mine = append(mine, l.id)
		}
	}
	if len(mine) == 0 || r.rand.IntN(10) == 0 {
		mine = r.stale
	}
	id := pick(r, mine)
	switch r.rand.IntN(12) {
	case 0:
		id.Seqid++
	case 1:
		id.Seqid--
	case 2, 3, 4:
		id.Seqid = 0
	case 5:
		id.Other[r.rand.IntN(12)] ^= 1
	}
	return id
}

// find returns what a stateid stands for, and what is wrong with it.
func (m *model) findStateid(mc *mClient, id nfs4.Stateid, file int) (o *mOpen, l *mLocks, e nfs4.Status) {
	var current uint32
	uncertain := false
	for _, mo := range m.opensOf(mc) {
		if mo.id.Other == id.Other {
			o, current, uncertain = mo, mo.id.Seqid, mo.uncertain
		}
		for _, ml := range mo.locks {
			if ml.id.Other == id.Other {
				o, l, current, uncertain = mo, ml, ml.id.Seqid, ml.uncertain
			}
		}
	}
	switch {
	case o == nil, file >= 0 && o.file != file:
		return nil, nil, nfs4.ErrBadStateid
	case id.Seqid == 0 || id.Seqid == current, uncertain && id.Seqid < current:
		return o, l, nfs4.OK
	case id.Seqid < current:
		return o, l, nfs4.ErrOldStateid
	}
	return o, l, nfs4.ErrBadStateid
}

// uses notes that a client has used the stateid of an open.
func (o *mOpen) uses(id nfs4.Stateid) {
	if id.Seqid == o.id.Seqid || o.id.Seqid == 1 {
		o.notRepeated()
	}
}

// aFile is mostly the one that the stateid is for.
func (r *runner) aFile(mc *mClient, id nfs4.Stateid) int {
	o, _, _ := r.m.findStateid(mc, id, -1)
	if o == nil {
		return r.rand.IntN(3)
	}
	return mostly(r, o.file, r.rand.IntN(3))
}

func (r *runner) opWithOpen(c *state.Client, mc *mClient) {
	id := r.someStateid(mc, false)
	f := r.aFile(mc, id)
	o, l, want := r.m.findStateid(mc, id, f)
	if l != nil {
		want = nfs4.ErrBadStateid // it must be of an open
	}
	if want == nfs4.OK {
		o.uses(id)
	}
	if r.rand.IntN(3) == 0 {
		r.same("close", r.Close(c, id, file1(f)), want)
		if want == nfs4.OK {
			r.m.opens = without(r.m.opens, o)
		}
		return
	}
	access, deny := state.Access(1+r.rand.IntN(3)), mostly(r, 0, state.Access(r.rand.IntN(5)))
	if want == nfs4.OK {
		want = r.m.downgrade(o, access, deny)
	}
	got, e := r.Downgrade(c, id, file1(f), access, deny)
	r.same("downgrade", e, want)
	if e == nfs4.OK && got != o.id {
		r.t.Fatalf("stateid is %v, the model says %v", got, o.id)
	}
}

func (r *runner) opCheck(c *state.Client, mc *mClient) {
	id := r.someStateid(mc, false)
	f, access := r.aFile(mc, id), state.Access(1+r.rand.IntN(3))
	o, l, want := r.m.findStateid(mc, id, f)
	if want == nfs4.OK {
		if l == nil {
			o.uses(id)
		}
		if a, _ := o.share(); access&^a != 0 {
			want = nfs4.ErrOpenMode
		}
	}
	h, e := r.Check(c, id, file1(f), access)
	r.same("check", e, want)
	if e == nfs4.OK {
		if h.(*fakeHeld).users.Load() < 2 {
			r.t.Fatal("Check gave a descriptor that nobody has open")
		}
		h.Release()
	}
	_, _, want = r.m.findStateid(mc, id, -1)
	r.same("test", r.TestStateid(c, id), want)
}

func (r *runner) opFree(c *state.Client, mc *mClient) {
	id := r.someStateid(mc, r.rand.IntN(2) == 0)
	o, l, want := r.m.findStateid(mc, id, -1)
	free := false
	switch {
	case want == nfs4.OK && (l == nil || l.cells != [cells]byte{}):
		want = nfs4.ErrLocksHeld
	case want == nfs4.OK:
		free = true
	}
	r.same("free", r.FreeStateid(c, id), want)
	if free {
		o.locks = without(o.locks, l)
	}
}

// aRange returns cells, and a range of them that may be wrong.
func (r *runner) aRange() (i, j int, offset, length uint64, e nfs4.Status) {
	i, j = r.rand.IntN(cells), r.rand.IntN(cells)
	if i > j {
		i, j = j, i
	}
	offset = cellStart(i)
	if j == cells-1 {
		length = toEOF
	} else {
		length = cellEnd(j) - offset + 1
	}
	if length == toEOF {
		j = cells - 1 // from 0 to 2^64-2 can't be said
	}
	switch r.rand.IntN(30) {
	case 0:
		return i, j, offset, 0, nfs4.ErrInval
	case 1:
		if offset > 1 {
			return i, j, offset, toEOF - offset + 1, nfs4.ErrInval
		}
	}
	return i, j, offset, length, nfs4.OK
}

func (r *runner) opLock(c *state.Client, mc *mClient) {
	id := r.someStateid(mc, false)
	f := r.aFile(mc, id)
	i, j, offset, length, bad := r.aRange()
	a := state.LockArgs{
		File: file1(f), Write: r.rand.IntN(2) == 0, Offset: offset, Length: length,
		Reclaim: mostly(r, r.m.grace != nil && !mc.complete, r.m.grace == nil),
	}
	o, l, want := r.m.findStateid(mc, id, f)
	owner := pick(r, fileOwners)
	if l == nil {
		a.NewOwner, a.Owner = true, []byte(owner)
	} else {
		owner = l.owner
	}
	a.Stateid = id
	if bad != nfs4.OK {
		want = bad
	}
	if want == nfs4.OK && a.NewOwner {
		o.uses(id)
	}
	if want == nfs4.OK {
		l, want = r.m.lock(o, l, owner, i, j, a.Write, a.Reclaim)
	}
	got, d, e := r.Lock(c, a)
	r.same(fmt.Sprintf("lock reclaim=%t", a.Reclaim), e, want)
	switch e {
	case nfs4.OK:
		if got.Seqid == 1 {
			l.id.Other = got.Other
			if slices.ContainsFunc(r.stale, func(old nfs4.Stateid) bool { return old.Other == got.Other }) {
				r.t.Fatalf("stateid %v comes a second time", got)
			}
		}
		if got != l.id {
			r.t.Fatalf("stateid is %v, the model says %v", got, l.id)
		}
		r.stale = append(r.stale, got)
	case nfs4.ErrDenied:
		r.checkDenied(mc, owner, f, i, j, a.Write, d)
	}
}

// checkDenied looks for the lock that is said to be in the way.
func (r *runner) checkDenied(mc *mClient, owner string, f, i, j int, write bool, d state.Denied) {
	holder := r.m.client(d.ClientID)
	last := d.Offset + d.Length - 1
	if d.Length == toEOF {
		last = toEOF
	}
	if d.Length == 0 || last < d.Offset || holder == nil || holder == mc && d.Owner == owner {
		r.t.Fatalf("denied by %+v", d)
	}
	for _, o := range r.m.opensOf(holder) {
		for _, l := range o.locks {
			if o.file != f || l.owner != d.Owner {
				continue
			}
			for k := i; k <= j; k++ {
				if in := d.Offset <= cellStart(k) && cellEnd(k) <= last; in && l.cells[k] != 0 &&
					(l.cells[k] == 'w') == d.Write && (write || d.Write) {
					return
				}
			}
		}
	}
	r.t.Fatalf("denied by %+v, which is not there", d)
}

func (r *runner) opTestLock(c *state.Client, mc *mClient) {
	f, owner, write := r.rand.IntN(3), pick(r, fileOwners), r.rand.IntN(2) == 0
	i, j, offset, length, want := r.aRange()
	if want == nfs4.OK && r.m.grace != nil {
		want = nfs4.ErrGrace
	}
	if want == nfs4.OK && r.m.excluded(mc, owner, f, i, j, write, false) {
		want = nfs4.ErrDenied
	}
	d, e := r.TestLock(c, []byte(owner), file1(f), write, offset, length)
	r.same("test lock", e, want)
	if e == nfs4.ErrDenied {
		r.checkDenied(mc, owner, f, i, j, write, d)
	}
}

func (r *runner) opUnlock(c *state.Client, mc *mClient) {
	id := r.someStateid(mc, true)
	f := r.aFile(mc, id)
	i, j, offset, length, bad := r.aRange()
	_, l, want := r.m.findStateid(mc, id, f)
	if l == nil {
		want = nfs4.ErrBadStateid // it must be of a lock owner
	}
	if bad != nfs4.OK {
		want = bad
	}
	if want == nfs4.OK {
		r.m.set(l, i, j, 0)
	}
	got, e := r.Unlock(c, id, file1(f), offset, length)
	r.same("unlock", e, want)
	if e == nfs4.OK && got != l.id {
		r.t.Fatalf("stateid is %v, the model says %v", got, l.id)
	}
}
