package nfstest4

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// openTests are OPEN, OPEN_DOWNGRADE and CLOSE, share reservations, and stateids: RFC 8881
// sections 8.2, 9.7 to 9.11, 18.2, 18.16 and 18.18.
var openTests = []test{
	{"claims", testClaims},
	{"refused", testOpenRefused},
	{"types", testOpenTypes},
	{"unchecked", testUnchecked},
	{"guarded", testGuarded},
	{"exclusive", testExclusive},
	{"seqid", testSeqid},
	{"share reservations", testShares},
	{"truncate after the checks", testTruncateOrder},
	{"downgrade", testDowngrade},
	{"modes", testOpenMode},
	{"stateids", testStateids},
	{"special stateids", testSpecialStateids},
	{"current stateid", testCurrentStateid},
	{"seqid of the current stateid", testCurrentSeqid},
	{"rights are checked at open", testRightsAtOpen},
	{"to deny takes the right to write", testRightsToDeny},
	{"rights of who reads and writes", testRightsOfCaller},
	{"rights that are taken away", testRightsTaken},
	{"removed while open", testRemovedOpen},
	{"replaced while open", testReplacedOpen},
	{"while it is replaced", testOpenWhileReplaced},
	{"while it comes and goes", testOpenWhileItGoes},
	{"close", testClose},
	{"at the same time", testConcurrentOpens},
	{"version 3 beside it", testDeniesV3},
}

// Section 18.16.3.
func testClaims(e *env) {
	fh := e.file("f", "content")
	args := e.openArgs(opening{})
	args.Claim = nfs4.ClaimFH
	r := e.ok(putfh(fh), open(args), read(nfs4.CurrentStateid(), 0, 100))
	if res := get[nfs4.ReadRes](e, r); string(res.Data) != "content" {
		e.Errorf("CLAIM_FH: %q", res.Data)
	}
	args.Create, args.Attr = true, mode(0o600)
	e.refused([]op{putfh(fh), open(args)}, nfs4.ErrInval)
	args.Create = false
	for claim, want := range map[nfs4.ClaimType][]nfs4.Status{
		nfs4.ClaimPrevious:     {nfs4.ErrNoGrace},
		nfs4.ClaimDelegateCur:  {nfs4.ErrNotSupp, nfs4.ErrBadStateid},
		nfs4.ClaimDelegCurFH:   {nfs4.ErrNotSupp, nfs4.ErrBadStateid},
		nfs4.ClaimDelegatePrev: {nfs4.ErrNotSupp, nfs4.ErrNoGrace},
		nfs4.ClaimDelegPrevFH:  {nfs4.ErrNotSupp, nfs4.ErrNoGrace},
	} {
		e.Run(fmt.Sprint(claim), func(t *testing.T) {
			args := args
			args.Claim = claim
			args.Name = []byte("f")
			args.DelegateStateid = nfs4.Stateid{Seqid: 1, Other: [12]byte{1}}
			at := fh
			if claim == nfs4.ClaimDelegateCur || claim == nfs4.ClaimDelegatePrev {
				at = e.dir
			}
			e.with(t).refused([]op{putfh(at), open(args)}, want...)
		})
	}
}

// Section 18.16.3 and .4.
func testOpenRefused(e *env) {
	e.file("f", "")
	share := func(access, deny uint32) []op {
		args := e.openArgs(opening{name: "f"})
		args.ShareAccess, args.ShareDeny = access, deny
		return []op{putfh(e.dir), open(args)}
	}
	e.expect([]expect{
		{"no access", share(0, 0), is(nfs4.ErrInval)},
		{"access 4", share(4, 0), is(nfs4.ErrInval)},
		{"deny 4", share(1, 4), is(nfs4.ErrInval)},
		{"no such file", []op{putfh(e.dir), open(e.openArgs(opening{name: "nothing"}))}, is(nfs4.ErrNoEnt)},
	})
	// Section 18.16.3: each wish for a delegation is well-formed, and may be refused.
	for _, want := range []uint32{
		nfs4.WantNoPreference, nfs4.WantReadDeleg, nfs4.WantWriteDeleg, nfs4.WantAnyDeleg, nfs4.WantNoDeleg, nfs4.WantCancel,
		nfs4.WantAnyDeleg | nfs4.WantSignalDelegWhenRescAvail, nfs4.WantAnyDeleg | nfs4.WantPushDelegWhenUncontended,
	} {
		if r := e.do(share(1|want, 0)...); r.status != nfs4.OK {
			e.Errorf("share_access %#x: %v", 1|want, r.status)
		}
	}
}

