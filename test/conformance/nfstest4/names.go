package nfstest4

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// nameTests are what changes and reads directories, and COMMIT: RFC 8881 sections 18.3, 18.4,
// 18.9 and 18.23 to 18.26.
var nameTests = []test{
	{"create", testCreate},
	{"create refused", testCreateRefused},
	{"remove", testRemove},
	{"rename", testRename},
	{"link", testLink},
	{"link as another user", testLinkOfAnother},
	{"readlink", testReadlink},
	{"readdir", testReaddir},
	{"readdir refused", testReaddirRefused},
	{"readdir attributes", testReaddirAttrs},
	{"commit", testCommit},
	{"read and write", testReadWrite},
}

// Section 18.4: all types but regular files.
func testCreate(e *env) {
	for i, args := range []nfs4.CreateArgs{
		{Type: nfs4.TypeDir, Attr: mode(0o750)},
		{Type: nfs4.TypeLnk, Link: []byte("target")},
		{Type: nfs4.TypeFIFO, Attr: mode(0o640)},
		{Type: nfs4.TypeSock, Attr: mode(0o640)},
		{Type: nfs4.TypeChr, Spec: nfs4.SpecData{Major: 1, Minor: 3}, Attr: mode(0o640)},
		{Type: nfs4.TypeBlk, Spec: nfs4.SpecData{Major: 7, Minor: 300}, Attr: mode(0o640)},
	} {
		args.Name = []byte(fmt.Sprint("type", args.Type))
		if reason, lacks := e.target.Lacks[nfstest.FeatureDevices]; lacks && args.Spec != (nfs4.SpecData{}) {
			e.Logf("no devices: %s", reason)
			e.refused([]op{putfh(e.dir), create(args)}, nfs4.ErrPerm)
			continue
		}
		// Section 18.4.4: the new object is the current one.
		r := e.ok(putfh(e.dir), create(args), getfh(), getattrs(nfs4.AttrType, nfs4.AttrMode, nfs4.AttrRawDev))
		a := get[nfs4.GetattrRes](e, r).Attr
		if a.Type != args.Type || args.Attr.Mask.Has(nfs4.AttrMode) && a.Mode != args.Attr.Mode {
			e.Errorf("%d: type %d, mode %o", i, a.Type, a.Mode)
		}
		if args.Spec != (nfs4.SpecData{}) && a.RawDev != args.Spec {
			e.Errorf("device %v, want %v", a.RawDev, args.Spec)
		}
		if set := get[nfs4.CreateRes](e, r).AttrSet; !set.Without(args.Attr.Mask).Empty() {
			e.Errorf("set %x of %x", set, args.Attr.Mask)
		}
		if fh := e.fh(putfh(e.dir), lookup(string(args.Name))); !bytes.Equal(fh, get[nfs4.GetfhRes](e, r).FH) {
			e.Errorf("%s: GETFH after CREATE and LOOKUP differ", args.Name)
		}
		e.refused([]op{putfh(e.dir), create(args)}, nfs4.ErrExist)
	}
}

func testCreateRefused(e *env) {
	args := func(kind nfs4.FType) nfs4.CreateArgs { return nfs4.CreateArgs{Type: kind, Name: []byte("x")} }
	// Linux has 12 and 20 bits for a device, specdata4 32 for each.
	device := func(kind nfs4.FType, major, minor uint32) nfs4.CreateArgs {
		return nfs4.CreateArgs{Type: kind, Spec: nfs4.SpecData{Major: major, Minor: minor}, Name: []byte("x")}
	}
	noDevice := is(nfs4.ErrInval)
	if _, lacks := e.target.Lacks[nfstest.FeatureDevices]; lacks {
		noDevice = is(nfs4.ErrInval, nfs4.ErrPerm)
	}
	e.expect([]expect{
		{"regular file", []op{putfh(e.dir), create(args(nfs4.TypeReg))}, is(nfs4.ErrBadType)},
		{"type 0", []op{putfh(e.dir), create(args(0))}, is(nfs4.ErrBadType, nfs4.ErrBadXDR)},
		{"named attribute", []op{putfh(e.dir), create(args(nfs4.TypeNamedAttr))}, is(nfs4.ErrBadType)},
		{"type 100", []op{putfh(e.dir), create(args(100))}, is(nfs4.ErrBadType, nfs4.ErrBadXDR)},
		{"major of a device over the maximum", []op{putfh(e.dir), create(device(nfs4.TypeChr, 1<<12|1, 3))}, noDevice},
		{"minor of a device over the maximum", []op{putfh(e.dir), create(device(nfs4.TypeBlk, 1, 1<<20|3))}, noDevice},
		{"empty link", []op{putfh(e.dir), symlink("x", "")}, is(nfs4.ErrInval, nfs4.ErrNoEnt)},
		{"link over the maximum", []op{putfh(e.dir), symlink("x", strings.Repeat("y", 4096))}, is(nfs4.ErrNameTooLong, nfs4.ErrInval)},
	})
	e.asOther(func(other *client) {
		other.refused([]op{putfh(e.dir), mkdir("x")}, nfs4.ErrAccess)
		other.refused([]op{putfh(e.dir), open(e.openArgs(opening{name: "x", create: true}))}, nfs4.ErrAccess)
	})
	e.refused([]op{putfh(e.dir), lookup("x")}, nfs4.ErrNoEnt)
}

