package nfstest4

import (
	"fmt"
	"math"
	"slices"

	"github.com/podnas/podnas/nfs/nfs4"
)

// detailTests are what results say beside their status.
var detailTests = []test{
	{"listing as long as maxcount", testMaxCount},
	{"dircount is a hint", testDirCount},
	{"cookie verifier", testCookieVerf},
	{"cookies are signed", testCookiesSigned},
	{"names without the right to search", testNamesOnly},
	{"rename that does nothing", testRenameNothing},
}

// Section 18.23.3: maxcount is the size of READDIR4resok, whose status it does not count.
func testMaxCount(e *env) {
	empty := func(max uint32) []op { return []op{putfh(e.dir), readdir(nfs4.ReaddirArgs{MaxCount: max})} }
	e.refused(empty(15), nfs4.ErrTooSmall)
	if res := get[nfs4.ReaddirRes](e, e.ok(empty(16)...)); !res.EOF || len(res.Entries) != 0 {
		e.Errorf("an empty directory: %+v", res)
	}
	e.refused([]op{putrootfh(), readdir(nfs4.ReaddirArgs{MaxCount: 15})}, nfs4.ErrTooSmall)
	e.file("a-name", "")
	res := get[nfs4.ReaddirRes](e, e.ok(putfh(e.dir), readdir(nfs4.ReaddirArgs{MaxCount: 4096, Request: nfs4.BitmapOf(nfs4.AttrFileID)})))
	fits := uint32(len(res.Append(nil)) - 4)
	list := func(max uint32) []op {
		return []op{putfh(e.dir), readdir(nfs4.ReaddirArgs{MaxCount: max, Request: nfs4.BitmapOf(nfs4.AttrFileID)})}
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
	e.refused([]op{putfh(e.dir), readdir(nfs4.ReaddirArgs{CookieVerf: nfs4.Verifier{1}, MaxCount: 4096})}, nfs4.ErrNotSame, nfs4.ErrBadCookie)
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
		if len(rest) != len(all)-i-1 || len(rest) > 0 && string(rest[0].Name) != string(all[i+1].Name) {
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