// Section 18.16.4: only regular files are opened. Of a fifo, a device or a socket it has WRONG_TYPE, which
// Linux makes EIO: SYMLINK has it open them locally.
func testOpenTypes(e *env) {
	e.ok(putfh(e.dir), mkdir("dir"))
	e.ok(putfh(e.dir), symlink("link", "dir"))
	want := map[string]nfs4.Status{"dir": nfs4.ErrIsDir, "link": nfs4.ErrSymlink}
	special := map[string]nfs4.FType{"fifo": nfs4.TypeFIFO, "socket": nfs4.TypeSock}
	if _, lacks := e.target.Lacks[nfstest.FeatureDevices]; !lacks {
		special["char"], special["block"] = nfs4.TypeChr, nfs4.TypeBlk
	}
	for name, kind := range special {
		want[name] = nfs4.ErrSymlink
		e.ok(putfh(e.dir), create(nfs4.CreateArgs{Type: kind, Name: []byte(name), Spec: nfs4.SpecData{Major: 1, Minor: 3}, Attr: mode(0o666)}))
	}
	for name, want := range want {
		byName := e.openArgs(opening{name: name})
		toCreate := e.openArgs(opening{name: name, create: true})
		truncating, guarded, exclusive, exclusiveAttrs := toCreate, toCreate, toCreate, toCreate
		truncating.Attr = size(0)
		guarded.Mode, exclusive.Mode, exclusiveAttrs.Mode = nfs4.Guarded, nfs4.Exclusive, nfs4.ExclusiveAttrs
		byFH := e.openArgs(opening{})
		byFH.Claim = nfs4.ClaimFH
		e.expect([]expect{
			{name, []op{putfh(e.dir), open(byName)}, is(want)},
			{name + "/to create", []op{putfh(e.dir), open(toCreate)}, is(want)},
			{name + "/to create or truncate", []op{putfh(e.dir), open(truncating)}, is(want)},
			{name + "/guarded", []op{putfh(e.dir), open(guarded)}, is(nfs4.ErrExist)},
			{name + "/exclusive", []op{putfh(e.dir), open(exclusive)}, is(nfs4.ErrExist)},
			{name + "/exclusive with attributes", []op{putfh(e.dir), open(exclusiveAttrs)}, is(nfs4.ErrExist)},
			{name + "/by handle", []op{putfh(e.dir), lookup(name), open(byFH)}, is(want)},
		})
	}
	e.asOther(func(other *client) { // who has no right to it is told the same
		e.ok(putfh(e.dir), lookup("fifo"), setattr(nfs4.Stateid{}, mode(0)))
		other.refused([]op{putfh(e.dir), open(other.openArgs(opening{name: "fifo"}))}, nfs4.ErrSymlink)
	})
	// A directory above the volumes is one, too.
	above := strings.Split(strings.Trim(e.target.Export, "/"), "/")[0]
	for name, tt := range map[string]struct {
		how  func(*nfs4.OpenArgs)
		want nfs4.Status
	}{
		"no create": {func(*nfs4.OpenArgs) {}, nfs4.ErrIsDir},
		"to create": {func(a *nfs4.OpenArgs) { a.Create = true }, nfs4.ErrIsDir},
		"guarded":   {func(a *nfs4.OpenArgs) { a.Create, a.Mode = true, nfs4.Guarded }, nfs4.ErrExist},
	} {
		args := e.openArgs(opening{name: above})
		tt.how(&args)
		e.expect([]expect{{"above/" + name, []op{putrootfh(), open(args)}, is(tt.want)}})
	}
}

