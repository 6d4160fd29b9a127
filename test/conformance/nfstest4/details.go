package nfstest4

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// detailTests are what results say beside their status.
var detailTests = []test{
	{"listing as long as maxcount", testMaxCount},
	{"dircount is a hint", testDirCount},
	{"cookie verifier", testCookieVerf},
	{"cookies are signed", testCookiesSigned},
	{"names without the right to search", testNamesOnly},
	{"rename that does nothing", testRenameNothing},
	{"attributes that were set", testAttrSet},
	{"attributes that were set before an error", testPartlySet},
	{"exclusive with a size", testExclusiveSize},
	{"verify of many attributes", testVerifyAll},
	{"write of nothing", testWriteNothing},
	{"change by others", testChangeByOthers},
}

// Section 18.23.3: maxcount is the size of READDIR4resok, whose status it does not count.
func testMaxCount(e *env) {
	empty := func(most uint32) []op { return []op{putfh(e.dir), readdir(nfs4.ReaddirArgs{MaxCount: most})} }
	e.refused(empty(15), nfs4.ErrTooSmall)
	if res := get[nfs4.ReaddirRes](e, e.ok(empty(16)...)); !res.EOF || len(res.Entries) != 0 {
		e.Errorf("an empty directory: %+v", res)
	}
	e.refused([]op{putrootfh(), readdir(nfs4.ReaddirArgs{MaxCount: 15})}, nfs4.ErrTooSmall)
	e.file("a-name", "")
	res := get[nfs4.ReaddirRes](e, e.ok(putfh(e.dir), readdir(nfs4.ReaddirArgs{MaxCount: 4096, Request: nfs4.BitmapOf(nfs4.AttrFileID)})))
	fits := uint32(len(res.Append(nil)) - 4)
	list := func(most uint32) []op {
		return []op{putfh(e.dir), readdir(nfs4.ReaddirArgs{MaxCount: most, Request: nfs4.BitmapOf(nfs4.AttrFileID)})}
	}
	e.refused(list(fits-1), nfs4.ErrTooSmall)
	if res := get[nfs4.ReaddirRes](e, e.ok(list(fits)...)); len(res.Entries) != 1 {
		e.Errorf("maxcount %d: %+v", fits, res)
	}
}

// Section 18.23.3: dircount may be too small for a name.
func testDirCount(e *env) {
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprintf("name-%02d", i))
		e.ok(putfh(e.dir), mkdir(want[i]))
	}
	for _, count := range []uint32{1, 20, 40, 100} {
		var names []string
		for _, entry := range e.list(e.dir, nfs4.ReaddirArgs{DirCount: count, MaxCount: 8192}) {
			names = append(names, string(entry.Name))
		}
		if slices.Sort(names); !slices.Equal(names, want) {
			e.Errorf("dircount %d: %q", count, names)
		}
	}
}

// Section 18.23.3: a cookie goes with the verifier that came with it.
func testCookieVerf(e *env) {
	for i := range 10 {
		e.ok(putfh(e.dir), mkdir(fmt.Sprint(i)))
	}
	res := get[nfs4.ReaddirRes](e, e.ok(putfh(e.dir), readdir(nfs4.ReaddirArgs{MaxCount: 200})))
	other := res.CookieVerf
	other[0] ^= 0x5a
	e.refused([]op{putfh(e.dir), readdir(nfs4.ReaddirArgs{Cookie: res.Entries[0].Cookie, CookieVerf: other, MaxCount: 4096})}, nfs4.ErrNotSame)
	e.ok(putfh(e.dir), readdir(nfs4.ReaddirArgs{Cookie: res.Entries[0].Cookie, CookieVerf: res.CookieVerf, MaxCount: 4096}))
}

// Programs have cookies as off_t, telldir(3) and lseek(2), that of the last entry, too; after it
// there is nothing.
func testCookiesSigned(e *env) {
	for i := range 20 {
		e.ok(putfh(e.dir), mkdir(fmt.Sprint(i)))
	}
	all := e.list(e.dir, nfs4.ReaddirArgs{MaxCount: 8192})
	for i, entry := range all {
		if entry.Cookie > math.MaxInt64 {
			e.Errorf("cookie %#x of entry %d of %d", entry.Cookie, i+1, len(all))
		}
		rest := e.list(e.dir, nfs4.ReaddirArgs{Cookie: entry.Cookie, MaxCount: 8192})
		if len(rest) != len(all)-i-1 || len(rest) > 0 && !bytes.Equal(rest[0].Name, all[i+1].Name) {
			e.Errorf("%d entries after entry %d of %d", len(rest), i+1, len(all))
		}
	}
}