// Section 18.25: one operation for files and directories.
func testRemove(e *env) {
	dir := e.fh(putfh(e.dir), mkdir("dir"))
	e.ok(putfh(dir), mkdir("sub"))
	e.file("f", "")
	e.ok(putfh(e.dir), symlink("link", "dir"))
	e.refused([]op{putfh(e.dir), remove("dir")}, nfs4.ErrNotEmpty, nfs4.ErrExist)
	e.refused([]op{putfh(e.dir), remove("nothing")}, nfs4.ErrNoEnt)
	e.asOther(func(other *client) {
		other.refused([]op{putfh(e.dir), remove("f")}, nfs4.ErrAccess, nfs4.ErrPerm)
	})
	e.ok(putfh(dir), remove("sub"))
	e.ok(putfh(e.dir), remove("link"), remove("dir"), remove("f")) // section 18.25.4: the directory stays current
	if names := e.names(e.dir); len(names) != 0 {
		e.Errorf("left: %q", names)
	}
}

// Section 18.26.
func testRename(e *env) {
	fh := e.file("f", "content")
	dir := e.fh(putfh(e.dir), mkdir("dir"))
	full := e.fh(putfh(e.dir), mkdir("full"))
	e.ok(putfh(full), mkdir("sub"))
	// The current and the saved directory stay.
	if now := e.fh(putfh(e.dir), savefh(), putfh(dir), rename("f", "g")); !bytes.Equal(now, dir) {
		e.Errorf("current after RENAME: %x", now)
	}
	if same := e.fh(putfh(dir), lookup("g")); !bytes.Equal(same, fh) {
		e.Errorf("the handle was %x and is %x", fh, same)
	}
	e.file("old", "old")
	e.ok(putfh(dir), savefh(), putfh(e.dir), rename("g", "old")) // over a file
	e.content(e.fh(putfh(e.dir), lookup("old")), "content")
	e.ok(putfh(e.dir), savefh(), rename("dir", "dir2"))
	e.ok(putfh(e.dir), mkdir("empty"))
	e.ok(putfh(e.dir), savefh(), rename("full", "empty")) // over an empty directory
	e.ok(putfh(e.dir), savefh(), rename("old", "old"))    // onto itself
	e.ok(link2(fh, e.dir, "old2")...)
	e.expect([]expect{
		{"nothing", []op{putfh(e.dir), savefh(), rename("nothing", "x")}, is(nfs4.ErrNoEnt)},
		{"file over directory", []op{putfh(e.dir), savefh(), rename("old", "dir2")}, is(nfs4.ErrExist, nfs4.ErrIsDir)},
		{"directory over file", []op{putfh(e.dir), savefh(), rename("dir2", "old")}, is(nfs4.ErrExist, nfs4.ErrNotDir)},
		{"over a full directory", []op{putfh(e.dir), savefh(), rename("dir2", "empty")}, is(nfs4.ErrExist, nfs4.ErrNotEmpty)},
		{"into itself", []op{putfh(e.dir), savefh(), putfh(full), rename("empty", "x")}, is(nfs4.ErrInval)},
		{"to another file system", []op{putfh(e.dir), savefh(), putrootfh(), rename("old", "x")}, is(nfs4.ErrXDev, nfs4.ErrROFS)},
	})
	// Section 18.26.3: two names of one file; nothing happens.
	e.ok(putfh(e.dir), savefh(), rename("old", "old2"))
	if names := e.names(e.dir); !slices.Equal(names, []string{"dir2", "empty", "old", "old2"}) {
		e.Errorf("%q", names)
	}
}