func testUnchecked(e *env) {
	args := e.openArgs(opening{name: "f", create: true})
	r := e.ok(putfh(e.dir), open(args), write(nfs4.CurrentStateid(), 0, "content"), getattrs(nfs4.AttrMode, nfs4.AttrSize))
	if res := get[nfs4.OpenRes](e, r); !res.AttrSet.Has(nfs4.AttrMode) {
		e.Errorf("attributes that were set: %x", res.AttrSet)
	}
	if a := get[nfs4.GetattrRes](e, r).Attr; a.Mode != 0o644 || a.Size != 7 {
		e.Errorf("%+v", a)
	}
	// Again: of the attributes only a size of 0 is set.
	args.Attr = mode(0o600)
	if a := e.attr([]op{putfh(e.dir), open(args)}, nfs4.AttrMode, nfs4.AttrSize); a.Mode != 0o644 || a.Size != 7 {
		e.Errorf("opened again: mode %o, size %d", a.Mode, a.Size)
	}
	args.Attr = size(3)
	if a := e.attr([]op{putfh(e.dir), open(args)}, nfs4.AttrSize); a.Size != 7 {
		e.Errorf("opened again with size 3: %d", a.Size)
	}
	args.Attr = nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrSize, nfs4.AttrMode), Mode: 0o600}
	r = e.ok(putfh(e.dir), open(args), getattrs(nfs4.AttrMode, nfs4.AttrSize))
	if a := get[nfs4.GetattrRes](e, r).Attr; a.Mode != 0o644 || a.Size != 0 {
		e.Errorf("truncated: mode %o, size %d", a.Mode, a.Size)
	}
	if set := get[nfs4.OpenRes](e, r).AttrSet; set != nfs4.BitmapOf(nfs4.AttrSize) {
		e.Errorf("truncated: set %x", set)
	}
	// A new file has what was asked.
	args.Name, args.Attr = []byte("new"), nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrSize, nfs4.AttrMode), Size: 5, Mode: 0o400}
	if a := e.attr([]op{putfh(e.dir), open(args)}, nfs4.AttrMode, nfs4.AttrSize); a.Mode != 0o400 || a.Size != 5 {
		e.Errorf("new: mode %o, size %d", a.Mode, a.Size)
	}
}

func testGuarded(e *env) {
	args := e.openArgs(opening{name: "f", create: true})
	args.Mode = nfs4.Guarded
	e.ok(putfh(e.dir), open(args), write(nfs4.CurrentStateid(), 0, "content"))
	args.Attr = size(0)
	e.refused([]op{putfh(e.dir), open(args)}, nfs4.ErrExist)
	e.content(e.fh(putfh(e.dir), lookup("f")), "content")
}

// Section 18.16.3: EXCLUSIVE4 and EXCLUSIVE4_1 know their own file by its verifier.
func testExclusive(e *env) {
	for _, m := range []nfs4.CreateMode{nfs4.Exclusive, nfs4.ExclusiveAttrs} {
		e.Run(fmt.Sprint(m), func(t *testing.T) {
			c := e.with(t)
			name := fmt.Sprint("f", m)
			args := c.openArgs(opening{name: name, create: true})
			args.Mode, args.Verf = m, nfs4.Verifier{1, 2, 3, 4, 5, 6, 7, byte(m)}
			args.Attr = mode(0o640)
			r := c.ok(putfh(e.dir), open(args), getfh(), getattrs(nfs4.AttrMode))
			fh, first := get[nfs4.GetfhRes](c, r).FH, get[nfs4.OpenRes](c, r)
			if m == nfs4.ExclusiveAttrs && get[nfs4.GetattrRes](c, r).Attr.Mode != 0o640 {
				t.Errorf("mode %o", get[nfs4.GetattrRes](c, r).Attr.Mode)
			}
			r = c.ok(putfh(e.dir), open(args), getfh())
			again := get[nfs4.OpenRes](c, r)
			if string(get[nfs4.GetfhRes](c, r).FH) != string(fh) || again.Stateid.Other != first.Stateid.Other || again.Stateid.Seqid != first.Stateid.Seqid+1 {
				t.Errorf("the same again: %+v, the first was %+v", again.Stateid, first.Stateid)
			}
			args.Verf[0]++
			c.refused([]op{putfh(e.dir), open(args)}, nfs4.ErrExist)
			c.ok(putfh(fh), write(again.Stateid, 0, "x"))
		})
	}
	// Section 5.8.1.14: the attributes that keep the verifier can't be given.
	supp := e.attr([]op{putfh(e.dir)}, nfs4.AttrSuppattrExclcreat).SuppattrExclcreat
	for _, a := range []uint32{nfs4.AttrTimeAccessSet, nfs4.AttrTimeModifySet} {
		if supp.Has(a) {
			continue
		}
		args := e.openArgs(opening{name: "times", create: true})
		args.Mode, args.Attr = nfs4.ExclusiveAttrs, nfs4.Sattr{Mask: nfs4.BitmapOf(a)}
		e.refused([]op{putfh(e.dir), open(args)}, nfs4.ErrInval, nfs4.ErrAttrNotSupp)
	}
	// What was there before is nobody's own.
	e.file("old", "")
	args := e.openArgs(opening{name: "old", create: true})
	args.Mode = nfs4.Exclusive
	e.refused([]op{putfh(e.dir), open(args)}, nfs4.ErrExist)
}

