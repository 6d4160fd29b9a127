package nfstest4

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// attrTests are attributes: RFC 8881 section 5, and GETATTR, SETATTR, VERIFY and NVERIFY.
var attrTests = []test{
	{"supported", testSupported},
	{"not supported", testNotSupported},
	{"write only", testWriteOnly},
	{"settable", testSettable},
	{"setattr refused", testSetattrRefused},
	{"owners", testOwners},
	{"size", testSize},
	{"verify", testVerify},
	{"change", testChange},
	{"change of directories", testChangeInfo},
	{"after open made a file", testAttrsOfMade},
	{"file systems", testFSID},
	{"access", testAccess},
	{"time of birth", testBirth},
	{"umask", testUmask},
	{"umask elsewhere", testUmaskElsewhere},
}

// readable are the attributes that can be read and that [nfs4.Attrs] has.
func readable() (m nfs4.Bitmap) {
	for a := range uint32(96) {
		one := nfs4.Fattr{Mask: nfs4.BitmapOf(a), Vals: make([]byte, 16)}
		var attrs nfs4.Attrs
		d := xdr.NewDecoder((&nfs4.VerifyArgs{Attr: one}).Append(nil))
		if attrs.Decode(&d); !errors.Is(d.Err(), xdr.ErrValue) {
			m.Set(a)
		}
	}
	return m
}

// Section 5.6: all that the server says it supports it tells, but for what can only be set;
// and these are required.
func testSupported(e *env) {
	readable := readable()
	e.ok(putfh(e.dir), symlink("link", "f"))
	for what, ops := range map[string][]op{
		"file": {putfh(e.file("f", "x"))}, "directory": {putfh(e.dir)}, "link": {putfh(e.dir), lookup("link")},
		"volume": {putfh(e.root)}, "pseudo root": {putrootfh()},
	} {
		supported := e.attr(ops, nfs4.AttrSupportedAttrs).SupportedAttrs
		for _, a := range []uint32{
			nfs4.AttrSupportedAttrs, nfs4.AttrType, nfs4.AttrFHExpireType, nfs4.AttrChange, nfs4.AttrSize, nfs4.AttrLinkSupport,
			nfs4.AttrSymlinkSupport, nfs4.AttrNamedAttr, nfs4.AttrFSID, nfs4.AttrUniqueHandles, nfs4.AttrLeaseTime,
			nfs4.AttrRdattrError, nfs4.AttrFilehandle, nfs4.AttrSuppattrExclcreat,
		} {
			if !supported.Has(a) {
				e.Errorf("%s: attribute %d is required, and not supported", what, a)
			}
		}
		wanted := supported.And(readable)
		got := get[nfs4.GetattrRes](e, e.ok(append(ops, getattr(wanted))...)).Attr
		if got.Mask != wanted {
			e.Errorf("%s: asked for %x, got %x", what, wanted, got.Mask)
		}
		if got.FileID == 0 || got.LeaseTime == 0 || got.RdattrError != nfs4.OK || got.NumLinks == 0 || got.MaxRead == 0 || got.MaxWrite == 0 {
			e.Errorf("%s: %+v", what, got)
		}
		for a := range uint32(96) {
			if wanted.Has(a) {
				if one := e.attr(ops, a).Mask; one != nfs4.BitmapOf(a) {
					e.Errorf("%s: asked for attribute %d, got %x", what, a, one)
				}
			}
		}
	}
}

