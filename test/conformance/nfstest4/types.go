package nfstest4

import (
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// typeTests put the operations to each type of file: RFC 8881 sections 15.1.2 and 15.2, and those of the
// operations.
var typeTests = []test{
	{"regular file", func(e *env) { e.typed(nfs4.TypeReg) }},
	{"directory", func(e *env) { e.typed(nfs4.TypeDir) }},
	{"symbolic link", func(e *env) { e.typed(nfs4.TypeLnk) }},
	{"fifo", func(e *env) { e.typed(nfs4.TypeFIFO) }},
	{"socket", func(e *env) { e.typed(nfs4.TypeSock) }},
	{"character device", func(e *env) { e.typed(nfs4.TypeChr) }},
	{"block device", func(e *env) { e.typed(nfs4.TypeBlk) }},
}

// typed tries the operations on a file of one type.
func (e *env) typed(kind nfs4.FType) {
	e.Helper()
	var fh nfs4.FH
	switch kind {
	case nfs4.TypeReg:
		fh = e.file("f", "content")
	case nfs4.TypeChr, nfs4.TypeBlk:
		e.need(nfstest.FeatureDevices)
		fh = e.fh(putfh(e.dir), create(nfs4.CreateArgs{Type: kind, Spec: nfs4.SpecData{Major: 1, Minor: 3}, Name: []byte("f"), Attr: mode(0o644)}))
	default:
		fh = e.fh(putfh(e.dir), create(nfs4.CreateArgs{Type: kind, Link: []byte("target"), Name: []byte("f")}))
	}
	e.typeAccess(fh, kind)
	e.typeGetattr(fh, kind)
	e.typeVerify(fh)
	e.typeSetattr(fh, kind)
	if kind != nfs4.TypeDir {
		e.typeNoDir(fh, kind)
	}
	if kind != nfs4.TypeReg {
		e.typeNoData(fh, kind)
	}
	if kind == nfs4.TypeLnk {
		if res := get[nfs4.ReadlinkRes](e, e.ok(putfh(fh), readlink())); string(res.Link) != "target" {
			e.Errorf("READLINK: %q", res.Link)
		}
	} else {
		e.refused([]op{putfh(fh), readlink()}, nfs4.ErrWrongType, nfs4.ErrInval)
	}
	e.typeNames(fh, kind)
}

// Section 18.1.3: the reply has no right that was not asked for, nor one that such a file has not.
func (e *env) typeAccess(fh nfs4.FH, kind nfs4.FType) {
	e.Helper()
	none := uint32(nfs4.AccessLookup | nfs4.AccessDelete)
	if kind == nfs4.TypeDir {
		none = nfs4.AccessExecute
	}
	for asked := range uint32(64) {
		res := get[nfs4.AccessRes](e, e.ok(putfh(fh), access(asked)))
		if res.Supported&^asked != 0 || res.Access&^res.Supported != 0 || res.Supported&none != 0 {
			e.Errorf("ACCESS %#x: %+v", asked, res)
		}
	}
	known := uint32(63)
	if e.minor == 2 && (kind == nfs4.TypeReg || kind == nfs4.TypeDir) {
		known |= xattrAccess
	}
	for _, asked := range []uint32{64, 65, 127, 128, 256, 511, 512, 1 << 31} {
		r := e.do(putfh(fh), access(asked))
		if r.status == nfs4.ErrInval {
			continue
		}
		if res := get[nfs4.AccessRes](e, r); r.status != nfs4.OK || res.Supported&^known != 0 || res.Access&^known != 0 {
			e.Errorf("ACCESS %#x: %v, %+v", asked, r.status, res)
		}
	}
}

// requiredAttrs are those that each server has, and that can be compared: section 5.6.
var requiredAttrs = nfs4.BitmapOf(
	nfs4.AttrSupportedAttrs, nfs4.AttrType, nfs4.AttrFHExpireType, nfs4.AttrChange, nfs4.AttrSize, nfs4.AttrLinkSupport,
	nfs4.AttrSymlinkSupport, nfs4.AttrNamedAttr, nfs4.AttrFSID, nfs4.AttrUniqueHandles, nfs4.AttrLeaseTime, nfs4.AttrFilehandle,
	nfs4.AttrSuppattrExclcreat,
)

func (e *env) typeGetattr(fh nfs4.FH, kind nfs4.FType) {
	e.Helper()
	got := get[nfs4.GetattrRes](e, e.ok(putfh(fh), getattr(requiredAttrs))).Attr
	if got.Mask != requiredAttrs || got.Type != kind || string(got.Filehandle) != string(fh) {
		e.Errorf("GETATTR: %+v", got)
	}
	if got.SuppattrExclcreat.Without(got.SupportedAttrs) != (nfs4.Bitmap{}) {
		e.Errorf("suppattr_exclcreat %x of %x", got.SuppattrExclcreat, got.SupportedAttrs)
	}
	if a := e.attr([]op{putfh(fh)}); a.Mask != (nfs4.Bitmap{}) {
		e.Errorf("GETATTR of nothing: %x", a.Mask)
	}
	words := xdr.AppendUint32(nil, 32) // attribute 1000 alone
	for i := range 32 {
		word := uint32(0)
		if i == 1000/32 {
			word = 1 << (1000 % 32)
		}
		words = xdr.AppendUint32(words, word)
	}
	if res := get[nfs4.GetattrRes](e, e.ok(putfh(fh), op{nfs4.OpGetattr, raw(words), &nfs4.GetattrRes{}})); res.Attr.Mask != (nfs4.Bitmap{}) {
		e.Errorf("GETATTR of attribute 1000: %x", res.Attr.Mask)
	}
	e.refused([]op{putfh(fh), getattrs(nfs4.AttrSize, nfs4.AttrTimeModifySet)}, nfs4.ErrInval)
}

// Sections 18.15 and 18.30.
func (e *env) typeVerify(fh nfs4.FH) {
	e.Helper()
	now := e.fattr(fh, requiredAttrs.Without(nfs4.BitmapOf(nfs4.AttrSuppattrExclcreat)))
	e.ok(putfh(fh), verify(now))
	e.refused([]op{putfh(fh), nverify(now)}, nfs4.ErrSame)
	other := nfs4.Fattr{Mask: nfs4.BitmapOf(nfs4.AttrSize), Vals: xdr.AppendUint64(nil, e.attr([]op{putfh(fh)}, nfs4.AttrSize).Size+1)}
	e.ok(putfh(fh), nverify(other))
	e.refused([]op{putfh(fh), verify(other)}, nfs4.ErrNotSame)
}

// fattr returns attributes of a file as the server has encoded them.
func (e *env) fattr(fh nfs4.FH, attrs nfs4.Bitmap) nfs4.Fattr {
	e.Helper()
	return get[fattrRes](e, e.ok(putfh(fh), op{nfs4.OpGetattr, &nfs4.GetattrArgs{Request: attrs}, &fattrRes{}})).attr
}

// fattrRes is GETATTR4res with the attributes as the server has encoded them.
type fattrRes struct {
	status nfs4.Status
	attr   nfs4.Fattr
}

func (r *fattrRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.status))
	if r.status != nfs4.OK {
		return b
	}
	return (&nfs4.VerifyArgs{Attr: r.attr}).Append(b)
}