// Section 8.2.2: the seqid begins at 1, and rises by one with each OPEN and OPEN_DOWNGRADE;
// other owners and files have stateids of their own.
func testSeqid(e *env) {
	fh, id := e.client.open(e.dir, opening{name: "f", create: true, access: nfs4.ShareAccessRead})
	if id.Seqid != 1 {
		e.Errorf("the first seqid is %d", id.Seqid)
	}
	want := id
	for i := range 5 {
		_, id = e.client.open(e.dir, opening{name: "f", access: nfs4.ShareAccessRead + uint32(i)%3})
		if want.Seqid++; id != want {
			e.Fatalf("%+v, want %+v", id, want)
		}
	}
	for _, a := range []uint32{nfs4.ShareAccessRead, nfs4.ShareAccessRead} {
		id = get[nfs4.StateidRes](e, e.ok(putfh(fh), downgrade(id, a, 0))).Stateid
		if want.Seqid++; id != want {
			e.Fatalf("OPEN_DOWNGRADE: %+v, want %+v", id, want)
		}
	}
	for _, o := range []opening{{name: "f", owner: "other"}, {name: "g", create: true}} {
		if _, other := e.client.open(e.dir, o); other.Other == id.Other || other.Seqid != 1 {
			e.Errorf("%+v: %+v, and the first was %+v", o, other, id)
		}
	}
	if _, other := e.another().open(e.dir, opening{name: "f"}); other.Other == id.Other || other.Seqid != 1 {
		e.Errorf("another client: %+v, and the first was %+v", other, id)
	}
	e.ok(putfh(fh), closeOp(id))
}

// Section 9.7: all that two clients may have, against the rule.
func testShares(e *env) {
	fh := e.file("f", "")
	c := e.another()
	for i := range uint32(12) {
		a1, d1 := i/4+1, i%4
		_, first := e.client.open(e.dir, opening{name: "f", access: a1, deny: d1})
		for j := range uint32(12) {
			a2, d2 := j/4+1, j%4
			want := nfs4.OK
			if a2&d1 != 0 || d2&a1 != 0 {
				want = nfs4.ErrShareDenied
			}
			r := c.do(putfh(e.dir), open(c.openArgs(opening{name: "f", access: a2, deny: d2})))
			if r.status != want {
				e.Errorf("access %d deny %d, then access %d deny %d: %v, want %v", a1, d1, a2, d2, r.status, want)
			}
			if r.status == nfs4.OK {
				c.ok(putfh(fh), closeOp(get[nfs4.OpenRes](c, r).Stateid))
			}
		}
		e.ok(putfh(fh), closeOp(first))
	}
	// Section 9.7: another owner of the same client is no better.
	e.client.open(e.dir, opening{name: "f", deny: nfs4.ShareDenyWrite, access: nfs4.ShareAccessRead})
	e.refused([]op{putfh(e.dir), open(e.openArgs(opening{name: "f", owner: "other"}))}, nfs4.ErrShareDenied)
}