// The right to read a directory is that to its names; only attributes take the right to search it.
func testNamesOnly(e *env) {
	e.file("f", "")
	e.ok(putfh(e.dir), setattr(nfs4.Stateid{}, mode(0o744)))
	e.asOther(func(other *client) {
		if names := other.names(e.dir); !slices.Equal(names, []string{"f"}) {
			other.Errorf("%q", names)
		}
	})
}

// Section 18.26.3: a RENAME from one name of a file to another one of it does nothing.
func testRenameNothing(e *env) {
	fh := e.file("f", "content")
	e.ok(link2(fh, e.dir, "link")...)
	sub := e.fh(putfh(e.dir), mkdir("sub"))
	e.ok(link2(fh, sub, "link")...)
	before := e.attr([]op{putfh(e.dir)}, nfs4.AttrChange).Change
	for name, ops := range map[string][]op{
		"file": {putfh(e.dir), savefh(), rename("f", "f")}, "directory": {putfh(e.dir), savefh(), rename("sub", "sub")},
		"link": {putfh(e.dir), savefh(), rename("f", "link")}, "link elsewhere": {putfh(e.dir), savefh(), putfh(sub), rename("f", "link")},
	} {
		res := get[nfs4.RenameRes](e, e.ok(ops...))
		if res.Source.Before != res.Source.After || res.Target.Before != res.Target.After {
			e.Errorf("%s: %+v", name, res)
		}
	}
	if now := e.attr([]op{putfh(e.dir)}, nfs4.AttrChange).Change; now != before {
		e.Errorf("the directory's change attribute was %d and is %d", before, now)
	}
	if names := e.names(e.dir); !slices.Equal(names, []string{"f", "link", "sub"}) {
		e.Errorf("%q", names)
	}
}

// Sections 18.4.3 and 18.34.3: attrset is what was set, and nothing else.
func testAttrSet(e *env) {
	for kind, args := range map[string]nfs4.CreateArgs{
		"directory": {Type: nfs4.TypeDir}, "link": {Type: nfs4.TypeLnk, Link: []byte("x")}, "fifo": {Type: nfs4.TypeFIFO},
	} {
		args.Name = []byte(kind)
		args.Attr = nfs4.Sattr{
			Mask: nfs4.BitmapOf(nfs4.AttrMode, nfs4.AttrTimeModifySet), Mode: 0o640,
			TimeModify: nfs4.SetTime{How: nfs4.SetToClientTime, Time: nfs4.Time{Sec: 1000000000, Nsec: 5}},
		}
		r := e.ok(putfh(e.dir), create(args), getattrs(nfs4.AttrMode, nfs4.AttrTimeModify))
		set, is := get[nfs4.CreateRes](e, r).AttrSet, get[nfs4.GetattrRes](e, r).Attr
		if set.Has(nfs4.AttrMode) != (is.Mode == 0o640) || set.Has(nfs4.AttrTimeModifySet) != (is.TimeModify == args.Attr.TimeModify.Time) {
			e.Errorf("%s: set %x, mode %o, mtime %v", kind, set, is.Mode, is.TimeModify)
		}
	}
}

// Section 18.34.3: attrset is that of an error, too.
func testPartlySet(e *env) {
	fh := e.file("f", "content")
	e.ok(putfh(fh), setattr(nfs4.Stateid{}, mode(0o666)))
	attrs := func() *nfs4.Attrs { return e.attr([]op{putfh(fh)}, nfs4.AttrSize, nfs4.AttrMode, nfs4.AttrTimeModify) }
	check := func(c *client, what string, args nfs4.Sattr, want ...nfs4.Status) {
		c.Helper()
		before := attrs()
		set := get[nfs4.SetattrRes](c, c.refused([]op{putfh(fh), setattr(nfs4.Stateid{}, args)}, want...)).AttrSet
		after := attrs()
		if set.Has(nfs4.AttrSize) != (after.Size != before.Size) || set.Has(nfs4.AttrMode) != (after.Mode != before.Mode) || set.Has(nfs4.AttrTimeModifySet) {
			c.Errorf("%s: set %x; size and mode were %d and %o, and are %d and %o", what, set, before.Size, before.Mode, after.Size, after.Mode)
		}
	}
	check(e.client, "mode and too large a size", nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrMode, nfs4.AttrSize), Mode: 0o646, Size: math.MaxInt64 + 1}, nfs4.ErrFBig, nfs4.ErrInval)
	e.asOther(func(other *client) { // who may write, and not set times
		check(other, "size and mtime", nfs4.Sattr{
			Mask: nfs4.BitmapOf(nfs4.AttrSize, nfs4.AttrTimeModifySet), Size: 3, TimeModify: nfs4.SetTime{How: nfs4.SetToClientTime, Time: nfs4.Time{Sec: 1}},
		}, nfs4.ErrPerm, nfs4.ErrAccess)
	})
}

