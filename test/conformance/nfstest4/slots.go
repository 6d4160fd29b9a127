package nfstest4

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
)

// slotTests are what SEQUENCE keeps, and what it makes of errors: RFC 8881 sections 2.10.6 and 18.46.
var slotTests = []test{
	{"any reply is kept", testAnyReply},
	{"reply of sequence alone too big", testSequenceTooBig},
	{"retry of what was not kept", testRetryUncached},
	{"retry after a replay", testRetryOften},
	{"tag is no part of it", testRetryTag},
	{"implicit bind", testImplicitBind},
	{"two sessions", testTwoSessions},
	{"after any error", testAfterErrors},
	{"after secinfo cut short", testSecinfoCut},
	{"current stateid lost", testStateidLost},
	{"stateids tested", testStateidsTested},
	{"many stateids", testManyStateids},
	{"delegations", testNoDelegations},
}

// Section 2.10.6.1: whatever came of a request, a retry gets that.
func testAnyReply(e *env) {
	e.file("f", "")
	for _, tt := range []struct {
		name string
		ops  []op
		want nfs4.Status
	}{
		{"nothing but sequence", nil, nfs4.OK},
		{"idempotent", []op{putrootfh(), getfh()}, nfs4.OK},
		{"rename", []op{putfh(e.dir), savefh(), rename("f", "g")}, nfs4.OK},
		{"idempotent that fails", []op{putrootfh(), lookup("")}, nfs4.ErrInval},
		{"rename that fails", []op{putfh(e.dir), savefh(), rename("", "g")}, nfs4.ErrInval},
		{"illegal", []op{{nfs4.OpIllegal, nil, &nfs4.StatusRes{}}}, nfs4.ErrOpIllegal},
		{"not served", []op{{nfs4.OpSetSSV, make(raw, 32), &nfs4.StatusRes{}}}, nfs4.ErrNotSupp},
		{"not decoded", []op{{nfs4.OpLookup, raw{0, 0}, &nfs4.StatusRes{}}}, nfs4.ErrBadXDR},
		{"sequence again", []op{sequence(nfs4.SequenceArgs{SessionID: e.session})}, nfs4.ErrSequencePos},
	} {
		e.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
			c := e.with(t)
			ops := append([]op{c.next()}, tt.ops...)
			first := c.bare(ops...)
			if first.status != tt.want {
				t.Fatalf("%v, want %v", first.status, tt.want)
			}
			for range 2 {
				if again := c.bare(ops...); !same(first, again) {
					t.Errorf("sent again: %v\n%x\n%x", again.status, first.bytes, again.bytes)
				}
			}
			c.ok(putrootfh())
		})
	}
}

// Section 2.10.6.1.3: what is to be cached and can't be is refused before it is done, if it is
// SEQUENCE that has no room by SEQUENCE. The slot stays where it is.
func testSequenceTooBig(e *env) {
	args := e.createSessionArgs()
	args.Fore.MaxResponseSizeCached = 10
	e.createSession(args)
	for _, ops := range [][]op{nil, {putfh(e.dir), mkdir("made")}} {
		seq := sequence(nfs4.SequenceArgs{SessionID: e.session, SequenceID: *e.seq + 1, CacheThis: true})
		e.wants(e.bare(append([]op{seq}, ops...)...), nfs4.OpSequence, 1, nfs4.ErrRepTooBigToCache)
	}
	*e.seq++
	r := e.bare(sequence(nfs4.SequenceArgs{SessionID: e.session, SequenceID: *e.seq}), putfh(e.dir), lookup("made"))
	e.wants(r, nfs4.OpLookup, 3, nfs4.ErrNoEnt)
	e.createSession(e.createSessionArgs()) // which can keep what is to clean up
}

// Section 2.10.6.1.3: it is the operation after SEQUENCE that says that its reply is gone. A server
// may have kept it all the same.
func testRetryUncached(e *env) {
	for _, o := range []op{putrootfh(), savefh(), {nfs4.OpIllegal, nil, &nfs4.StatusRes{}}, {nfs4.OpRenew, make(raw, 8), &nfs4.StatusRes{}}} {
		e.Run(o.num.String(), func(t *testing.T) {
			c := e.with(t)
			*c.seq++
			ops := []op{sequence(nfs4.SequenceArgs{SessionID: c.session, SequenceID: *c.seq}), o}
			first := c.bare(ops...)
			for range 2 {
				if again := c.bare(ops...); !same(first, again) {
					c.wants(again, o.num, 2, nfs4.ErrRetryUncachedRep)
				}
			}
			c.ok(putrootfh())
		})
	}
}