// Section 18.16.3: what is denied or not permitted does not truncate.
func testTruncateOrder(e *env) {
	fh := e.file("f", "content")
	_, id := e.client.open(e.dir, opening{name: "f", access: nfs4.ShareAccessRead, deny: nfs4.ShareDenyWrite})
	c := e.another()
	args := c.openArgs(opening{name: "f", create: true})
	args.Attr = size(0)
	reader := args // who opens it for reading alone changes it nevertheless
	reader.ShareAccess = nfs4.ShareAccessRead | nfs4.WantNoDeleg
	for _, args := range []nfs4.OpenArgs{args, reader} { // of the latter the RFC says nothing
		c.refused([]op{putfh(e.dir), open(args)}, nfs4.ErrShareDenied, nfs4.ErrInval)
		e.content(fh, "content")
	}
	e.ok(putfh(fh), closeOp(id))
	e.asOther(func(other *client) {
		for _, args := range []nfs4.OpenArgs{args, reader} { // it may read the file
			other.refused([]op{putfh(e.dir), open(args)}, nfs4.ErrAccess, nfs4.ErrInval)
			e.content(fh, "content")
		}
		e.ok(putfh(fh), setattr(nfs4.Stateid{}, mode(0o600)))
		other.refused([]op{putfh(e.dir), open(reader)}, nfs4.ErrAccess, nfs4.ErrInval)
		e.content(fh, "content")
	})
	c.ok(putfh(e.dir), open(c.openArgs(opening{name: "f", create: true})))
	e.content(fh, "content")
}

// Section 18.18.
func testDowngrade(e *env) {
	fh, id := e.client.open(e.dir, opening{name: "f", create: true, access: nfs4.ShareAccessRead, deny: nfs4.ShareDenyNone})
	e.refused([]op{putfh(fh), downgrade(id, nfs4.ShareAccessBoth, 0)}, nfs4.ErrInval)
	e.refused([]op{putfh(fh), downgrade(id, 0, 0)}, nfs4.ErrInval)
	e.refused([]op{putfh(fh), downgrade(id, nfs4.ShareAccessRead, nfs4.ShareDenyRead)}, nfs4.ErrInval)
	_, id = e.client.open(e.dir, opening{name: "f", access: nfs4.ShareAccessBoth, deny: nfs4.ShareDenyWrite})
	e.refused([]op{putfh(fh), downgrade(id, nfs4.ShareAccessWrite, 0)}, nfs4.ErrInval) // no OPEN had it
	c := e.another()
	write1 := c.openArgs(opening{name: "f", access: nfs4.ShareAccessWrite})
	c.refused([]op{putfh(e.dir), open(write1)}, nfs4.ErrShareDenied)
	e.ok(putfh(fh), write(id, 0, "x"))
	old := id
	id = get[nfs4.StateidRes](e, e.ok(putfh(fh), downgrade(id, nfs4.ShareAccessRead, 0))).Stateid
	e.refused([]op{putfh(fh), downgrade(old, nfs4.ShareAccessRead, 0)}, nfs4.ErrOldStateid)
	e.refused([]op{putfh(fh), write(id, 0, "y")}, nfs4.ErrOpenMode)
	e.ok(putfh(fh), read(id, 0, 1))
	c.ok(putfh(e.dir), open(write1))
	e.refused([]op{putfh(e.dir), downgrade(id, nfs4.ShareAccessRead, 0)}, nfs4.ErrBadStateid) // of another file
}

// Sections 18.22.3 and 18.32.3.
func testOpenMode(e *env) {
	fh := e.file("f", "content")
	_, reader := e.client.open(e.dir, opening{name: "f", owner: "r", access: nfs4.ShareAccessRead})
	_, writer := e.client.open(e.dir, opening{name: "f", owner: "w", access: nfs4.ShareAccessWrite})
	e.refused([]op{putfh(fh), write(reader, 0, "x")}, nfs4.ErrOpenMode)
	e.refused([]op{putfh(fh), setattr(reader, size(0))}, nfs4.ErrOpenMode)
	e.ok(putfh(fh), write(writer, 0, "C"))
	// Section 9.1.2 lets a server read for who opened to write.
	if r := e.do(putfh(fh), read(writer, 0, 1)); r.status != nfs4.OK && r.status != nfs4.ErrOpenMode {
		e.Errorf("READ of an OPEN to write: %v", r.status)
	}
	e.content(fh, "Content")
}