// Section 18.7.3: what is not supported is left out.
func testNotSupported(e *env) {
	supported := e.attr([]op{putfh(e.dir)}, nfs4.AttrSupportedAttrs).SupportedAttrs
	asked := nfs4.Bitmap{0xffffffff, 0xffffffff, 0xffffffff}.Without(supported).Or(supported.And(readable()))
	words := xdr.AppendUint32(nil, 5)
	for _, word := range asked.Without(nfs4.BitmapOf(nfs4.AttrTimeAccessSet, nfs4.AttrTimeModifySet)) {
		words = xdr.AppendUint32(words, word)
	}
	words = xdr.AppendUint32(words, 0xffffffff)
	words = xdr.AppendUint32(words, 0xffffffff)
	r := e.ok(putfh(e.dir), op{nfs4.OpGetattr, raw(words), &nfs4.GetattrRes{}}, getfh())
	if got := get[nfs4.GetattrRes](e, r).Attr.Mask; !got.Without(supported).Empty() {
		e.Errorf("got %x, of which only %x is supported", got, supported)
	}
	for _, a := range []uint32{nfs4.AttrACL, nfs4.AttrHidden, 95} {
		if !supported.Has(a) {
			if got := e.attr([]op{putfh(e.dir)}, a, nfs4.AttrType).Mask; got != nfs4.BitmapOf(nfs4.AttrType) {
				e.Errorf("asked for attribute %d, which is not supported, and the type: got %x", a, got)
			}
		}
	}
}

// Section 5.5: what can only be set can't be read.
func testWriteOnly(e *env) {
	for _, a := range []uint32{nfs4.AttrTimeAccessSet, nfs4.AttrTimeModifySet} {
		e.refused([]op{putfh(e.dir), getattrs(a)}, nfs4.ErrInval)
		e.refused([]op{putfh(e.dir), readdir(nfs4.ReaddirArgs{MaxCount: 4096, Request: nfs4.BitmapOf(a)})}, nfs4.ErrInval)
		e.refused([]op{putfh(e.dir), verify(nfs4.Fattr{Mask: nfs4.BitmapOf(a), Vals: make([]byte, 4)})}, nfs4.ErrInval)
		e.refused([]op{putfh(e.dir), nverify(nfs4.Fattr{Mask: nfs4.BitmapOf(a), Vals: make([]byte, 4)})}, nfs4.ErrInval)
	}
}

// Section 18.34.
func testSettable(e *env) {
	fh := e.file("f", "content")
	set := func(s nfs4.Sattr) *nfs4.Attrs {
		e.Helper()
		res := get[nfs4.SetattrRes](e, e.ok(putfh(fh), setattr(nfs4.Stateid{}, s)))
		if res.AttrSet != s.Mask {
			e.Errorf("set %x, and the result says %x", s.Mask, res.AttrSet)
		}
		return e.attr([]op{putfh(fh)}, nfs4.AttrMode, nfs4.AttrSize, nfs4.AttrOwner, nfs4.AttrOwnerGroup, nfs4.AttrTimeAccess, nfs4.AttrTimeModify)
	}
	for _, m := range []uint32{0, 0o7777, 0o640} {
		if a := set(mode(m)); a.Mode != m {
			e.Errorf("mode %o is %o", m, a.Mode)
		}
	}
	if _, lacks := e.target.Lacks[nfstest.FeatureChown]; lacks {
		e.refused([]op{putfh(fh), setattr(nfs4.Stateid{}, nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrOwner), Owner: []byte("1234")})}, nfs4.ErrPerm)
	} else if a := set(nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrOwner, nfs4.AttrOwnerGroup), Owner: []byte("1234"), OwnerGroup: []byte("4294967294")}); string(a.Owner) != "1234" || string(a.OwnerGroup) != "4294967294" {
		e.Errorf("owner %q, group %q", a.Owner, a.OwnerGroup)
	}
	at, mt := nfs4.Time{Sec: 1000000000, Nsec: 123456789}, nfs4.Time{Sec: 86400, Nsec: 1}
	if a := set(nfs4.Sattr{
		Mask:       nfs4.BitmapOf(nfs4.AttrTimeAccessSet, nfs4.AttrTimeModifySet),
		TimeAccess: nfs4.SetTime{How: nfs4.SetToClientTime, Time: at}, TimeModify: nfs4.SetTime{How: nfs4.SetToClientTime, Time: mt},
	}); a.TimeAccess != at || a.TimeModify != mt {
		e.Errorf("times %v and %v", a.TimeAccess, a.TimeModify)
	}
	if a := set(nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrTimeModifySet)}); a.TimeModify.Sec <= mt.Sec || a.TimeAccess != at {
		e.Errorf("the server's time: %v and %v", a.TimeAccess, a.TimeModify)
	}
	if a := set(nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrSize, nfs4.AttrMode), Size: 3, Mode: 0o600}); a.Size != 3 || a.Mode != 0o600 {
		e.Errorf("size %d, mode %o", a.Size, a.Mode)
	}
	if a := set(nfs4.Sattr{}); a.Size != 3 { // nothing
		e.Errorf("size %d", a.Size)
	}
}