func (r *fattrRes) Decode(d *xdr.Decoder) {
	*r = fattrRes{status: nfs4.Status(d.Uint32())}
	if r.status == nfs4.OK {
		var args nfs4.VerifyArgs
		args.Decode(d)
		r.attr = args.Attr
	}
}

// Section 18.34.3.
func (e *env) typeSetattr(fh nfs4.FH, kind nfs4.FType) {
	e.Helper()
	before := e.attr([]op{putfh(fh)}, nfs4.AttrChange, nfs4.AttrMode)
	for name, args := range map[string][]byte{
		"link_support": fattr(nfs4.AttrLinkSupport, 0, 0, 0, 1), "type": fattr(nfs4.AttrType, 0, 0, 0, 2),
		"filehandle": fattr(nfs4.AttrFilehandle, 0, 0, 0, 4, 1, 2, 3, 4), "numlinks": fattr(nfs4.AttrNumLinks, 0, 0, 0, 1),
	} {
		r := e.do(putfh(fh), op{nfs4.OpSetattr, append(make(raw, 16), args...), &nfs4.SetattrRes{}})
		if set := get[nfs4.SetattrRes](e, r).AttrSet; r.status != nfs4.ErrInval || set != (nfs4.Bitmap{}) {
			e.Errorf("SETATTR of %s: %v, set %x", name, r.status, set)
		}
	}
	short := op{nfs4.OpSetattr, append(make(raw, 16), fattr(nfs4.AttrMode)...), &nfs4.SetattrRes{}}
	e.refused([]op{putfh(fh), short}, nfs4.ErrBadXDR)
	if kind != nfs4.TypeReg {
		e.refused([]op{putfh(fh), setattr(nfs4.Stateid{}, size(0))}, notRegular(kind)...)
	}
	if now := e.attr([]op{putfh(fh)}, nfs4.AttrChange); now.Change != before.Change {
		e.Errorf("refused, and it changed: %d, %d", before.Change, now.Change)
	}
	r := e.do(putfh(fh), setattr(nfs4.Stateid{}, mode(0o640)))
	now := e.attr([]op{putfh(fh)}, nfs4.AttrChange, nfs4.AttrMode)
	switch {
	case r.status == nfs4.OK && (now.Mode != 0o640 || now.Change == before.Change):
		e.Errorf("SETATTR of the mode: %o, change %d and %d", now.Mode, before.Change, now.Change)
	case r.status == nfs4.ErrInval && kind == nfs4.TypeLnk && now.Mode == before.Mode: // Linux has no modes of links
	case r.status != nfs4.OK:
		e.Errorf("SETATTR of the mode: %v", r.status)
	}
	e.ok(putfh(fh), setattr(nfs4.Stateid{}, nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrTimeModifySet)}))
}

