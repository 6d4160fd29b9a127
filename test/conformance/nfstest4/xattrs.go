package nfstest4

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
)

// xattrTests are those of extended attributes: RFC 8276, by a client of version 4.2.
var xattrTests = []test{
	{"supported", testXattrSupport},
	{"set and get", testXattrs},
	{"options", testXattrOptions},
	{"names", testXattrNames},
	{"values", testXattrValues},
	{"listing", testListxattrs},
	{"a listing of less than was asked for", testListxattrsLess},
	{"access", testXattrAccess},
	{"rights", testXattrRights},
	{"sticky directory", testXattrSticky},
	{"types of files", testXattrTypes},
	{"change attribute", testXattrChange},
	{"another client", testXattrOthers},
	{"a file that is removed", testXattrRemoved},
	{"a read-only volume", testXattrsReadOnly},
	{"pseudo directories", testXattrPseudo},
	{"a reply that is kept", testXattrReplay},
	{"many", testManyXattrs},
}

func getxattr(name string) op {
	return op{nfs4.OpGetxattr, &nfs4.GetxattrArgs{Name: []byte(name)}, &nfs4.GetxattrRes{}}
}

func setxattr(name, value string, option nfs4.SetxattrOption) op {
	return op{nfs4.OpSetxattr, &nfs4.SetxattrArgs{Option: option, Name: []byte(name), Value: []byte(value)}, &nfs4.SetxattrRes{}}
}

func listxattrs(cookie uint64, most uint32) op {
	return op{nfs4.OpListxattrs, &nfs4.ListxattrsArgs{Cookie: cookie, MaxCount: most}, &nfs4.ListxattrsRes{}}
}

func removexattr(name string) op {
	return op{nfs4.OpRemovexattr, &nfs4.RemovexattrArgs{Name: []byte(name)}, &nfs4.RemovexattrRes{}}
}

// withXattrs is a client of version 4.2. The test is skipped where files have no extended attributes.
func (e *env) withXattrs() *client {
	e.Helper()
	c := e.in42()
	if a := c.attr([]op{putfh(e.dir)}, nfs4.AttrXattrSupport); !a.XattrSupport {
		c.refused([]op{putfh(e.dir), setxattr("a", "value", nfs4.SetxattrEither)}, nfs4.ErrNotSupp)
		e.Skip("named skip: extended attributes: the file system of the volume has none of users")
	}
	return c
}

// xattrIs checks a value.
func (c *client) xattrIs(fh nfs4.FH, name, want string) {
	c.Helper()
	r := c.ok(putfh(fh), getxattr(name))
	if got := get[nfs4.GetxattrRes](c, r).Value; !bytes.Equal(got, []byte(want)) {
		c.Errorf("%q has %d bytes %.20q, want %d bytes %.20q", name, len(got), got, len(want), want)
	}
}

// xattrsAre checks the names of all attributes.
func (c *client) xattrsAre(fh nfs4.FH, want ...string) {
	c.Helper()
	r := get[nfs4.ListxattrsRes](c, c.ok(putfh(fh), listxattrs(0, 64<<10)))
	var names []string
	for _, name := range r.Names {
		names = append(names, string(name))
	}
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) || !r.EOF {
		c.Errorf("names are %q, eof %v, want %q", names, r.EOF, want)
	}
}

// Section 8.2. Older clients ask the root of the server alone.
func testXattrSupport(e *env) {
	c := e.in42()
	for name, fh := range map[string]nfs4.FH{"the volume": e.root, "the server": c.fh(putrootfh())} {
		a := c.attr([]op{putfh(fh)}, nfs4.AttrXattrSupport, nfs4.AttrSupportedAttrs)
		if !a.SupportedAttrs.Has(nfs4.AttrXattrSupport) || !a.Mask.Has(nfs4.AttrXattrSupport) || name == "the server" && !a.XattrSupport {
			e.Errorf("the root of %s: supported %v, %v", name, a.SupportedAttrs.Has(nfs4.AttrXattrSupport), a.XattrSupport)
		}
	}
	one := e.in(1)
	if a := one.attr([]op{putfh(e.root)}, nfs4.AttrXattrSupport, nfs4.AttrSupportedAttrs); a.SupportedAttrs.Has(nfs4.AttrXattrSupport) || a.Mask.Has(nfs4.AttrXattrSupport) {
		e.Error("version 4.1 has xattr_support")
	}
	one.wants(one.do(putfh(e.root), getxattr("a")), nfs4.OpIllegal, 3, nfs4.ErrOpIllegal)
}