// raw fattr4 of one attribute.
func fattr(attr uint32, vals ...byte) []byte {
	m := nfs4.Fattr{Mask: nfs4.BitmapOf(attr), Vals: vals}
	return (&nfs4.VerifyArgs{Attr: m}).Append(nil)
}

// Section 18.34.3, 15.1.15.
func testSetattrRefused(e *env) {
	fh := e.file("f", "content")
	before := e.attr([]op{putfh(fh)}, nfs4.AttrChange).Change
	one := func(attr uint32, vals ...byte) op {
		return op{nfs4.OpSetattr, append(make(raw, 16), fattr(attr, vals...)...), &nfs4.SetattrRes{}}
	}
	u64 := make([]byte, 8)
	clientTime := func(nsec uint32) []byte {
		return xdr.AppendUint32(xdr.AppendUint64(xdr.AppendUint32(nil, 1), 1), nsec)
	}
	e.expect([]expect{
		{"read only type", []op{putfh(fh), one(nfs4.AttrType, 0, 0, 0, 1)}, is(nfs4.ErrInval)},
		{"read only change", []op{putfh(fh), one(nfs4.AttrChange, u64...)}, is(nfs4.ErrInval)},
		{"read only fileid", []op{putfh(fh), one(nfs4.AttrFileID, u64...)}, is(nfs4.ErrInval)},
		{"read only space", []op{putfh(fh), one(nfs4.AttrSpaceUsed, u64...)}, is(nfs4.ErrInval)},
		{"hidden", []op{putfh(fh), one(nfs4.AttrHidden, 0, 0, 0, 1)}, is(nfs4.ErrAttrNotSupp)},
		{"attribute of the future", []op{putfh(fh), one(95, 0, 0, 0, 1)}, is(nfs4.ErrAttrNotSupp)},
		{"mode", []op{putfh(fh), setattr(nfs4.Stateid{}, mode(0o10000))}, is(nfs4.ErrInval)},
		{"nanoseconds", []op{putfh(fh), one(nfs4.AttrTimeModifySet, clientTime(1e9)...)}, is(nfs4.ErrInval)},
		{"size of a directory", []op{putfh(e.dir), setattr(nfs4.Stateid{}, size(1))}, is(nfs4.ErrIsDir, nfs4.ErrInval)},
		{"size over the maximum", []op{putfh(fh), setattr(nfs4.Stateid{}, size(1<<63))}, is(nfs4.ErrFBig, nfs4.ErrInval)},
		{"bytes left over", []op{putfh(fh), one(nfs4.AttrMode, 0, 0, 1, 0xff, 0, 0, 0, 0)}, is(nfs4.ErrBadXDR)},
	})
	if after := e.attr([]op{putfh(fh)}, nfs4.AttrChange).Change; after != before {
		e.Errorf("refused, and the file changed: %d, %d", before, after)
	}
}