// Section 2.10.6.1: a retry changes nothing, however often it comes, and whatever comes between.
func testRetryOften(e *env) {
	other := e.another()
	ops := []op{e.next(), putfh(e.dir), mkdir("made"), getfh()}
	first := e.bare(ops...)
	for i := range 10 {
		name := fmt.Sprint(i)
		other.ok(putfh(e.dir), mkdir(name))
		wrong := sequence(nfs4.SequenceArgs{SessionID: e.session, SequenceID: *e.seq + 2})
		e.wants(e.bare(wrong, putrootfh()), nfs4.OpSequence, 1, nfs4.ErrSeqMisordered)
		if again := e.bare(ops...); !same(first, again) {
			e.Fatalf("retry %d: %v\n%x\n%x", i, again.status, first.bytes, again.bytes)
		}
	}
	e.ok(putfh(e.dir), lookup("made"))
}

// Section 16.2.3: a tag means nothing.
func testRetryTag(e *env) {
	ops := []op{e.next(), putfh(e.dir), mkdir("made")}
	if r := e.compound(&call{minor: e.minor, tag: "first", ops: ops}); r.status != nfs4.OK {
		e.Fatal(r.status)
	}
	if r := e.compound(&call{minor: e.minor, tag: "again", ops: ops}); r.status != nfs4.OK {
		e.Error(r.status)
	}
	e.ok(putfh(e.dir), lookup("made"))
}

// Section 2.10.3.1: SEQUENCE binds the connection that it comes by.
func testImplicitBind(e *env) {
	first := *e.client
	for range 3 {
		e.conn = e.dial()
		e.ok(putrootfh())
	}
	first.ok(putrootfh())
}

// Section 2.10.4: sessions of a client have slots of their own, and share what is open.
func testTwoSessions(e *env) {
	first := *e.client
	e.createSession(e.createSessionArgs())
	second := *e.client
	fh, id := first.open(e.dir, opening{name: "f", create: true})
	second.ok(putfh(fh), write(id, 0, "content"))
	second.ok(putfh(e.dir), open(second.openArgs(opening{name: "f"})))
	first.refused([]op{putfh(fh), closeOp(id)}, nfs4.ErrOldStateid)
	first.wants(first.bare(destroySession(first.session)), nfs4.OpDestroySession, 1, nfs4.OK)
	id.Seqid = 0
	if res := get[nfs4.ReadRes](e, second.ok(putfh(fh), read(id, 0, 100))); string(res.Data) != "content" {
		e.Errorf("read %q", res.Data)
	}
	second.ok(putfh(fh), closeOp(id))
}

// The slot, and what the client has, are usable after whatever went wrong.
func testAfterErrors(e *env) {
	fh, id := e.client.open(e.dir, opening{name: "f", create: true})
	for i, o := range append(anyOps(), op{nfs4.OpIllegal, nil, &nfs4.StatusRes{}}) {
		if o.num == nfs4.OpBackchannelCtl || o.num == nfs4.OpReclaimComplete {
			continue
		}
		before := *e.seq
		e.do(o) // without a file handle, most fail
		e.do(putrootfh(), o)
		e.do(putfh(fh), o)
		e.do(putfh(e.dir), o)
		if *e.seq != before+4 {
			e.Fatalf("the test's own count after %d", i)
		}
		if o.num != nfs4.OpSecinfo && o.num != nfs4.OpSecinfoNoName {
			e.cutShort(o)
		}
	}
	e.ok(putfh(fh), write(id, 0, "content"), closeOp(id))
}

// cutShort sends the operation without the end of its arguments.
func (e *env) cutShort(o op) {
	e.Helper()
	if o.args == nil {
		return
	}
	all := o.args.Append(nil)
	for _, n := range []int{0, 1, len(all) / 2, len(all) - 1} {
		if r := e.do(putfh(e.dir), op{o.num, raw(all[:max(0, n)]), o.res}); n >= 0 && r.status == nfs4.OK {
			e.Errorf("%v with %d of %d bytes: %v", o.num, n, len(all), r.status)
		}
	}
}

// The same of the two that tell of an export.
func testSecinfoCut(e *env) {
	for range 10 {
		e.cutShort(secinfo("x"))
		e.cutShort(secinfoNoName(nfs4.SecinfoParent))
	}
	e.ok(putfh(e.dir), secinfoNoName(nfs4.SecinfoCurrentFH))
	e.ok(putfh(e.dir), getattrs(nfs4.AttrType))
}

