package nfstest4

import (
	"errors"
	"strings"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

// compoundTests are the rules of COMPOUND: RFC 8881 section 16.2, and what section 2.10
// says of the places that operations may have.
var compoundTests = []test{
	{"null", testNull},
	{"minor version", testMinorVersion},
	{"tag", testTag},
	{"tag that is no utf-8", testBadTag},
	{"no operation", testNoOperation},
	{"without a session", testWithoutSession},
	{"sequence first", testSequenceFirst},
	{"only operation", testOnlyOperation},
	{"illegal operation", testIllegalOperation},
	{"operations not served", testNotSupp},
	{"too many operations", testTooManyOps},
	{"bad xdr", testBadXDR},
	{"stops at an error", testStops},
}

// Section 16.1: NULL does nothing, for everyone. Section 16: there are two procedures.
func testNull(e *env) {
	h := rpc.CallHeader{RPCVersion: rpc.Version, Prog: nfs4.Program, Vers: nfs4.Version, Proc: nfs4.ProcNull}
	if b, err := e.conn.Do(e.Context(), h, nil); err != nil || len(b) != 0 {
		e.Errorf("NULL: %x, %v", b, err)
	}
	h.Proc = 2
	_, err := e.conn.Do(e.Context(), h, nil)
	var refused *rpc.RPCError
	if !errors.As(err, &refused) || refused.Accept != rpc.ProcUnavail {
		e.Errorf("procedure 2: %v", err)
	}
}

// Section 16.2.3: a minor version that is not served gets no results.
func testMinorVersion(e *env) {
	for _, minor := range []uint32{0, 3, 0xffffffff} {
		r := e.compound(&call{minor: minor, tag: "t", ops: []op{putrootfh(), getfh()}})
		if r.status != nfs4.ErrMinorVersMismatch || len(r.nums) != 0 || r.tag != "t" {
			e.Errorf("minor version %d: %v, results %v, tag %q", minor, r.status, r.nums, r.tag)
		}
	}
}

// Section 16.2.3: the tag is the call's.
func testTag(e *env) {
	for _, tag := range []string{"", "t", "of five", "zero\x00", strings.Repeat("tag4", 256)} {
		if r := e.compound(&call{minor: e.minor, tag: tag, ops: []op{e.next(), putrootfh()}}); r.tag != tag || r.status != nfs4.OK {
			e.Errorf("tag %q came back as %q, status %v", tag, r.tag, r.status)
		}
	}
}

// Section 14.5: it is UTF-8, as its type says.
func testBadTag(e *env) {
	for _, tag := range []string{"\xff", "cut \xe2\x82", "long \xc0\x80", "half \xed\xa0\x80", "\xf5\x80\x80\x80"} {
		for _, ops := range [][]op{nil, {putrootfh()}} {
			if r := e.compound(&call{minor: e.minor, tag: tag, ops: ops}); r.status != nfs4.ErrInval || len(r.nums) != 0 {
				e.Errorf("tag %q: %v, results %v", tag, r.status, r.nums)
			}
		}
	}
	e.ok(putrootfh())
}

// A COMPOUND without an operation has no session, and no result.
func testNoOperation(e *env) {
	if r := e.bare(); r.status != nfs4.OK || len(r.nums) != 0 {
		e.Errorf("%v with %v", r.status, r.nums)
	}
}

// anyOps are all operations of a session, with arguments.
func anyOps() []op {
	owner := nfs4.StateOwner{Owner: []byte("owner")}
	return []op{
		access(1), closeOp(nfs4.Stateid{}), commit(0, 0), mkdir("x"), delegreturn(nfs4.Stateid{}),
		getattrs(nfs4.AttrType), getfh(), link("x"), lock(nfs4.LockArgs{Type: nfs4.LockRead, Length: 1}),
		lockt(nfs4.LocktArgs{Type: nfs4.LockRead, Length: 1, Owner: owner}), locku(nfs4.Stateid{}, 0, 1), lookup("x"), lookupp(),
		nverify(nfs4.Fattr{}), open(nfs4.OpenArgs{ShareAccess: 1, Owner: owner, Name: []byte("x")}), downgrade(nfs4.Stateid{}, 1, 0),
		putfh(nfs4.FH("x")), plain(nfs4.OpPutpubfh), putrootfh(), read(nfs4.Stateid{}, 0, 1), readdir(nfs4.ReaddirArgs{MaxCount: 4096}),
		readlink(), remove("x"), rename("x", "y"), restorefh(), savefh(), secinfo("x"), setattr(nfs4.Stateid{}, mode(0o700)),
		verify(nfs4.Fattr{}), write(nfs4.Stateid{}, 0, "x"), backchannelCtl(0x40000000), freeStateid(nfs4.Stateid{}),
		secinfoNoName(nfs4.SecinfoParent), testStateid(nfs4.Stateid{}), reclaimComplete(false),
	}
}

// Section 2.10.2.1.1, 15.1.5.4: what needs a session says so.
func testWithoutSession(e *env) {
	for _, o := range anyOps() {
		e.Run(o.num.String(), func(t *testing.T) {
			c := e.with(t)
			c.wants(c.bare(o), o.num, 1, nfs4.ErrOpNotInSession)
			c.wants(c.bare(o, putrootfh()), o.num, 1, nfs4.ErrOpNotInSession)
		})
	}
}

// Section 18.46.3: SEQUENCE is the first operation, and no other.
func testSequenceFirst(e *env) {
	again := sequence(nfs4.SequenceArgs{SessionID: e.session, SequenceID: *e.seq + 2})
	e.refused([]op{again}, nfs4.ErrSequencePos)
	again = sequence(nfs4.SequenceArgs{SessionID: e.session, SequenceID: *e.seq + 2})
	e.refused([]op{putrootfh(), again}, nfs4.ErrSequencePos)
	e.ok(putrootfh()) // the slot is as it was
}

// Sections 18.34.3 to 18.37.3 and 18.50.3: without SEQUENCE these are alone.
func testOnlyOperation(e *env) {
	ops := []op{
		exchangeID(e.exchangeIDArgs()), createSession(e.createSessionArgs()), destroySession(nfs4.SessionID{1}),
		destroyClientID(12345), bindConn(e.session, nfs4.ConnFore),
	}
	for _, o := range ops {
		e.Run(o.num.String(), func(t *testing.T) {
			c := e.with(t)
			c.wants(c.bare(o, putrootfh()), o.num, 1, nfs4.ErrNotOnlyOp)
		})
	}
	e.refused([]op{bindConn(e.session, nfs4.ConnFore)}, nfs4.ErrNotOnlyOp) // section 18.34.3: not after SEQUENCE either
	// Section 18.37.3: that of the session in use is the last.
	e.refused([]op{destroySession(e.session), putrootfh()}[:1], nfs4.OK)
}

// Section 15.2, 16.2.3: what the protocol has not is OP_ILLEGAL, by that number.
func testIllegalOperation(e *env) {
	illegal := []nfs4.OpNum{0, 1, 2, 76, 1000, nfs4.OpIllegal, 0xffffffff}
	if e.minor == 1 { // those of version 4.2, and of RFC 8276
		illegal = append(illegal, nfs4.OpAllocate, nfs4.OpClone, nfs4.OpRemovexattr)
	}
	for _, num := range illegal {
		r := e.do(putrootfh(), op{num, nil, &nfs4.StatusRes{}}, getfh())
		e.wants(r, nfs4.OpIllegal, 3, nfs4.ErrOpIllegal)
		r = e.bare(op{num, nil, &nfs4.StatusRes{}})
		e.wants(r, nfs4.OpIllegal, 1, nfs4.ErrOpIllegal, nfs4.ErrOpNotInSession)
	}
}

// Section 17, and 15.1.1.5: what the protocol has and the server lacks is NOTSUPP, by the
// operation's own number. Section 18 (introduction): those of version 4.0 as well.
func testNotSupp(e *env) {
	for _, num := range []nfs4.OpNum{
		nfs4.OpDelegpurge, nfs4.OpOpenattr, nfs4.OpOpenConfirm, nfs4.OpRenew, nfs4.OpSetclientid, nfs4.OpSetclientidConfirm,
		nfs4.OpReleaseLockowner, nfs4.OpGetDirDelegation, nfs4.OpGetdeviceinfo, nfs4.OpGetdevicelist, nfs4.OpLayoutcommit,
		nfs4.OpLayoutget, nfs4.OpLayoutreturn, nfs4.OpSetSSV, nfs4.OpWantDelegation,
	} {
		e.Run(num.String(), func(t *testing.T) {
			args := make(raw, 256) // any arguments: most are zeros
			c := e.with(t)
			c.wants(c.do(putfh(e.dir), op{num, args, &nfs4.StatusRes{}}), num, 3, nfs4.ErrNotSupp)
		})
	}
}

// Section 18.46.3: more than the session has is refused by SEQUENCE, and does not move the
// slot.
func testTooManyOps(e *env) {
	n := int(e.fore.MaxOperations)
	ops := []op{e.next()}
	for range n {
		ops = append(ops, putrootfh())
	}
	e.wants(e.compound(&call{minor: e.minor, ops: ops}), nfs4.OpSequence, 1, nfs4.ErrTooManyOps)
	if r := e.compound(&call{minor: e.minor, ops: ops[:n]}); r.status != nfs4.OK || len(r.nums) != n {
		e.Errorf("as many as the session has: %v, %d results", r.status, len(r.nums))
	}
	// A count that is a lie. Section 15.1.1.1: all may be decoded before any is done.
	for _, more := range []uint32{1, 1000, 1<<31 - 1, 0xffffffff - 2} {
		r, err := e.try(&call{minor: e.minor, more: more, ops: []op{sequence(nfs4.SequenceArgs{SessionID: e.session, SequenceID: *e.seq + 1}), putrootfh()}})
		var refused *rpc.RPCError
		if errors.As(err, &refused) && refused.Accept == rpc.GarbageArgs {
			continue
		}
		if err != nil {
			e.Fatalf("%d more: %v", more, err)
		}
		if more >= 1000 {
			e.wants(r, nfs4.OpSequence, 1, nfs4.ErrTooManyOps, nfs4.ErrBadXDR)
		} else {
			e.wants(r, nfs4.OpPutrootfh, 2, nfs4.ErrBadXDR)
			*e.seq++
		}
	}
	e.ok(putrootfh())
}

// Section 15.1.1.1: arguments that can't be decoded end the COMPOUND where they are, and
// what was done before has its results.
func testBadXDR(e *env) {
	u32 := func(v ...uint32) (b raw) {
		for _, x := range v {
			b = xdr.AppendUint32(b, x)
		}
		return b
	}
	for _, tt := range []struct {
		name string
		op   op
	}{
		{"no length", op{nfs4.OpLookup, raw{0, 0}, &nfs4.StatusRes{}}},
		{"short name", op{nfs4.OpLookup, append(u32(8), "1234"...), &nfs4.StatusRes{}}},
		{"huge name", op{nfs4.OpLookup, append(u32(0xfffffffc), "1234"...), &nfs4.StatusRes{}}},
		{"padding cut", op{nfs4.OpLookup, append(u32(3), "123"...), &nfs4.StatusRes{}}},
		{"huge handle", op{nfs4.OpPutfh, append(u32(0x7ffffffc), "1234"...), &nfs4.StatusRes{}}},
		{"handle over 128 bytes", op{nfs4.OpPutfh, append(u32(132), make(raw, 132)...), &nfs4.StatusRes{}}},
		{"huge bitmap", op{nfs4.OpGetattr, u32(0xffffffff, 1), &nfs4.StatusRes{}}},
		{"attributes cut", op{nfs4.OpSetattr, append(make(raw, 16), u32(1, 1<<nfs4.AttrSize, 8, 0)...), &nfs4.SetattrRes{}}},
		{"attribute's value cut", op{nfs4.OpSetattr, append(make(raw, 16), u32(1, 1<<nfs4.AttrSize, 4, 0)...), &nfs4.SetattrRes{}}},
		{"huge list of stateids", op{nfs4.OpTestStateid, u32(0x10000000, 1, 2, 3, 4), &nfs4.StatusRes{}}},
		{"boolean of 2", op{nfs4.OpReclaimComplete, u32(2), &nfs4.StatusRes{}}},
		{"lock of type 5", op{nfs4.OpLockt, append(u32(5), make(raw, 8+8+8+4)...), &nfs4.StatusRes{}}},
		{"stability of 3", op{nfs4.OpWrite, append(make(raw, 16+8), u32(3, 0)...), &nfs4.StatusRes{}}},
		{"claim of 7", op{nfs4.OpOpen, append(append(u32(0, 1, 0), make(raw, 8)...), u32(0, 0, 7)...), &nfs4.StatusRes{}}},
		{"read cut", op{nfs4.OpRead, make(raw, 16+8), &nfs4.StatusRes{}}},
	} {
		e.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
			c := e.with(t)
			c.wants(c.do(putfh(e.dir), tt.op), tt.op.num, 3, nfs4.ErrBadXDR)
			c.ok(putrootfh())
		})
	}
	// In SEQUENCE itself, which then has done nothing.
	cut := op{nfs4.OpSequence, make(raw, 20), &nfs4.StatusRes{}}
	e.wants(e.bare(cut), nfs4.OpSequence, 1, nfs4.ErrBadXDR)
	e.ok(putrootfh())
}

// Section 16.2.3: what follows an error is not done.
func testStops(e *env) {
	r := e.do(putfh(e.dir), lookup("nothing"), putfh(e.dir), mkdir("made"))
	e.wants(r, nfs4.OpLookup, 3, nfs4.ErrNoEnt)
	e.refused([]op{putfh(e.dir), lookup("made")}, nfs4.ErrNoEnt)
}