// Section 5.9: owners are numbers; what is no user here is BADOWNER, and never nobody.
func testOwners(e *env) {
	fh := e.file("f", "")
	for _, name := range []string{"", "-1", "+1", "01", "00", " 1", "1 ", "0x10", "4294967295", "4294967296", "18446744073709551616", "1\x00", "1.5", "nobody-of-this-name@nowhere.invalid"} {
		e.Run(fmt.Sprintf("%q", name), func(t *testing.T) {
			c := e.with(t)
			for _, s := range []nfs4.Sattr{
				{Mask: nfs4.BitmapOf(nfs4.AttrOwner), Owner: []byte(name)}, {Mask: nfs4.BitmapOf(nfs4.AttrOwnerGroup), OwnerGroup: []byte(name)},
			} {
				c.refused([]op{putfh(fh), setattr(nfs4.Stateid{}, s)}, nfs4.ErrBadOwner, nfs4.ErrInval)
				args := c.openArgs(opening{name: "made", create: true})
				args.Attr = s
				c.refused([]op{putfh(e.dir), open(args)}, nfs4.ErrBadOwner, nfs4.ErrInval)
			}
			c.refused([]op{putfh(e.dir), lookup("made")}, nfs4.ErrNoEnt)
		})
	}
	e.asOther(func(other *client) {
		a := e.attr([]op{putfh(fh)}, nfs4.AttrOwner, nfs4.AttrOwnerGroup)
		if string(a.Owner) != "0" || string(a.OwnerGroup) != "0" {
			other.Errorf("owner %q, group %q", a.Owner, a.OwnerGroup)
		}
		// Who does not own the file can't give it away.
		other.refused([]op{putfh(fh), setattr(nfs4.Stateid{}, nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrOwner), Owner: []byte("1000")})}, nfs4.ErrPerm, nfs4.ErrAccess)
		other.refused([]op{putfh(fh), setattr(nfs4.Stateid{}, mode(0o777))}, nfs4.ErrPerm, nfs4.ErrAccess)
	})
}

// Section 18.34.3: SETATTR of the size is a WRITE.
func testSize(e *env) {
	fh, id := e.client.open(e.dir, opening{name: "f", create: true})
	for _, n := range []uint64{10, 0, 1 << 20, 3} {
		e.ok(putfh(fh), setattr(id, size(n)))
		if got := e.attr([]op{putfh(fh)}, nfs4.AttrSize).Size; got != n {
			e.Errorf("size %d is %d", n, got)
		}
	}
	e.content(fh, "\x00\x00\x00")
	_, readOnly := e.another().open(e.dir, opening{name: "f", access: nfs4.ShareAccessRead})
	_, mine := e.client.open(e.dir, opening{name: "f", owner: "reader", access: nfs4.ShareAccessRead})
	e.refused([]op{putfh(fh), setattr(mine, size(1))}, nfs4.ErrOpenMode)
	e.refused([]op{putfh(fh), setattr(readOnly, size(1))}, nfs4.ErrBadStateid) // another client's
	e.content(fh, "\x00\x00\x00")
}

// Sections 18.30 and 18.15.
func testVerify(e *env) {
	fh := e.file("f", "content")
	sizeIs := func(n uint64) nfs4.Fattr {
		return nfs4.Fattr{Mask: nfs4.BitmapOf(nfs4.AttrSize), Vals: xdr.AppendUint64(nil, n)}
	}
	e.ok(putfh(fh), verify(sizeIs(7)), nverify(sizeIs(8)))
	hidden := nfs4.Fattr{Mask: nfs4.BitmapOf(nfs4.AttrHidden), Vals: make([]byte, 4)}
	modeIs := func(mode uint32) nfs4.Fattr {
		return nfs4.Fattr{Mask: nfs4.BitmapOf(nfs4.AttrMode), Vals: xdr.AppendUint32(nil, mode)}
	}
	bits := e.attr([]op{putfh(fh)}, nfs4.AttrMode).Mode
	e.ok(putfh(fh), verify(modeIs(bits)), nverify(modeIs(bits^0o7777)))
	rdattr := nfs4.Fattr{Mask: nfs4.BitmapOf(nfs4.AttrRdattrError), Vals: make([]byte, 4)}
	e.expect([]expect{
		{"not same", []op{putfh(fh), verify(sizeIs(8))}, is(nfs4.ErrNotSame)},
		{"same", []op{putfh(fh), nverify(sizeIs(7))}, is(nfs4.ErrSame)},
		{"not supported", []op{putfh(fh), verify(hidden)}, is(nfs4.ErrAttrNotSupp)},
		{"not supported by nverify", []op{putfh(fh), nverify(hidden)}, is(nfs4.ErrAttrNotSupp)},
		{"mode with the type of the file", []op{putfh(fh), verify(modeIs(0o100000 | bits))}, is(nfs4.ErrInval)},
		{"mode with the type of the file by nverify", []op{putfh(fh), nverify(modeIs(0o100000 | bits))}, is(nfs4.ErrInval)},
		{"rdattr_error", []op{putfh(fh), verify(rdattr)}, is(nfs4.ErrInval)},
		{"rdattr_error of nverify", []op{putfh(fh), nverify(rdattr)}, is(nfs4.ErrInval)},
		{"pseudo root", []op{putrootfh(), nverify(nfs4.Fattr{Mask: nfs4.BitmapOf(nfs4.AttrType), Vals: []byte{0, 0, 0, 2}})}, is(nfs4.ErrSame)},
	})
}