// Section 8.2.
func testStateids(e *env) {
	fh, first := e.client.open(e.dir, opening{name: "f", create: true})
	_, id := e.client.open(e.dir, opening{name: "f"})
	other := e.file("other", "")
	future, zero, forged, invalid := id, id, id, nfs4.InvalidStateid()
	future.Seqid++
	zero.Seqid = 0
	forged.Other[11] ^= 0x40
	e.ok(putfh(fh), write(zero, 0, "content"))
	for name, tt := range map[string]struct {
		id   nfs4.Stateid
		want nfs4.Status
	}{
		"future": {future, nfs4.ErrBadStateid}, "old": {first, nfs4.ErrOldStateid},
		"forged": {forged, nfs4.ErrBadStateid}, "invalid": {invalid, nfs4.ErrBadStateid},
		"seqid 7, all zeros":  {nfs4.Stateid{Seqid: 7}, nfs4.ErrBadStateid},
		"seqid 0, all ones":   {nfs4.Stateid{Other: nfs4.BypassStateid().Other}, nfs4.ErrBadStateid},
		"current without one": {nfs4.CurrentStateid(), nfs4.ErrBadStateid},
	} {
		e.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			c := e.with(t)
			c.refused([]op{putfh(fh), closeOp(tt.id)}, tt.want)
			c.refused([]op{putfh(fh), downgrade(tt.id, 1, 0)}, tt.want)
			if tt.want == nfs4.ErrOldStateid {
				// Section 8.2.2 asks for it of READ and WRITE too, in version 4.1; a
				// server may be kind: a client can't know what its calls overtake.
				return
			}
			c.refused([]op{putfh(fh), read(tt.id, 0, 1)}, tt.want)
			c.refused([]op{putfh(fh), write(tt.id, 0, "x")}, tt.want)
			c.refused([]op{putfh(fh), setattr(tt.id, size(0))}, tt.want)
		})
	}
	e.refused([]op{putfh(other), read(id, 0, 1)}, nfs4.ErrBadStateid)
	e.refused([]op{putfh(other), write(id, 0, "x")}, nfs4.ErrBadStateid)
	e.refused([]op{putfh(other), closeOp(id)}, nfs4.ErrBadStateid)
	c := e.another()
	c.refused([]op{putfh(fh), read(id, 0, 1)}, nfs4.ErrBadStateid)
	c.refused([]op{putfh(fh), write(id, 0, "x")}, nfs4.ErrBadStateid)
	c.refused([]op{putfh(fh), closeOp(id)}, nfs4.ErrBadStateid)
	e.content(fh, "content")
	e.refused([]op{putfh(fh), delegreturn(id)}, nfs4.ErrBadStateid, nfs4.ErrInval)
}

// Section 8.2.3: reading and writing without an open heeds what others deny; all ones reads
// nevertheless.
func testSpecialStateids(e *env) {
	fh := e.file("f", "content")
	e.ok(putfh(fh), read(nfs4.Stateid{}, 0, 10))
	e.ok(putfh(fh), read(nfs4.BypassStateid(), 0, 10))
	e.ok(putfh(fh), write(nfs4.Stateid{}, 0, "C"))
	_, id := e.client.open(e.dir, opening{name: "f", deny: nfs4.ShareDenyBoth})
	c := e.another()
	e.ok(putfh(fh), read(id, 0, 10))
	for _, c := range []*client{e.client, c} {
		c.refused([]op{putfh(fh), read(nfs4.Stateid{}, 0, 10)}, nfs4.ErrLocked)
		c.ok(putfh(fh), read(nfs4.BypassStateid(), 0, 10))
		c.refused([]op{putfh(fh), write(nfs4.Stateid{}, 0, "x")}, nfs4.ErrLocked)
		c.refused([]op{putfh(fh), write(nfs4.BypassStateid(), 0, "x")}, nfs4.ErrLocked)
		c.refused([]op{putfh(fh), setattr(nfs4.Stateid{}, size(0))}, nfs4.ErrLocked)
		c.ok(putfh(fh), setattr(nfs4.Stateid{}, mode(0o600)))
	}
	e.ok(putfh(fh), closeOp(id))
	e.content(fh, "Content")
	// The caller's rights decide.
	e.asOther(func(other *client) {
		other.refused([]op{putfh(fh), read(nfs4.Stateid{}, 0, 10)}, nfs4.ErrAccess)
		other.refused([]op{putfh(fh), read(nfs4.BypassStateid(), 0, 10)}, nfs4.ErrAccess)
		other.refused([]op{putfh(fh), write(nfs4.Stateid{}, 0, "x")}, nfs4.ErrAccess)
	})
}