// link2 makes another name of a file.
func link2(fh, dir nfs4.FH, name string) []op {
	return []op{putfh(fh), savefh(), putfh(dir), link(name)}
}

// Section 18.9.
func testLink(e *env) {
	fh := e.file("f", "content")
	dir := e.fh(putfh(e.dir), mkdir("dir"))
	if now := e.fh(link2(fh, dir, "g")...); !bytes.Equal(now, dir) {
		e.Errorf("current after LINK: %x", now)
	}
	if same := e.fh(putfh(dir), lookup("g")); !bytes.Equal(same, fh) {
		e.Errorf("the names have the handles %x and %x", fh, same)
	}
	if n := e.attr([]op{putfh(fh)}, nfs4.AttrNumLinks).NumLinks; n != 2 {
		e.Errorf("%d links", n)
	}
	e.expect([]expect{
		{"exists", link2(fh, dir, "g"), is(nfs4.ErrExist)},
		{"directory", link2(dir, e.dir, "x"), is(nfs4.ErrIsDir, nfs4.ErrPerm)},
		{"in a file", link2(fh, fh, "x"), is(nfs4.ErrNotDir)},
		{"in the pseudo root", []op{putfh(fh), savefh(), putrootfh(), link("x")}, is(nfs4.ErrXDev, nfs4.ErrROFS)},
		{"of the pseudo root", []op{putrootfh(), savefh(), putfh(dir), link("x")}, is(nfs4.ErrIsDir, nfs4.ErrXDev)},
	})
}

// Section 18.9 asks for no right to the file: fs.protected_hardlinks of the server's kernel is for its own users.
func testLinkOfAnother(e *env) {
	fh := e.file("f", "content")
	e.setMode(fh, 0o600)
	dirs := map[uint32]nfs4.FH{}
	for _, m := range []uint32{0o777, 0o755, 0o776} {
		dirs[m] = e.fh(putfh(e.dir), mkdir(fmt.Sprint("dir", m)))
		e.setMode(dirs[m], m)
	}
	e.asOther(func(other *client) {
		other.ok(link2(fh, dirs[0o777], "g")...)
		other.refused(link2(fh, dirs[0o777], "g"), nfs4.ErrExist)
		other.refused(link2(fh, dirs[0o755], "g"), nfs4.ErrAccess)
		other.refused(link2(fh, dirs[0o776], "g"), nfs4.ErrAccess)
		other.refused([]op{putfh(fh), read(nfs4.Stateid{}, 0, 1)}, nfs4.ErrAccess)
	})
}

// Section 18.24.
func testReadlink(e *env) {
	for i, target := range []string{"x", "../../a//b/", "\xff\n", strings.Repeat("y/", 500)} {
		name := fmt.Sprint("link", i)
		res := get[nfs4.ReadlinkRes](e, e.ok(putfh(e.dir), symlink(name, target), readlink()))
		if string(res.Link) != target {
			e.Errorf("%q, want %q", res.Link, target)
		}
		e.as(1000, 1000).ok(putfh(e.dir), lookup(name), readlink())
	}
	for _, n := range []int{4096, 4097, 100_000} {
		e.refused([]op{putfh(e.dir), symlink("long", strings.Repeat("x", n))}, nfs4.ErrNameTooLong)
	}
	e.refused([]op{putfh(e.dir), readlink()}, nfs4.ErrWrongType, nfs4.ErrInval)
	e.refused([]op{putfh(e.file("f", "")), readlink()}, nfs4.ErrWrongType, nfs4.ErrInval)
}