// Section 5.8.1.4: the change attribute is another one after each change, however quickly
// they come.
func testChange(e *env) {
	fh, id := e.client.open(e.dir, opening{name: "f", create: true})
	seen := map[uint64]int{}
	for i := range 200 {
		var change op
		switch i % 4 {
		case 0:
			change = write(id, 0, "x")
		case 1:
			change = setattr(nfs4.Stateid{}, mode(0o600+uint32(i%8)))
		case 2:
			change = setattr(id, size(uint64(i)))
		case 3:
			change = op{nfs4.OpWrite, &nfs4.WriteArgs{Stateid: id, Offset: uint64(i), Data: []byte("y")}, &nfs4.WriteRes{}}
		}
		c := get[nfs4.GetattrRes](e, e.ok(putfh(fh), change, getattrs(nfs4.AttrChange))).Attr.Change
		if before, ok := seen[c]; ok {
			e.Fatalf("after change %d (%v) as after change %d: %d", i, change.num, before, c)
		}
		seen[c] = i
		if same := e.attr([]op{putfh(fh)}, nfs4.AttrChange).Change; same != c {
			e.Fatalf("nothing changed, and %d became %d", c, same)
		}
	}
}

// An OPEN that makes a file, and the GETATTR after it, as every client sends them: the server may know the attributes without
// another look at the file, and what is changed after the OPEN is seen all the same.
func testAttrsOfMade(e *env) {
	usual := nfs4.BitmapOf(nfs4.AttrType, nfs4.AttrChange, nfs4.AttrSize, nfs4.AttrFileID, nfs4.AttrMode, nfs4.AttrNumLinks, nfs4.AttrOwner,
		nfs4.AttrOwnerGroup, nfs4.AttrTimeAccess, nfs4.AttrTimeMetadata, nfs4.AttrTimeModify)
	attrs := func(r *reply) (all []nfs4.Attrs) { // of each GETATTR
		for _, res := range r.res {
			if res, ok := res.(*nfs4.GetattrRes); ok {
				all = append(all, res.Attr)
			}
		}
		return all
	}
	set := mode(0o640)
	set.Mask.Set(nfs4.AttrTimeModifySet)
	set.TimeModify = nfs4.SetTime{How: nfs4.SetToClientTime, Time: nfs4.Time{Sec: 1e9}}
	for name, how := range map[string]func(*nfs4.OpenArgs){
		"unchecked": func(a *nfs4.OpenArgs) { a.Mode = nfs4.Unchecked }, "guarded": func(a *nfs4.OpenArgs) { a.Mode = nfs4.Guarded },
		"exclusive": func(a *nfs4.OpenArgs) { a.Mode = nfs4.Exclusive }, "exclusive with attributes": func(a *nfs4.OpenArgs) { a.Mode = nfs4.ExclusiveAttrs },
		"size":  func(a *nfs4.OpenArgs) { a.Attr = size(5) },
		"times": func(a *nfs4.OpenArgs) { a.Attr = set },
		"deny":  func(a *nfs4.OpenArgs) { a.ShareDeny = nfs4.ShareAccessWrite },
	} {
		e.Run(name, func(t *testing.T) {
			c := e.with(t)
			args := c.openArgs(opening{name: name, create: true})
			how(&args)
			r := c.ok(putfh(e.dir), savefh(), getattrs(nfs4.AttrChange), open(args), getfh(), getattr(usual), restorefh(), getattrs(nfs4.AttrChange))
			made, opened := get[nfs4.GetfhRes](c, r).FH, get[nfs4.OpenRes](c, r)
			got, again := attrs(r), get[nfs4.GetattrRes](c, c.ok(putfh(made), getattr(usual))).Attr
			before, first, after := got[0].Change, got[1], got[2].Change
			// Another file may push it out of what is counted, and then its change attribute moves by that: not of three files.
			with, then := first, again
			for n := 0; n < 2 && with.Change < then.Change; n++ {
				args.Name = fmt.Append(nil, name, n)
				r := c.ok(putfh(e.dir), open(args), getfh(), getattr(usual))
				with, then = attrs(r)[0], get[nfs4.GetattrRes](c, c.ok(putfh(get[nfs4.GetfhRes](c, r).FH), getattr(usual))).Attr
			}
			if !reflect.DeepEqual(with, then) {
				t.Errorf("with OPEN %+v, and then %+v", with, then)
			}
			if before == after || opened.Change.Atomic && (opened.Change.Before != before || opened.Change.After != after) {
				t.Errorf("the directory's change attribute went from %d to %d, and OPEN says %+v", before, after, opened.Change)
			}
			c.ok(putfh(made), write(opened.Stateid, 0, "x"))
			if now := c.attr([]op{putfh(made)}, nfs4.AttrChange).Change; now == first.Change {
				t.Errorf("the change attribute is %d before and after a WRITE", now)
			}
			args.Name, args.Verf = []byte(name+" and write"), nfs4.Verifier{1}
			r = c.ok(putfh(e.dir), open(args), getattr(usual), write(nfs4.CurrentStateid(), 0, "longer"), getattr(usual))
			got = attrs(r)
			if first, now := got[0], got[1]; now.Size != 6 || now.Change == first.Change {
				t.Errorf("a WRITE in the call of OPEN: size %d, and the change attribute went from %d to %d", now.Size, first.Change, now.Change)
			}
		})
	}
}