// Section 18.16.3: open(2) with O_EXCL and O_TRUNC. What suppattr_exclcreat has can be given, and the
// same call again finds the file; what it has not can't.
func testExclusiveSize(e *env) {
	args := e.openArgs(opening{name: "f", create: true})
	args.Mode, args.Verf, args.Attr = nfs4.ExclusiveAttrs, nfs4.Verifier{9, 8, 7, 6, 5, 4, 3, 2}, size(0)
	if !e.attr([]op{putfh(e.dir)}, nfs4.AttrSuppattrExclcreat).SuppattrExclcreat.Has(nfs4.AttrSize) {
		e.refused([]op{putfh(e.dir), open(args)}, nfs4.ErrInval, nfs4.ErrAttrNotSupp)
		e.refused([]op{putfh(e.dir), lookup("f")}, nfs4.ErrNoEnt)
		return
	}
	e.ok(putfh(e.dir), open(args))
	e.ok(putfh(e.dir), open(args))
}

// Section 18.30.3: what GETATTR tells is the same, whatever is asked for.
func testVerifyAll(e *env) {
	fh := e.file("f", "content")
	supported := e.attr([]op{putfh(fh)}, nfs4.AttrSupportedAttrs).SupportedAttrs
	all := supported.Without(nfs4.BitmapOf(nfs4.AttrTimeAccessSet, nfs4.AttrTimeModifySet, nfs4.AttrModeUmask, nfs4.AttrRdattrError,
		nfs4.AttrFilesAvail, nfs4.AttrFilesFree, nfs4.AttrSpaceAvail, nfs4.AttrSpaceFree)) // which others change
	for _, mask := range []nfs4.Bitmap{all, nfs4.BitmapOf(nfs4.AttrSuppattrExclcreat), {}} {
		now := e.fattr(fh, mask)
		e.ok(putfh(fh), verify(now))
		e.refused([]op{putfh(fh), nverify(now)}, nfs4.ErrSame)
	}
}

// Section 18.32.3: a WRITE of no bytes writes nothing.
func testWriteNothing(e *env) {
	fh, id := e.client.open(e.dir, opening{name: "f", create: true})
	e.ok(putfh(fh), write(id, 0, "content"), setattr(nfs4.Stateid{}, nfs4.Sattr{
		Mask: nfs4.BitmapOf(nfs4.AttrTimeModifySet), TimeModify: nfs4.SetTime{How: nfs4.SetToClientTime, Time: nfs4.Time{Sec: 1000000000}},
	}))
	for _, offset := range []uint64{0, 3, 7, 100} {
		e.ok(putfh(fh), write(id, offset, ""))
		if a := e.attr([]op{putfh(fh)}, nfs4.AttrTimeModify, nfs4.AttrSize); a.TimeModify != (nfs4.Time{Sec: 1000000000}) || a.Size != 7 {
			e.Errorf("at %d: mtime %v, size %d", offset, a.TimeModify, a.Size)
		}
	}
}

// Section 5.8.1.4: the change attribute moves whoever makes the change, within a tick of the clock.
func testChangeByOthers(e *env) {
	fh := e.file("f", "")
	other := e.another()
	_, id := other.open(e.dir, opening{name: "f"})
	changes := []func(i int){
		func(i int) { other.ok(putfh(fh), write(id, uint64(i), "x")) },
		func(i int) { other.ok(putfh(fh), setattr(nfs4.Stateid{}, mode(0o600+uint32(i%8)))) },
		func(i int) { other.ok(link2(fh, e.dir, fmt.Sprint("link", i))...) },
	}
	if e.target.MountAddr != "" {
		changes = append(changes, func(int) {
			e.version3(func(v3 *nfstest.Client) (nfs3.Status, error) {
				res, err := v3.Write(e.Context(), nfs3.FH(fh), 0, 2, []byte("y"))
				return res.Status, err
			})
		}, func(i int) {
			e.version3(func(v3 *nfstest.Client) (nfs3.Status, error) {
				res, err := v3.Setattr(e.Context(), nfs3.SetattrArgs{Object: nfs3.FH(fh), Attr: nfs3.Sattr{Mode: nfs3.SetUint32{Set: true, Value: 0o640 + uint32(i%8)}}})
				return res.Status, err
			})
		})
	}
	last := e.attr([]op{putfh(fh)}, nfs4.AttrChange).Change
	for i := range 40 {
		changes[i%len(changes)](i)
		now := e.attr([]op{putfh(fh)}, nfs4.AttrChange).Change
		if now == last {
			e.Fatalf("change %d: %d as before", i, now)
		}
		last = now
	}
}