// Section 8.4.
func testXattrs(e *env) {
	c := e.withXattrs()
	fh, _ := e.opened(c, "f", "content")
	for _, fh := range []nfs4.FH{fh, e.dir} {
		c.xattrsAre(fh)
		c.refused([]op{putfh(fh), getxattr("one")}, nfs4.ErrNoXattr)
		c.ok(putfh(fh), setxattr("one", "first", nfs4.SetxattrEither))
		c.ok(putfh(fh), setxattr("two", "", nfs4.SetxattrEither))
		c.xattrIs(fh, "one", "first")
		c.xattrIs(fh, "two", "")
		c.ok(putfh(fh), setxattr("one", "a longer one\x00\xff", nfs4.SetxattrEither))
		c.xattrIs(fh, "one", "a longer one\x00\xff")
		c.xattrsAre(fh, "one", "two")
		c.ok(putfh(fh), removexattr("one"))
		c.refused([]op{putfh(fh), getxattr("one")}, nfs4.ErrNoXattr)
		c.refused([]op{putfh(fh), removexattr("one")}, nfs4.ErrNoXattr)
		c.xattrsAre(fh, "two")
		c.ok(putfh(fh), removexattr("two"))
		c.xattrsAre(fh)
	}
	for _, o := range []op{getxattr("a"), setxattr("a", "", 0), listxattrs(0, 1000), removexattr("a")} {
		c.refused([]op{o}, nfs4.ErrNoFileHandle)
	}
	c.content(fh, "content")
}

// Section 8.4.2.
func testXattrOptions(e *env) {
	c := e.withXattrs()
	fh, _ := e.opened(c, "f", "")
	c.refused([]op{putfh(fh), setxattr("a", "1", nfs4.SetxattrReplace)}, nfs4.ErrNoXattr)
	c.xattrsAre(fh)
	c.ok(putfh(fh), setxattr("a", "2", nfs4.SetxattrCreate))
	c.refused([]op{putfh(fh), setxattr("a", "3", nfs4.SetxattrCreate)}, nfs4.ErrExist)
	c.xattrIs(fh, "a", "2")
	c.ok(putfh(fh), setxattr("a", "4", nfs4.SetxattrReplace))
	for _, option := range []nfs4.SetxattrOption{3, 4, 1 << 31, 0xffffffff} {
		c.refused([]op{putfh(fh), setxattr("a", "5", option)}, nfs4.ErrInval, nfs4.ErrBadXDR)
	}
	c.xattrIs(fh, "a", "4")
}

// Names are bytes, as on the local disk, and all of them are of users.
func testXattrNames(e *env) {
	c := e.withXattrs()
	fh, _ := e.opened(c, "f", "")
	good := []string{"n", "a/b", "/", "..", "user.n", "trusted.n", "security.selinux", "system.posix_acl_access", "ä", "\xff\xfe", " ", strings.Repeat("n", 250)}
	for _, name := range good {
		c.ok(putfh(fh), setxattr(name, "v", nfs4.SetxattrCreate))
		c.xattrIs(fh, name, "v")
	}
	c.xattrsAre(fh, slices.Clone(good)...)
	for _, tt := range []struct {
		name string
		want []nfs4.Status
	}{
		{"", []nfs4.Status{nfs4.ErrInval, nfs4.ErrBadXDR}},
		{"\x00", []nfs4.Status{nfs4.ErrInval, nfs4.ErrBadXDR}},
		{"a\x00b", []nfs4.Status{nfs4.ErrInval, nfs4.ErrBadXDR}},
		{strings.Repeat("n", 251), []nfs4.Status{nfs4.ErrNameTooLong}},
		{strings.Repeat("n", 255), []nfs4.Status{nfs4.ErrNameTooLong}},
		{strings.Repeat("n", 256), []nfs4.Status{nfs4.ErrNameTooLong}},
		{strings.Repeat("n", 4096), []nfs4.Status{nfs4.ErrNameTooLong}},
		{strings.Repeat("n", 4097), []nfs4.Status{nfs4.ErrNameTooLong, nfs4.ErrBadXDR}},
	} {
		for _, o := range []op{getxattr(tt.name), setxattr(tt.name, "v", nfs4.SetxattrEither), removexattr(tt.name)} {
			c.refused([]op{putfh(fh), o}, tt.want...)
		}
	}
	for _, name := range good {
		c.ok(putfh(fh), removexattr(name))
	}
	c.xattrsAre(fh)
}