// Section 18.23: every name once, whatever the size of the pages; no "." and ".."; no
// reserved cookie.
func testReaddir(e *env) {
	if names := e.names(e.dir); len(names) != 0 {
		e.Errorf("in an empty directory: %q", names)
	}
	var want []string
	for i := range 150 {
		name := fmt.Sprintf("%s-%03d", strings.Repeat("n", i%40), i)
		want = append(want, name)
		e.ok(putfh(e.dir), mkdir(name))
	}
	slices.Sort(want)
	for _, max := range []uint32{200, 512, 4096, 1 << 20} {
		for _, dirCount := range []uint32{0, max / 2, max} {
			var names []string
			seen := map[uint64]bool{}
			for _, entry := range e.list(e.dir, nfs4.ReaddirArgs{DirCount: dirCount, MaxCount: max, Request: nfs4.BitmapOf(nfs4.AttrFileID)}) {
				names = append(names, string(entry.Name))
				if entry.Cookie < 3 || seen[entry.Cookie] {
					e.Errorf("cookie %d of %q", entry.Cookie, entry.Name)
				}
				seen[entry.Cookie] = true
			}
			slices.Sort(names)
			if !slices.Equal(names, want) {
				e.Errorf("maxcount %d, dircount %d: %d names, want %d", max, dirCount, len(names), len(want))
			}
		}
		args := readdir(nfs4.ReaddirArgs{DirCount: max, MaxCount: max, Request: nfs4.BitmapOf(nfs4.AttrType, nfs4.AttrFilehandle)})
		e.ok(putfh(e.dir), args)
		if n := len(args.res.Append(nil)) - 4; uint32(n) > max {
			e.Errorf("maxcount %d: READDIR4resok of %d bytes", max, n)
		}
	}
	// Removing what was listed loses nothing of the rest.
	res := get[nfs4.ReaddirRes](e, e.ok(putfh(e.dir), readdir(nfs4.ReaddirArgs{MaxCount: 1024})))
	left := map[string]bool{}
	for _, n := range want {
		left[n] = true
	}
	for _, entry := range res.Entries {
		delete(left, string(entry.Name))
		e.ok(putfh(e.dir), remove(string(entry.Name)))
	}
	for _, entry := range e.list(e.dir, nfs4.ReaddirArgs{Cookie: res.Entries[len(res.Entries)-1].Cookie, CookieVerf: res.CookieVerf, MaxCount: 1024}) {
		delete(left, string(entry.Name))
	}
	if len(left) != 0 {
		e.Errorf("not listed: %v", left)
	}
}

// Section 18.23.3 and .4.
func testReaddirRefused(e *env) {
	e.file("a-name-that-has-some-length", "")
	for _, cookie := range []uint64{1, 2} {
		e.refused([]op{putfh(e.dir), readdir(nfs4.ReaddirArgs{Cookie: cookie, MaxCount: 4096})}, nfs4.ErrBadCookie)
		e.refused([]op{putrootfh(), readdir(nfs4.ReaddirArgs{Cookie: cookie, MaxCount: 4096})}, nfs4.ErrBadCookie)
	}
	for _, max := range []uint32{0, 1, 16, 40} {
		e.refused([]op{putfh(e.dir), readdir(nfs4.ReaddirArgs{MaxCount: max})}, nfs4.ErrTooSmall)
	}
	e.refused([]op{putrootfh(), readdir(nfs4.ReaddirArgs{MaxCount: 10})}, nfs4.ErrTooSmall)
	e.ok(putfh(e.dir), setattr(nfs4.Stateid{}, mode(0o711)))
	e.asOther(func(other *client) {
		other.refused([]op{putfh(e.dir), readdir(nfs4.ReaddirArgs{MaxCount: 4096})}, nfs4.ErrAccess)
	})
}

// Section 18.23.3: the attributes are those of GETATTR; what has none has rdattr_error, if it
// was asked for.
func testReaddirAttrs(e *env) {
	e.file("f", "content")
	e.ok(putfh(e.dir), mkdir("dir"))
	e.ok(putfh(e.dir), symlink("link", "f"))
	wanted := e.attr([]op{putfh(e.dir)}, nfs4.AttrSupportedAttrs).SupportedAttrs.And(readable())
	for _, a := range []uint32{
		nfs4.AttrSpaceAvail, nfs4.AttrSpaceFree, nfs4.AttrFilesAvail, nfs4.AttrFilesFree, nfs4.AttrTimeAccess, nfs4.AttrSpaceUsed,
	} {
		wanted.Clear(a)
	}
	for _, entry := range e.list(e.dir, nfs4.ReaddirArgs{MaxCount: 32768, Request: wanted}) {
		res := e.ok(putfh(e.dir), lookup(string(entry.Name)), getattr(wanted))
		want := nfs4.GetattrRes{Attr: get[nfs4.GetattrRes](e, res).Attr}
		listed, err := entry.Attr.Attrs()
		if err != nil {
			e.Fatal(err)
		}
		if got := (&nfs4.GetattrRes{Attr: listed}); !bytes.Equal(got.Append(nil), want.Append(nil)) {
			e.Errorf("%q:\n%+v\n%+v", entry.Name, listed, want.Attr)
		}
	}
	// Who may list, and not search, gets names, and no attributes.
	e.ok(putfh(e.dir), setattr(nfs4.Stateid{}, mode(0o744)))
	user := e.as(1000, 1000)
	request := nfs4.BitmapOf(nfs4.AttrRdattrError, nfs4.AttrType)
	r := user.do(putfh(e.dir), readdir(nfs4.ReaddirArgs{MaxCount: 32768, Request: request}))
	if r.status != nfs4.OK {
		e.Fatalf("without the right to search: %v", r.status)
	}
	if n := len(get[nfs4.ReaddirRes](e, r).Entries); n != 3 {
		e.Errorf("%d entries", n)
	}
}