// notRegular is how what is only for regular files refuses others. INVAL is what earlier versions have.
func notRegular(kind nfs4.FType) []nfs4.Status {
	switch kind {
	case nfs4.TypeDir:
		return is(nfs4.ErrIsDir, nfs4.ErrInval)
	case nfs4.TypeLnk:
		return is(nfs4.ErrSymlink, nfs4.ErrInval)
	}
	return is(nfs4.ErrWrongType, nfs4.ErrInval)
}

// Section 15.1.2.6, NOTDIR, and 15.1.2.8, SYMLINK.
func (e *env) typeNoDir(fh nfs4.FH, kind nfs4.FType) {
	e.Helper()
	no := is(nfs4.ErrNotDir)
	if kind == nfs4.TypeLnk {
		no = append(no, nfs4.ErrSymlink)
	}
	for name, ops := range map[string][]op{
		"LOOKUP": {putfh(fh), lookup("x")}, "LOOKUPP": {putfh(fh), lookupp()}, "READDIR": {putfh(fh), readdir(nfs4.ReaddirArgs{MaxCount: 4096})},
		"CREATE": {putfh(fh), mkdir("x")}, "OPEN": {putfh(fh), open(e.openArgs(opening{name: "x"}))},
		"OPEN to create": {putfh(fh), open(e.openArgs(opening{name: "x", create: true}))}, "REMOVE": {putfh(fh), remove("x")},
		"RENAME from": {putfh(fh), savefh(), putfh(e.dir), rename("x", "y")}, "RENAME to": {putfh(e.dir), savefh(), putfh(fh), rename("f", "y")},
		"LINK": {putfh(e.file("other", "")), savefh(), putfh(fh), link("x")}, "SECINFO": {putfh(fh), secinfo("x")},
	} {
		r := e.do(ops...)
		if r.last() != ops[len(ops)-1].num || r.status != no[0] && r.status != no[len(no)-1] {
			e.Errorf("%s: %v says %v", name, r.last(), r.status)
		}
	}
	e.ok(putfh(e.dir), remove("other"))
}

// Sections 18.3.3, 18.10.3, 18.22.3 and 18.32.3. testOpenTypes has OPEN.
func (e *env) typeNoData(fh nfs4.FH, kind nfs4.FType) {
	e.Helper()
	for name, o := range map[string]op{
		"READ": read(nfs4.Stateid{}, 0, 1), "WRITE": write(nfs4.Stateid{}, 0, "x"), "COMMIT": commit(0, 0),
		"LOCKT": lockt(nfs4.LocktArgs{Type: nfs4.LockRead, Length: 1, Owner: nfs4.StateOwner{Owner: []byte("l")}}),
	} {
		r := e.do(putfh(fh), o)
		ok := false
		for _, want := range notRegular(kind) {
			ok = ok || r.status == want
		}
		if !ok || r.last() != o.num {
			e.Errorf("%s: %v says %v", name, r.last(), r.status)
		}
	}
}

// Sections 18.9, 18.25 and 18.26: a name is a name, whatever it is of.
func (e *env) typeNames(fh nfs4.FH, kind nfs4.FType) {
	e.Helper()
	dir := e.fh(putfh(e.dir), mkdir("dir"))
	e.ok(putfh(e.dir), savefh(), putfh(dir), rename("f", "g"))
	if same := e.fh(putfh(dir), lookup("g")); string(same) != string(fh) {
		e.Errorf("after RENAME: %x, it was %x", same, fh)
	}
	if kind != nfs4.TypeDir {
		e.ok(link2(fh, e.dir, "f")...)
		if n := e.attr([]op{putfh(fh)}, nfs4.AttrNumLinks).NumLinks; n != 2 {
			e.Errorf("%d links", n)
		}
		e.ok(putfh(e.dir), remove("f"))
	}
	e.ok(putfh(dir), remove("g"))
	e.refused([]op{putfh(dir), lookup("g")}, nfs4.ErrNoEnt)
	e.ok(putfh(e.dir), remove("dir"))
	if names := e.names(e.dir); len(names) != 0 {
		e.Error("left:", names)
	}
}