// Values have up to 64 KiB, as far as the disk takes them.
func testXattrValues(e *env) {
	c := e.withXattrs()
	fh, _ := e.opened(c, "f", "")
	refused := false
	for _, n := range []int{0, 1, 100, 1000, 3000, 4096, 16 << 10, 64<<10 - 1, 64 << 10} {
		value := strings.Repeat("0123456789abcdef", n/16+1)[:n]
		r := c.do(putfh(fh), setxattr("a", value, nfs4.SetxattrEither))
		switch {
		case r.status == nfs4.OK && !refused:
			c.xattrIs(fh, "a", value)
		case r.status == nfs4.ErrNoSpc && n >= 1000: // ext4 has all in one block, of 1 KiB maybe, and btrfs each in a node
			refused = true
		default:
			e.Errorf("a value of %d bytes: %v", n, r.status)
		}
	}
	c.ok(putfh(fh), setxattr("a", "before", nfs4.SetxattrEither))
	for _, n := range []int{64<<10 + 1, 128 << 10, 900 << 10} {
		c.refused([]op{putfh(fh), setxattr("a", strings.Repeat("v", n), nfs4.SetxattrEither)}, nfs4.ErrXattr2Big)
	}
	c.xattrIs(fh, "a", "before")
}

// Section 8.4.3: it takes what fits, tells where to go on, and never has nothing and no end.
func testListxattrs(e *env) {
	c := e.withXattrs()
	fh, _ := e.opened(c, "f", "")
	const fixed, each = 8 + 4 + 4, 4 + 8
	r := get[nfs4.ListxattrsRes](e, c.ok(putfh(fh), listxattrs(0, fixed)))
	if len(r.Names) > 0 || !r.EOF || r.Cookie != 0 {
		e.Errorf("of a file without attributes: %+v", r)
	}
	var want []string
	for i := range 10 {
		want = append(want, fmt.Sprintf("name-%03d", i))
		c.ok(putfh(fh), setxattr(want[i], "", nfs4.SetxattrEither))
	}
	for _, most := range []uint32{fixed + each, fixed + 3*each, fixed + 3*each + 11, fixed + 10*each, 0xffffffff} {
		var names []string
		for cookie := uint64(0); ; {
			r := get[nfs4.ListxattrsRes](e, c.ok(putfh(fh), listxattrs(cookie, most)))
			if len(r.Names) == 0 || uint64(len(r.Names)) > uint64(most-fixed)/each {
				e.Fatalf("%d names in %d bytes, eof %v", len(r.Names), most, r.EOF)
			}
			for _, name := range r.Names {
				names = append(names, string(name))
			}
			if r.EOF {
				break
			}
			cookie = r.Cookie
		}
		slices.Sort(names)
		if !slices.Equal(names, want) {
			e.Errorf("in pieces of %d bytes the names are %q", most, names)
		}
	}
	for _, most := range []uint32{0, 7, 8, fixed, fixed + each - 1} {
		c.refused([]op{putfh(fh), listxattrs(0, most)}, nfs4.ErrTooSmall, nfs4.ErrInval)
	}
	for _, cookie := range []uint64{11, 1 << 32, 1<<64 - 1} {
		c.refused([]op{putfh(fh), listxattrs(cookie, 1000)}, nfs4.ErrBadCookie)
	}
	if r := get[nfs4.ListxattrsRes](e, c.ok(putfh(fh), listxattrs(10, 1000))); len(r.Names) > 0 || !r.EOF {
		e.Errorf("after the last: %+v", r)
	}
}