// Section 18.25.4: a file that was removed is there until its last CLOSE, for all clients.
func testRemovedOpen(e *env) {
	fh, id := e.client.open(e.dir, opening{name: "f", create: true})
	other := e.another()
	_, otherID := other.open(e.dir, opening{name: "f", access: nfs4.ShareAccessRead})
	e.ok(putfh(fh), write(id, 0, "content"))
	other.ok(putfh(e.dir), remove("f"))
	e.refused([]op{putfh(e.dir), lookup("f")}, nfs4.ErrNoEnt)
	e.ok(putfh(fh), write(id, 7, " and more"), commit(0, 0))
	if res := get[nfs4.ReadRes](e, other.ok(putfh(fh), read(otherID, 0, 100))); string(res.Data) != "content and more" {
		e.Errorf("read %q", res.Data)
	}
	if a := e.attr([]op{putfh(fh)}, nfs4.AttrNumLinks, nfs4.AttrSize, nfs4.AttrChange); a.NumLinks != 0 || a.Size != 16 {
		e.Errorf("%d links, size %d", a.NumLinks, a.Size)
	}
	e.ok(putfh(fh), setattr(id, size(3)), setattr(nfs4.Stateid{}, mode(0o600)), access(nfs4.AccessRead))
	e.ok(putfh(fh), lock(nfs4.LockArgs{Type: nfs4.LockWrite, Length: 10, NewOwner: true, OpenStateid: id, Owner: nfs4.StateOwner{Owner: []byte("l")}}))
	again := e.openArgs(opening{})
	again.Claim = nfs4.ClaimFH
	id = get[nfs4.OpenRes](e, e.ok(putfh(fh), open(again))).Stateid
	e.ok(putfh(fh), closeOp(id))
	other.ok(putfh(fh), read(otherID, 0, 3))
	other.ok(putfh(fh), closeOp(otherID))
	if r := e.do(putfh(fh), getattrs(nfs4.AttrType)); r.status != nfs4.ErrStale {
		e.Errorf("after the last CLOSE: %v", r.status)
	}
}

// A file that another one took the name of is as good as removed.
func testReplacedOpen(e *env) {
	fh, id := e.client.open(e.dir, opening{name: "f", create: true})
	e.ok(putfh(fh), write(id, 0, "old"))
	e.file("g", "new")
	e.another().ok(putfh(e.dir), savefh(), rename("g", "f"))
	if res := get[nfs4.ReadRes](e, e.ok(putfh(fh), read(id, 0, 100))); string(res.Data) != "old" {
		e.Errorf("read %q", res.Data)
	}
	e.content(e.fh(putfh(e.dir), lookup("f")), "new")
	e.ok(putfh(fh), closeOp(id))
}

// Section 18.2.
func testClose(e *env) {
	fh, id := e.client.open(e.dir, opening{name: "f", create: true})
	e.client.open(e.dir, opening{name: "f"})
	e.refused([]op{putfh(fh), closeOp(id)}, nfs4.ErrOldStateid)
	id.Seqid = 0 // the current one
	res := get[nfs4.StateidRes](e, e.ok(putfh(fh), closeOp(id)))
	if res.Stateid != nfs4.InvalidStateid() { // section 18.2.4
		e.Errorf("CLOSE returned %+v", res.Stateid)
	}
	e.refused([]op{putfh(fh), closeOp(id)}, nfs4.ErrBadStateid)
	_, next := e.client.open(e.dir, opening{name: "f"})
	if next.Other == id.Other {
		e.Errorf("a stateid is used again: %+v", next)
	}
}