// Section 5.8.2.36: the time of birth never changes, whatever shows it. Version 4.2 has it, where the disk does.
func testBirth(e *env) {
	c := e.in42()
	one := nfs4.BitmapOf(nfs4.AttrTimeCreate)
	set := op{nfs4.OpSetattr, append(make(raw, 16), fattr(nfs4.AttrTimeCreate, make([]byte, 12)...)...), &nfs4.SetattrRes{}}
	if a := c.attr([]op{putfh(e.dir)}, nfs4.AttrSupportedAttrs, nfs4.AttrTimeCreate); !a.SupportedAttrs.Has(nfs4.AttrTimeCreate) {
		c.refused([]op{putfh(e.dir), set}, nfs4.ErrAttrNotSupp, nfs4.ErrInval)
		if a.Mask.Has(nfs4.AttrTimeCreate) {
			e.Error("time_create is not supported, and given")
		}
		e.Skip("named skip: time of birth: the file system of the volume has none")
	}
	if a := e.in(1).attr([]op{putfh(e.dir)}, nfs4.AttrSupportedAttrs, nfs4.AttrTimeCreate); a.SupportedAttrs.Has(nfs4.AttrTimeCreate) || a.Mask.Has(nfs4.AttrTimeCreate) {
		e.Error("version 4.1 has time_create")
	}
	began := time.Now()
	fh, id := e.opened(c, "f", "content")
	dir := c.fh(putfh(e.dir), mkdir("d"))
	c.ok(putfh(e.dir), symlink("l", "f"))
	born := map[string]nfs4.Time{}
	for name, ops := range map[string][]op{"f": {putfh(fh)}, "d": {putfh(dir)}, "l": {putfh(e.dir), lookup("l")}} {
		born[name] = c.attr(ops, nfs4.AttrTimeCreate).TimeCreate
		if at := time.Unix(born[name].Sec, int64(born[name].Nsec)); at.Before(began.Add(-time.Minute)) || at.After(began.Add(time.Minute)) {
			e.Errorf("%s was made at %v, and the time is %v", name, at, began)
		}
	}
	check := func(when string) {
		e.Helper()
		for name, want := range born {
			for how, ops := range map[string][]op{"lookup": {putfh(e.dir), lookup(name)}, "handle": {putfh(c.fh(putfh(e.dir), lookup(name)))}} {
				if got := c.attr(ops, nfs4.AttrTimeCreate, nfs4.AttrChange, nfs4.AttrMode).TimeCreate; got != want {
					e.Errorf("%s, %s by %s: %v, was %v", when, name, how, got, want)
				}
			}
		}
		for _, entry := range c.list(e.dir, nfs4.ReaddirArgs{DirCount: 8192, MaxCount: 8192, Request: one.Or(nfs4.BitmapOf(nfs4.AttrType))}) {
			if attrs, err := entry.Attr.Attrs(); err != nil || attrs.TimeCreate != born[string(entry.Name)] {
				e.Errorf("%s, %s in a listing: %v, %v", when, entry.Name, attrs.TimeCreate, err)
			}
		}
	}
	check("at once")
	time.Sleep(200 * time.Millisecond) // from then on attributes are remembered
	check("later")
	check("again")
	c.ok(putfh(fh), write(id, 0, "changed"), setattr(id, mode(0o600)), setattr(id, nfs4.Sattr{
		Mask: nfs4.BitmapOf(nfs4.AttrTimeModifySet), TimeModify: nfs4.SetTime{How: nfs4.SetToClientTime, Time: nfs4.Time{Sec: 1}},
	}))
	check("changed")
	c.refused([]op{putfh(fh), set}, nfs4.ErrInval, nfs4.ErrAttrNotSupp)
	check("refused")
}