// Section 18.3: one verifier for WRITE and COMMIT as long as the server runs.
func testCommit(e *env) {
	fh, id := e.client.open(e.dir, opening{name: "f", create: true})
	var verf nfs4.Verifier
	for i, how := range []nfs4.StableHow{nfs4.Unstable, nfs4.DataSync, nfs4.FileSync} {
		res := get[nfs4.WriteRes](e, e.ok(putfh(fh), op{nfs4.OpWrite, &nfs4.WriteArgs{Stateid: id, Offset: uint64(i), Stable: how, Data: []byte{'x'}}, &nfs4.WriteRes{}}))
		if res.Count != 1 || res.Committed < how {
			e.Errorf("WRITE %d: %+v", how, res)
		}
		if i > 0 && res.Verf != verf {
			e.Errorf("verifier %x, and it was %x", res.Verf, verf)
		}
		verf = res.Verf
	}
	for _, args := range [][2]uint64{{0, 0}, {0, 1}, {1 << 40, 10}} {
		if res := get[nfs4.CommitRes](e, e.ok(putfh(fh), commit(args[0], uint32(args[1])))); res.Verf != verf {
			e.Errorf("COMMIT: verifier %x, WRITE: %x", res.Verf, verf)
		}
	}
	e.refused([]op{putfh(e.dir), commit(0, 0)}, nfs4.ErrIsDir)
	e.refused([]op{putrootfh(), commit(0, 0)}, nfs4.ErrIsDir)
	e.ok(putfh(e.dir), symlink("link", "f"))
	e.refused([]op{putfh(e.dir), lookup("link"), commit(0, 0)}, nfs4.ErrSymlink, nfs4.ErrWrongType)
}

// Sections 18.22 and 18.32.
func testReadWrite(e *env) {
	fh, id := e.client.open(e.dir, opening{name: "f", create: true})
	e.ok(putfh(fh), write(id, 5, "hello"))
	for _, tt := range []struct {
		offset uint64
		count  uint32
		want   string
		eof    bool
	}{
		{0, 100, "\x00\x00\x00\x00\x00hello", true},
		{5, 3, "hel", false},
		{5, 5, "hello", true},
		{10, 1, "", true},
		{1 << 40, 10, "", true},
		{1<<63 - 1, 10, "", true},
		{1 << 63, 10, "", true},
		{1<<64 - 1, 10, "", true},
		{0, 0, "", false},
		{10, 0, "", true},
	} {
		e.Run(fmt.Sprintf("%x-%d", tt.offset, tt.count), func(t *testing.T) {
			c := e.with(t)
			res := get[nfs4.ReadRes](c, c.ok(putfh(fh), read(id, tt.offset, tt.count)))
			if string(res.Data) != tt.want || res.EOF != tt.eof && tt.count > 0 {
				t.Errorf("%q, eof %v, want %q, %v", res.Data, res.EOF, tt.want, tt.eof)
			}
		})
	}
	if res := get[nfs4.WriteRes](e, e.ok(putfh(fh), write(id, 1<<62, ""))); res.Count != 0 { // section 18.32.3
		e.Errorf("WRITE of nothing: %+v", res)
	}
	e.refused([]op{putfh(fh), write(id, 1<<63-1, "xy")}, nfs4.ErrFBig, nfs4.ErrInval)
	e.refused([]op{putfh(fh), write(id, 1<<64-1, "x")}, nfs4.ErrFBig, nfs4.ErrInval)
	e.refused([]op{putfh(e.dir), read(nfs4.Stateid{}, 0, 1)}, nfs4.ErrIsDir)
	e.refused([]op{putfh(e.dir), write(nfs4.Stateid{}, 0, "x")}, nfs4.ErrIsDir)
	e.ok(putfh(e.dir), symlink("link", "f"))
	e.refused([]op{putfh(e.dir), lookup("link"), read(nfs4.Stateid{}, 0, 1)}, nfs4.ErrSymlink, nfs4.ErrWrongType)
	e.content(fh, "\x00\x00\x00\x00\x00hello")
}