// Section 8.2.2: the seqid has no gap and no number twice, however many OPENs of an owner run
// at once: a client waits for the one that is missing.
func testConcurrentOpens(e *env) {
	fh, id := e.client.open(e.dir, opening{name: "f", create: true})
	const each = 10
	slots := int(min(e.fore.MaxRequests, 8))
	seqids := make(chan uint32, slots*each)
	var wg sync.WaitGroup
	for slot := 1; slot < slots; slot++ {
		wg.Go(func() {
			for n := uint32(1); n <= each; n++ {
				ops := []op{sequence(nfs4.SequenceArgs{SessionID: e.session, SequenceID: n, SlotID: uint32(slot), HighestSlotID: uint32(slots - 1), CacheThis: true})}
				if n%2 == 0 {
					ops = append(ops, putfh(fh), downgrade(nfs4.Stateid{Other: id.Other}, nfs4.ShareAccessBoth, 0)) // seqid 0 is the current one
				} else {
					ops = append(ops, putfh(e.dir), open(e.openArgs(opening{name: "f"})))
				}
				r, err := e.try(&call{minor: e.minor, ops: ops})
				switch {
				case err != nil || r.status != nfs4.OK:
					e.Errorf("slot %d, call %d: %v, %v", slot, n, r, err)
					return
				case n%2 == 0:
					seqids <- get[nfs4.StateidRes](e, r).Stateid.Seqid
				default:
					seqids <- get[nfs4.OpenRes](e, r).Stateid.Seqid
				}
			}
		})
	}
	wg.Wait()
	close(seqids)
	seen := map[uint32]bool{id.Seqid: true}
	for s := range seqids {
		if seen[s] {
			e.Errorf("seqid %d came twice", s)
		}
		seen[s] = true
	}
	for s := range uint32(len(seen)) {
		if !seen[s+1] {
			e.Errorf("seqid %d did not come", s+1)
		}
	}
}

// truncating3 is a CREATE of version 3 that truncates a file.
func truncating3(e *env, name string) nfs3.CreateArgs {
	where := nfs3.DirOpArgs{Dir: nfs3.FH(e.dir), Name: []byte(name)}
	return nfs3.CreateArgs{Where: where, Mode: nfs3.Unchecked, Attr: nfs3.Sattr{Size: nfs3.SetUint64{Set: true}}}
}

// Section 9.7, 9.1.4: a version 3 client has no opens, and heeds what is denied.
func testDeniesV3(e *env) {
	if e.target.MountAddr == "" {
		e.Skip("named skip: no version 3")
	}
	v3, err := nfstest.Dial(e.Context(), e.target.Addr, e.target.MountAddr)
	if err != nil {
		e.Fatal(err)
	}
	defer v3.Close()
	fh, id := e.client.open(e.dir, opening{name: "f", create: true, deny: nfs4.ShareDenyBoth})
	e.ok(putfh(fh), write(id, 0, "content"))
	h := nfs3.FH(fh)
	for what, call := range map[string]func() (nfs3.Status, error){
		"READ": func() (nfs3.Status, error) {
			res, err := v3.Read(e.Context(), h, 0, 10)
			return res.Status, err
		},
		"WRITE": func() (nfs3.Status, error) {
			res, err := v3.Write(e.Context(), h, 0, 2, []byte("x"))
			return res.Status, err
		},
		"SETATTR of the size": func() (nfs3.Status, error) {
			res, err := v3.Setattr(e.Context(), nfs3.SetattrArgs{Object: h, Attr: nfs3.Sattr{Size: nfs3.SetUint64{Set: true}}})
			return res.Status, err
		},
		"CREATE that truncates": func() (nfs3.Status, error) {
			res, err := v3.Create(e.Context(), truncating3(e, "f"))
			return res.Status, err
		},
	} {
		if status, err := call(); err != nil || status == nfs3.OK {
			e.Errorf("%s of what is denied: %v, %v", what, status, err)
		}
	}
	if res := get[nfs4.ReadRes](e, e.ok(putfh(fh), read(id, 0, 100))); string(res.Data) != "content" {
		e.Errorf("read %q", res.Data)
	}
	e.ok(putfh(fh), closeOp(id))
	if res, err := v3.Write(e.Context(), h, 0, 2, []byte("C")); err != nil || res.Status != nfs3.OK {
		e.Errorf("WRITE after CLOSE: %v, %v", res.Status, err)
	}
}