// Section 16.2.3.1.2: operations that choose another file, or none, leave no stateid.
func testStateidLost(e *env) {
	cur := nfs4.CurrentStateid()
	args := e.openArgs(opening{name: "f", create: true})
	e.ok(putfh(e.dir), mkdir("sub"))
	fh, _ := e.client.open(e.dir, opening{name: "f", create: true})
	for _, ops := range [][]op{
		{putfh(fh)},
		{plain(nfs4.OpPutpubfh), putfh(fh)},
		{putfh(e.dir), lookup("sub"), lookupp(), lookup("f")},
		{restorefh()}, // saved without one
	} {
		e.refused(append(append([]op{putfh(fh), savefh(), putfh(e.dir), open(args)}, ops...), closeOp(cur)), nfs4.ErrBadStateid)
	}
	// Those that take one leave it, and so do those that take none.
	id := get[nfs4.OpenRes](e, e.ok(putfh(e.dir), open(args), getattrs(nfs4.AttrSize), access(nfs4.AccessRead), commit(0, 0), setattr(cur, size(5)), write(cur, 0, "12345"),
		read(cur, 0, 5), lockt(nfs4.LocktArgs{Type: nfs4.LockRead, Length: 1, Owner: nfs4.StateOwner{Owner: []byte("l")}}), testStateid(), downgrade(cur, nfs4.ShareAccessBoth, 0), read(cur, 0, 1))).Stateid
	// FREE_STATEID of the current one, in the place of CLOSE.
	e.refused([]op{putfh(e.dir), open(args), freeStateid(cur)}, nfs4.ErrLocksHeld)
	// LOCKU's is the lock's: the open's is gone.
	lockArgs := nfs4.LockArgs{Type: nfs4.LockWrite, Length: 10, NewOwner: true, OpenStateid: nfs4.Stateid{Other: id.Other}, Owner: nfs4.StateOwner{Owner: []byte("l")}}
	e.ok(putfh(fh), lock(lockArgs), write(cur, 5, "x"), locku(cur, 0, 10), freeStateid(cur))
	e.refused([]op{putfh(fh), delegreturn(cur)}, nfs4.ErrBadStateid)
	e.ok(putfh(fh), closeOp(nfs4.Stateid{Other: id.Other}))
}

// Sections 8.2.3 and 18.48: of each stateid it is said what it is; a seqid of 0 is the newest.
func testStateidsTested(e *env) {
	l := e.locker(e.client, "l")
	l.want("LOCK", l.lock(nfs4.LockWrite, 0, 10), nfs4.OK)
	newest := func(id nfs4.Stateid) nfs4.Stateid { return nfs4.Stateid{Other: id.Other} }
	ids := []nfs4.Stateid{newest(l.openID), newest(l.id), nfs4.CurrentStateid(), {Seqid: 7}, {Other: nfs4.BypassStateid().Other}}
	want := is(nfs4.OK, nfs4.OK, nfs4.ErrBadStateid, nfs4.ErrBadStateid, nfs4.ErrBadStateid)
	if got := get[nfs4.TestStateidRes](e, e.ok(testStateid(ids...))).Statuses; fmt.Sprint(got) != fmt.Sprint(want) {
		e.Errorf("%v, want %v", got, want)
	}
	for _, id := range []nfs4.Stateid{{}, nfs4.BypassStateid(), nfs4.InvalidStateid(), {Seqid: 7}} {
		e.refused([]op{freeStateid(id)}, nfs4.ErrBadStateid)
	}
	e.refused([]op{freeStateid(newest(l.id))}, nfs4.ErrLocksHeld)
	l.want("LOCKU", l.unlock(0, math.MaxUint64), nfs4.OK)
	e.ok(freeStateid(newest(l.id)))
	e.ok(putfh(l.fh), closeOp(l.openID))
	e.refused([]op{freeStateid(l.openID)}, nfs4.ErrBadStateid)
	if got := get[nfs4.TestStateidRes](e, e.ok(testStateid(l.openID, l.id))).Statuses; fmt.Sprint(got) != fmt.Sprint(is(nfs4.ErrBadStateid, nfs4.ErrBadStateid)) {
		e.Errorf("after CLOSE: %v", got)
	}
}

// Section 18.48: more stateids than have room in the reply, and as many as have it.
func testManyStateids(e *env) {
	ids := make([]nfs4.Stateid, 500)
	*e.seq++
	r := e.bare(sequence(nfs4.SequenceArgs{SessionID: e.session, SequenceID: *e.seq}), testStateid(ids...))
	if res := get[nfs4.TestStateidRes](e, r); r.status != nfs4.OK || len(res.Statuses) != len(ids) {
		e.Errorf("%v, %d statuses", r.status, len(res.Statuses))
	}
	args := e.createSessionArgs()
	args.Fore.MaxResponseSize, args.Fore.MaxResponseSizeCached = 1024, 1024
	e.createSession(args)
	*e.seq++
	r = e.bare(sequence(nfs4.SequenceArgs{SessionID: e.session, SequenceID: *e.seq}), testStateid(ids...))
	e.wants(r, nfs4.OpTestStateid, 2, nfs4.ErrRepTooBig)
	e.ok(putrootfh())
}

// Sections 18.5, 18.6: without delegations there is none to return.
func testNoDelegations(e *env) {
	fh, id := e.client.open(e.dir, opening{name: "f", create: true})
	e.refused([]op{delegreturn(nfs4.Stateid{})}, nfs4.ErrNoFileHandle)
	for _, id := range []nfs4.Stateid{{}, id, nfs4.BypassStateid(), {Seqid: 1, Other: [12]byte{1, 2, 3}}} {
		e.refused([]op{putfh(fh), delegreturn(id)}, nfs4.ErrBadStateid)
	}
	e.ok(putfh(fh), closeOp(id))
	if !bytes.Equal(e.fh(putfh(e.dir), lookup("f")), fh) {
		e.Error("another file")
	}
}