// Section 3.3.4: what changes a directory tells its change attribute before and after.
func testChangeInfo(e *env) {
	other := e.fh(putfh(e.dir), mkdir("other"))
	dir := e.fh(putfh(e.dir), mkdir("dir"))
	change := func() uint64 { return e.attr([]op{putfh(dir)}, nfs4.AttrChange).Change }
	last := change()
	check := func(what string, c nfs4.ChangeInfo) {
		e.Helper()
		now := change()
		if c.Before == c.After || now == last {
			e.Errorf("%s: %+v; the directory's was %d and is %d", what, c, last, now)
		}
		if c.Atomic && (c.Before != last || c.After != now) {
			e.Errorf("%s: %+v is atomic, and the directory's was %d and is %d", what, c, last, now)
		}
		last = now
	}
	for i := range 20 {
		name := fmt.Sprint(i)
		check("CREATE", get[nfs4.CreateRes](e, e.ok(putfh(dir), mkdir(name))).Change)
		check("REMOVE", get[nfs4.ChangeRes](e, e.ok(putfh(dir), remove(name))).Change)
		r := e.ok(putfh(dir), open(e.openArgs(opening{name: name, create: true})), getfh())
		check("OPEN", get[nfs4.OpenRes](e, r).Change)
		check("LINK", get[nfs4.ChangeRes](e, e.ok(putfh(get[nfs4.GetfhRes](e, r).FH), savefh(), putfh(dir), link(name+"l"))).Change)
		check("RENAME from", get[nfs4.RenameRes](e, e.ok(putfh(dir), savefh(), putfh(other), rename(name, name))).Source)
		check("RENAME to", get[nfs4.RenameRes](e, e.ok(putfh(other), savefh(), putfh(dir), rename(name, name))).Target)
	}
	if c := get[nfs4.OpenRes](e, e.ok(putfh(dir), open(e.openArgs(opening{name: "0"})))).Change; c.Before != c.After || change() != last {
		e.Errorf("an OPEN that makes nothing: %+v", c)
	}
}