// Section 8.4.3.2: the maximum may be more than the session's replies hold, which are filled as with READDIR.
func testListxattrsLess(e *env) {
	c := e.withXattrs()
	fh, _ := e.opened(c, "f", "")
	var want []string
	for i := range 6 { // ext4 has room for these
		want = append(want, fmt.Sprintf("%0100d", i))
		c.ok(putfh(fh), setxattr(want[i], "", nfs4.SetxattrEither))
	}
	const most = 511
	args := c.createSessionArgs()
	args.Fore.MaxResponseSize, args.Fore.MaxResponseSizeCached = most, most
	c.createSession(args)
	var names []string
	for r := (&nfs4.ListxattrsRes{}); !r.EOF; {
		all := c.ok(putfh(fh), listxattrs(r.Cookie, 64<<10))
		if r = get[nfs4.ListxattrsRes](c, all); len(all.bytes) > most || len(r.Names) == 0 {
			e.Fatalf("a reply of %d bytes, %d names", len(all.bytes), len(r.Names))
		}
		for _, name := range r.Names {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, want) {
		e.Errorf("%d names, want %d", len(names), len(want))
	}
	// After others there is room for none.
	c.wants(c.do(putfh(fh), listxattrs(0, 64<<10), listxattrs(0, 64<<10)), nfs4.OpListxattrs, 4, nfs4.ErrRepTooBig)
	c.refused([]op{putfh(fh), listxattrs(0, 100)}, nfs4.ErrTooSmall)
}

const xattrAccess = nfs4.AccessXARead | nfs4.AccessXAWrite | nfs4.AccessXAList

// Section 8.5: Linux asks for these before anything else, and there are none in version 4.1.
func testXattrAccess(e *env) {
	c := e.withXattrs()
	fh, _ := e.opened(c, "f", "")
	for _, fh := range []nfs4.FH{fh, e.dir} {
		r := get[nfs4.AccessRes](e, c.ok(putfh(fh), access(xattrAccess|nfs4.AccessRead)))
		if r.Supported != xattrAccess|nfs4.AccessRead || r.Access != r.Supported {
			e.Errorf("supported %#x, access %#x", r.Supported, r.Access)
		}
	}
	one := e.in(1)
	r := get[nfs4.AccessRes](e, one.ok(putfh(fh), access(xattrAccess|nfs4.AccessRead)))
	if r.Supported != nfs4.AccessRead || r.Access != nfs4.AccessRead {
		e.Errorf("in version 4.1: supported %#x, access %#x", r.Supported, r.Access)
	}
}

// as42 runs a test with another user's client of version 4.2.
func (e *env) as42(run func(other *client)) {
	e.Helper()
	e.asOther(func(other *client) {
		other.minor = 2
		other.conn = other.dial()
		other.owner += " of another user"
		other.start()
		other.ok(reclaimComplete(false))
		run(other)
		if err := other.leave(); err != nil {
			e.Errorf("clean up: %v", err)
		}
	})
}

// To read them takes the right to read the file, and to change them that to write it.
func testXattrRights(e *env) {
	c := e.withXattrs()
	fh, id := e.opened(c, "f", "")
	c.ok(putfh(fh), setxattr("a", "value", nfs4.SetxattrEither))
	for _, tt := range []struct {
		mode        uint32
		read, write bool
	}{{0o600, false, false}, {0o604, true, false}, {0o602, false, true}, {0o606, true, true}} {
		c.ok(putfh(fh), setattr(id, mode(tt.mode)))
		e.as42(func(other *client) {
			does := func(what string, may bool, o op) {
				if r := other.do(putfh(fh), o); may && r.status != nfs4.OK || !may && r.status != nfs4.ErrAccess {
					e.Errorf("mode %o: %s: %v", tt.mode, what, r.status)
				}
			}
			does("get", tt.read, getxattr("a"))
			does("list", tt.read, listxattrs(0, 1000))
			does("set", tt.write, setxattr("a", "value", nfs4.SetxattrEither))
			does("create", tt.write, setxattr("b", "", nfs4.SetxattrCreate))
			does("remove", tt.write, removexattr("b"))
			want := uint32(0)
			if tt.read {
				want = nfs4.AccessXARead | nfs4.AccessXAList
			}
			if tt.write {
				want |= nfs4.AccessXAWrite
			}
			if r := get[nfs4.AccessRes](e, other.ok(putfh(fh), access(xattrAccess))); r.Access != want {
				e.Errorf("mode %o: access %#x, want %#x", tt.mode, r.Access, want)
			}
		})
		c.xattrIs(fh, "a", "value")
		c.xattrsAre(fh, "a")
	}
}

// In a sticky directory only its owner sets attributes of it: xattr(7).
func testXattrSticky(e *env) {
	c := e.withXattrs()
	dir := c.fh(putfh(e.dir), create(nfs4.CreateArgs{Type: nfs4.TypeDir, Name: []byte("d"), Attr: mode(0o1777)}))
	c.ok(putfh(dir), setxattr("a", "value", nfs4.SetxattrEither))
	e.as42(func(other *client) {
		other.xattrIs(dir, "a", "value")
		other.refused([]op{putfh(dir), setxattr("a", "other", nfs4.SetxattrEither)}, nfs4.ErrPerm, nfs4.ErrAccess)
		other.refused([]op{putfh(dir), removexattr("a")}, nfs4.ErrPerm, nfs4.ErrAccess)
	})
	c.xattrIs(dir, "a", "value")
	c.ok(putfh(dir), setattr(nfs4.Stateid{}, mode(0o777)))
	e.as42(func(other *client) { other.ok(putfh(dir), removexattr("a")) })
}

// What is neither a regular file nor a directory has none: xattr(7). But newer kernels give a socket some.
func testXattrTypes(e *env) {
	c := e.withXattrs()
	e.opened(c, "file", "")
	for name, fh := range map[string]nfs4.FH{
		"a symbolic link": c.fh(putfh(e.dir), symlink("link", "file")),
		"a fifo":          c.fh(putfh(e.dir), create(nfs4.CreateArgs{Type: nfs4.TypeFIFO, Name: []byte("fifo"), Attr: mode(0o644)})),
	} {
		e.Run(name, func(t *testing.T) {
			c := c.with(t)
			c.refused([]op{putfh(fh), setxattr("a", "v", nfs4.SetxattrEither)}, nfs4.ErrPerm, nfs4.ErrNoXattr)
			c.refused([]op{putfh(fh), getxattr("a")}, nfs4.ErrNoXattr, nfs4.ErrPerm)
			c.refused([]op{putfh(fh), removexattr("a")}, nfs4.ErrPerm, nfs4.ErrNoXattr)
			c.xattrsAre(fh)
		})
	}
	c.xattrsAre(c.fh(putfh(e.dir), lookup("file")))
}

// Section 8.4.2.4: clients drop what they remember when the change attribute moves, and only then.
func testXattrChange(e *env) {
	c := e.withXattrs()
	fh, _ := e.opened(c, "f", "")
	for _, fh := range []nfs4.FH{fh, e.dir} {
		change := func() uint64 { return c.attr([]op{putfh(fh)}, nfs4.AttrChange).Change }
		for i, o := range []op{setxattr("a", "1", 0), setxattr("a", "2", 0), setxattr("a", "2", 0), removexattr("a")} {
			before := change()
			r := get[nfs4.ChangeRes](e, c.ok(putfh(fh), o))
			after := change()
			if after == before {
				e.Errorf("%d: the change attribute is still %d", i, after)
			}
			if r.Change.Atomic && (r.Change.Before != before || r.Change.After != after) {
				e.Errorf("%d: %+v, and it was %d, and is %d", i, r.Change, before, after)
			}
		}
		before := change()
		c.refused([]op{putfh(fh), getxattr("a")}, nfs4.ErrNoXattr)
		c.ok(putfh(fh), listxattrs(0, 1000))
		if after := change(); after != before {
			e.Errorf("looking has moved the change attribute from %d to %d", before, after)
		}
	}
}

func testXattrOthers(e *env) {
	c, other := e.withXattrs(), e.in42()
	fh, _ := e.opened(c, "f", "")
	for i := range 20 {
		value := fmt.Sprint(i)
		before := other.attr([]op{putfh(fh)}, nfs4.AttrChange).Change
		c.ok(putfh(fh), setxattr("a", value, nfs4.SetxattrEither))
		other.xattrIs(fh, "a", value)
		if after := other.attr([]op{putfh(fh)}, nfs4.AttrChange).Change; after == before {
			e.Errorf("%d: another client sees no change", i)
		}
	}
}

// A file that was removed while it is open keeps its attributes, and may get others.
func testXattrRemoved(e *env) {
	c := e.withXattrs()
	fh, id := e.opened(c, "f", "")
	c.ok(putfh(fh), setxattr("a", "before", nfs4.SetxattrEither))
	c.ok(putfh(e.dir), remove("f"))
	c.xattrIs(fh, "a", "before")
	c.ok(putfh(fh), setxattr("a", "after", nfs4.SetxattrReplace))
	c.ok(putfh(fh), setxattr("b", "new", nfs4.SetxattrCreate))
	c.xattrsAre(fh, "a", "b")
	c.ok(putfh(fh), removexattr("b"))
	c.xattrIs(fh, "a", "after")
	c.ok(putfh(fh), closeOp(id))
	for _, o := range []op{getxattr("a"), setxattr("a", "", nfs4.SetxattrEither), listxattrs(0, 1000), removexattr("a")} {
		if r := c.do(putfh(fh), o); r.status != nfs4.ErrStale {
			e.Errorf("%v of a file that is gone: %v", o.num, r.status)
		}
	}
}

func testXattrsReadOnly(e *env) {
	if e.target.ReadOnly == "" {
		e.Skip("named skip: a read-only volume: there is none")
	}
	c := e.withXattrs()
	writable, _ := e.opened(c, "f", "")
	c.ok(putfh(writable), setxattr("a", "value", nfs4.SetxattrEither))
	fh := c.fh(append(walkOps(e.target.ReadOnly), lookup(e.dirName), lookup("f"))...)
	c.xattrIs(fh, "a", "value")
	c.xattrsAre(fh, "a")
	c.refused([]op{putfh(fh), setxattr("a", "other", nfs4.SetxattrEither)}, nfs4.ErrROFS)
	c.refused([]op{putfh(fh), removexattr("a")}, nfs4.ErrROFS)
	if r := get[nfs4.AccessRes](e, c.ok(putfh(fh), access(xattrAccess))); r.Access != nfs4.AccessXARead|nfs4.AccessXAList {
		e.Errorf("access %#x", r.Access)
	}
	c.xattrIs(writable, "a", "value")
}

// The directories above volumes have none, and can't be changed.
func testXattrPseudo(e *env) {
	c := e.in42()
	c.refused([]op{putrootfh(), getxattr("a")}, nfs4.ErrNoXattr)
	c.refused([]op{putrootfh(), setxattr("a", "", nfs4.SetxattrEither)}, nfs4.ErrROFS)
	c.refused([]op{putrootfh(), removexattr("a")}, nfs4.ErrROFS, nfs4.ErrNoXattr)
	if r := get[nfs4.ListxattrsRes](e, c.ok(putrootfh(), listxattrs(0, 1000))); len(r.Names) > 0 || !r.EOF {
		e.Errorf("%+v", r)
	}
}

// A call that comes again is not done again.
func testXattrReplay(e *env) {
	c := e.withXattrs()
	fh, _ := e.opened(c, "f", "")
	for _, o := range []op{setxattr("a", "first", nfs4.SetxattrCreate), removexattr("a")} {
		ops := []op{c.next(), putfh(fh), o}
		if r := c.compound(&call{minor: 2, ops: ops}); r.status != nfs4.OK {
			e.Fatalf("%v: %v", o.num, r.status)
		}
		if r := c.compound(&call{minor: 2, ops: ops}); r.status != nfs4.OK || len(r.nums) != 3 {
			e.Errorf("%v again: %v of %v", o.num, r.status, r.nums)
		}
	}
	c.xattrsAre(fh)
}

// A client fills a file with attributes: at some time there is no room, and all that are there can be listed, and removed.
func testManyXattrs(e *env) {
	c := e.withXattrs()
	fh, _ := e.opened(c, "f", "")
	var names []string
	for i := range 400 {
		name := fmt.Sprintf("%0240d", i)
		r := c.do(putfh(fh), setxattr(name, "v", nfs4.SetxattrCreate))
		if r.status == nfs4.ErrNoSpc {
			break
		}
		if r.status != nfs4.OK {
			e.Fatalf("attribute %d: %v", i, r.status)
		}
		names = append(names, name)
	}
	if len(names) < 2 || len(names) == 400 {
		e.Errorf("%d attributes were set", len(names))
	}
	c.xattrsAre(fh, slices.Clone(names)...)
	for _, name := range names {
		c.ok(putfh(fh), removexattr(name))
	}
	c.xattrsAre(fh)
}