// Sections 5.8.1.9 and 5.8.2.23: each volume is a file system of its own, mounted in the
// pseudo file system.
func testFSID(e *env) {
	pseudo := e.attr([]op{putrootfh()}, nfs4.AttrFSID, nfs4.AttrFileID, nfs4.AttrMountedOnFileID)
	root := e.attr([]op{putfh(e.root)}, nfs4.AttrFSID, nfs4.AttrFileID, nfs4.AttrMountedOnFileID)
	dir := e.attr([]op{putfh(e.dir)}, nfs4.AttrFSID, nfs4.AttrFileID, nfs4.AttrMountedOnFileID)
	if pseudo.FSID == root.FSID {
		e.Errorf("the pseudo root and the volume have the fsid %v", root.FSID)
	}
	if dir.FSID != root.FSID || dir.FileID == root.FileID {
		e.Errorf("the volume's root: %+v; a directory in it: %+v", root, dir)
	}
	if dir.FileID != dir.MountedOnFileID || pseudo.FileID != pseudo.MountedOnFileID {
		e.Errorf("nothing is mounted there, and fileids differ: %+v, %+v", dir, pseudo)
	}
	// READDIR above the volume tells the same of it.
	ops := walkOps(e.target.Export)
	above := e.fh(ops[:len(ops)-1]...)
	name := e.target.Export[strings.LastIndexByte(e.target.Export, '/')+1:]
	for _, entry := range e.list(above, nfs4.ReaddirArgs{MaxCount: 8192, Request: nfs4.BitmapOf(nfs4.AttrFSID, nfs4.AttrFileID, nfs4.AttrMountedOnFileID, nfs4.AttrRdattrError)}) {
		if string(entry.Name) != name {
			continue
		}
		a, err := entry.Attr.Attrs()
		if err != nil || a.FSID != root.FSID || a.FileID != root.FileID || a.MountedOnFileID != root.MountedOnFileID {
			e.Errorf("listed: %v, %+v; by GETATTR: %+v", err, a, root)
		}
	}
}

// Section 18.1.
func testAccess(e *env) {
	fh := e.file("f", "x")
	e.ok(putfh(fh), setattr(nfs4.Stateid{}, mode(0o640)))
	all := uint32(nfs4.AccessRead | nfs4.AccessLookup | nfs4.AccessModify | nfs4.AccessExtend | nfs4.AccessDelete | nfs4.AccessExecute)
	for _, tt := range []struct {
		name     string
		c        *client
		ops      []op
		has, not uint32
	}{
		{"owner", e.client, []op{putfh(fh)}, nfs4.AccessRead | nfs4.AccessModify | nfs4.AccessExtend, nfs4.AccessExecute},
		{"group", e.as(1000, 1000, 0), []op{putfh(fh)}, nfs4.AccessRead, nfs4.AccessModify | nfs4.AccessExtend | nfs4.AccessExecute},
		{"other", e.as(1000, 1000), []op{putfh(fh)}, 0, all},
		{"other of a directory", e.as(1000, 1000), []op{putfh(e.dir)}, nfs4.AccessRead | nfs4.AccessLookup, nfs4.AccessModify | nfs4.AccessExtend | nfs4.AccessDelete},
		{"pseudo root", e.client, []op{putrootfh()}, nfs4.AccessRead | nfs4.AccessLookup, nfs4.AccessModify | nfs4.AccessExtend | nfs4.AccessDelete},
	} {
		e.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
			if tt.c != e.client {
				needs(t, &e.target, nfstest.FeatureIdentity)
			}
			c := tt.c.with(t)
			res := get[nfs4.AccessRes](c, c.ok(append(tt.ops, access(all))...))
			if res.Access&tt.has != tt.has || res.Access&tt.not != 0 || res.Access&^res.Supported != 0 {
				t.Errorf("supported %#x, access %#x, want %#x and not %#x", res.Supported, res.Access, tt.has, tt.not)
			}
			one := get[nfs4.AccessRes](c, c.ok(append(tt.ops, access(nfs4.AccessRead))...))
			if one.Access&^nfs4.AccessRead != 0 || one.Supported&^nfs4.AccessRead != 0 {
				t.Errorf("asked for READ: %+v", one)
			}
		})
	}
}
