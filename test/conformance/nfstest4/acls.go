package nfstest4

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// aclTests are those of the attribute acl: RFC 8881 section 6.
var aclTests = []test{
	{"supported", testACLSupport},
	{"of modes", testACLOfMode},
	{"set and get", testACLs},
	{"refused", testACLsRefused},
	{"large", testLargeACLs},
	{"rights", testACLRights},
	{"owners", testACLOwners},
	{"with a mode", testACLAndMode},
	{"in one COMPOUND", testACLInCompound},
	{"of what is made", testACLsOfNew},
	{"inherited", testACLsInherited},
	{"verify", testVerifyACL},
	{"in listings", testACLsListed},
	{"a read-only volume", testACLsReadOnly},
	{"a file that is removed", testACLRemoved},
}

// Rights of ACEs that stand for permissions of a file.
const (
	aceR   = nfs4.ACEReadData | nfs4.ACEReadAttributes | nfs4.ACEReadACL | nfs4.ACESynchronize
	aceRW  = aceR | nfs4.ACEWriteData | nfs4.ACEAppendData
	aceRWX = aceRW | nfs4.ACEExecute
	aceRX  = aceR | nfs4.ACEExecute
	aceNo  = aceR &^ nfs4.ACEReadData

	aceOwner = nfs4.ACEWriteAttributes | nfs4.ACEWriteACL
	aceMade  = nfs4.ACEFileInherit | nfs4.ACEDirectoryInherit
)

func allow(who string, mask uint32) nfs4.ACE { return nfs4.ACE{Mask: mask, Who: []byte(who)} }
func deny(who string, mask uint32) nfs4.ACE {
	return nfs4.ACE{Type: nfs4.ACEDenied, Mask: mask, Who: []byte(who)}
}

// made is an ACE for what is made in a directory.
func inherits(a nfs4.ACE, flag uint32) nfs4.ACE {
	a.Flag |= aceMade | flag
	return a
}

func ofGroup(a nfs4.ACE) nfs4.ACE {
	a.Flag |= nfs4.ACEIdentifierGroup
	return a
}

// acl is an Sattr that sets an ACL.
func acl(aces ...nfs4.ACE) nfs4.Sattr {
	return nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrACL), ACL: aces}
}

func setACL(aces ...nfs4.ACE) op { return setattr(nfs4.Stateid{}, acl(aces...)) }

// needACLs skips the test where the volume has no ACLs.
func (e *env) needACLs() {
	e.Helper()
	a := e.attr([]op{putfh(e.dir)}, nfs4.AttrSupportedAttrs, nfs4.AttrACLSupport)
	if has := a.SupportedAttrs.Has(nfs4.AttrACL); has != (a.ACLSupport&nfs4.ACLSupportAllow != 0) {
		e.Errorf("acl is supported: %v; aclsupport is %#x", has, a.ACLSupport)
	}
	if !a.SupportedAttrs.Has(nfs4.AttrACL) {
		e.refused([]op{putfh(e.dir), setACL(allow("OWNER@", aceRWX))}, nfs4.ErrAttrNotSupp)
		if a := e.attr([]op{putfh(e.dir)}, nfs4.AttrACL); a.Mask.Has(nfs4.AttrACL) {
			e.Error("acl is not supported, and it has one")
		}
		e.Skip("named skip: ACLs: the file system of the volume has none")
	}
	if _, lacks := e.target.Lacks[nfstest.FeatureIdentity]; lacks {
		probe := e.file("probe", "")
		r := e.do(putfh(probe), setACL(allow("OWNER@", aceRW), allow("1003", aceR)))
		e.ok(putfh(e.dir), remove("probe"))
		if r.status == nfs4.ErrInval {
			e.Skip("named skip: ACLs: podnas is in a user namespace that has no other users")
		}
	}
}

func showACEs(aces []nfs4.ACE) (s string) {
	for _, a := range aces {
		s += fmt.Sprintf("%s:%#x:%q:%#x ", []string{"A", "D"}[a.Type&1], a.Flag, a.Who, a.Mask)
	}
	return s
}

// aclIs checks an ACL, without the rights that everybody has and nobody can take.
func (c *client) aclIs(fh nfs4.FH, want ...nfs4.ACE) {
	c.Helper()
	got := c.attr([]op{putfh(fh)}, nfs4.AttrACL).ACL
	const rights = nfs4.ACEReadData | nfs4.ACEWriteData | nfs4.ACEAppendData | nfs4.ACEExecute
	if !slices.EqualFunc(got, want, func(a, b nfs4.ACE) bool {
		return a.Type == b.Type && a.Flag == b.Flag && bytes.Equal(a.Who, b.Who) && (a.Mask^b.Mask)&rights == 0
	}) {
		c.Errorf("the ACL is\n%s, want\n%s", showACEs(got), showACEs(want))
	}
}

// Sections 5.8 and 6.2.1.2, of both minor versions.
func testACLSupport(e *env) {
	e.needACLs()
	for minor := uint32(1); minor <= 2; minor++ {
		c := e.in(minor)
		for name, fh := range map[string]nfs4.FH{"a directory": e.dir, "the volume": e.root, "the server": c.fh(putrootfh())} {
			a := c.attr([]op{putfh(fh)}, nfs4.AttrSupportedAttrs, nfs4.AttrACLSupport, nfs4.AttrACL, nfs4.AttrSuppattrExclcreat)
			if !a.SupportedAttrs.Has(nfs4.AttrACL) || a.ACLSupport != nfs4.ACLSupportAllow|nfs4.ACLSupportDeny || len(a.ACL) < 3 ||
				!a.SuppattrExclcreat.Has(nfs4.AttrACL) {
				e.Errorf("version 4.%d, %s: %+v", minor, name, a)
			}
		}
	}
	e.refused([]op{putrootfh(), setACL(allow("OWNER@", aceR))}, nfs4.ErrROFS)
	for a := range uint32(2) { // dacl and sacl
		if got := e.attr([]op{putfh(e.dir)}, nfs4.AttrDACL+a, nfs4.AttrType); got.Mask != nfs4.BitmapOf(nfs4.AttrType) {
			e.Errorf("attribute %d: %x", nfs4.AttrDACL+a, got.Mask)
		}
	}
}

// A file without an ACL has the one of its mode.
func testACLOfMode(e *env) {
	e.needACLs()
	fh := e.file("f", "")
	e.ok(putfh(fh), setattr(nfs4.Stateid{}, mode(0o640)))
	got := e.attr([]op{putfh(fh)}, nfs4.AttrACL).ACL
	want := []nfs4.ACE{allow("OWNER@", aceRW|aceOwner), allow("GROUP@", aceR), allow("EVERYONE@", aceNo)}
	if showACEs(got) != showACEs(want) {
		e.Errorf("%s, want %s", showACEs(got), showACEs(want))
	}
	for m, want := range map[uint32][]nfs4.ACE{
		0o4755: {allow("OWNER@", aceRWX), allow("GROUP@", aceRX), allow("EVERYONE@", aceRX)},
		0:      {allow("OWNER@", aceNo), allow("GROUP@", aceNo), allow("EVERYONE@", aceNo)},
		0o406:  {deny("OWNER@", 6), allow("OWNER@", aceR), allow("GROUP@", aceNo), deny("GROUP@", 7), allow("EVERYONE@", aceRW)},
	} {
		e.ok(putfh(fh), setattr(nfs4.Stateid{}, mode(m)))
		e.aclIs(fh, want...)
	}
	e.ok(putfh(e.dir), symlink("link", "f"))
	if a := e.attr([]op{putfh(e.dir), lookup("link")}, nfs4.AttrACL, nfs4.AttrType); a.Mask.Has(nfs4.AttrACL) && len(a.ACL) != 3 {
		e.Errorf("a symbolic link: %s", showACEs(a.ACL))
	}
	e.refused([]op{putfh(e.dir), lookup("link"), setACL(allow("OWNER@", aceR))}, nfs4.ErrAttrNotSupp, nfs4.ErrInval)
}

// Section 6.4.1: the mode follows the ACL, and the ACL the mode.
func testACLs(e *env) {
	e.needACLs()
	fh := e.file("f", "content")
	before := e.attr([]op{putfh(fh)}, nfs4.AttrChange).Change
	set := []nfs4.ACE{allow("OWNER@", aceRW), allow("1003", aceRW), allow("GROUP@", aceR), ofGroup(allow("7", aceRX)), allow("EVERYONE@", aceNo)}
	r := get[nfs4.SetattrRes](e, e.ok(putfh(fh), setACL(set...)))
	a := e.attr([]op{putfh(fh)}, nfs4.AttrChange, nfs4.AttrMode)
	if r.AttrSet != nfs4.BitmapOf(nfs4.AttrACL) || a.Change == before || a.Mode != 0o670 {
		e.Errorf("set %x, mode %o, change %d, was %d", r.AttrSet, a.Mode, a.Change, before)
	}
	e.aclIs(fh, deny("OWNER@", nfs4.ACEExecute), set[0], deny("1003", nfs4.ACEExecute), set[1], set[2], set[3], set[4])
	e.another().aclIs(fh, deny("OWNER@", nfs4.ACEExecute), set[0], deny("1003", nfs4.ACEExecute), set[1], set[2], set[3], set[4])
	e.ok(putfh(fh), setACL(e.attr([]op{putfh(fh)}, nfs4.AttrACL).ACL...)) // what is shown can be set
	if a := e.attr([]op{putfh(fh)}, nfs4.AttrMode); a.Mode != 0o670 {
		e.Errorf("mode %o", a.Mode)
	}
	e.ok(putfh(fh), setattr(nfs4.Stateid{}, mode(0o640))) // which is the mask
	e.aclIs(fh, set[0], allow("1003", aceR), set[2], ofGroup(allow("7", aceR)), set[4])
}

// Section 15.1.15.1, and 6.2.1.3.1: what a file can't have is refused, and nothing is changed.
func testACLsRefused(e *env) {
	e.needACLs()
	fh := e.file("f", "")
	e.ok(putfh(fh), setACL(allow("OWNER@", aceRW), allow("5", aceR)))
	before := e.attr([]op{putfh(fh)}, nfs4.AttrChange, nfs4.AttrACL)
	flag := func(a nfs4.ACE, flag uint32) nfs4.ACE { a.Flag = flag; return a }
	kind := func(a nfs4.ACE, kind uint32) nfs4.ACE { a.Type = kind; return a }
	var table []expect
	for name, a := range map[string]nfs4.ACE{
		"audit": kind(allow("OWNER@", aceR), nfs4.ACEAudit), "alarm": kind(allow("OWNER@", aceR), nfs4.ACEAlarm), "type 4": kind(allow("OWNER@", aceR), 4),
		"all types": kind(allow("OWNER@", aceR), 1<<32-1), "all flags": flag(allow("OWNER@", aceR), 1<<32-1), "all rights": allow("OWNER@", 1<<32-1),
		"inherited by files": flag(allow("OWNER@", aceR), nfs4.ACEFileInherit), "inherit only": flag(allow("OWNER@", aceR), nfs4.ACEInheritOnly),
		"deny attributes": deny("EVERYONE@", nfs4.ACEReadAttributes), "deny the owner its ACL": deny("OWNER@", nfs4.ACEWriteACL),
	} {
		table = append(table, expect{name, []op{putfh(fh), setACL(a)}, is(nfs4.ErrAttrNotSupp, nfs4.ErrInval)})
	}
	for _, who := range []string{"", "nobody@nowhere.invalid", "-1", "01", "4294967295", "4294967296", "ANONYMOUS@", "owner@", "1\x00"} {
		table = append(table, expect{fmt.Sprintf("who %q", who), []op{putfh(fh), setACL(allow("OWNER@", aceR), allow(who, aceR))}, is(nfs4.ErrBadOwner, nfs4.ErrInval)})
	}
	one := func(vals ...byte) op {
		return op{nfs4.OpSetattr, append(make(raw, 16), fattr(nfs4.AttrACL, vals...)...), &nfs4.SetattrRes{}}
	}
	table = append(table, []expect{
		{"no count", []op{putfh(fh), one()}, is(nfs4.ErrBadXDR)},
		{"more than there are", []op{putfh(fh), one(0, 0, 0, 1)}, is(nfs4.ErrBadXDR)},
		{"4294967295 entries", []op{putfh(fh), one(append([]byte{255, 255, 255, 255}, make([]byte, 60)...)...)}, is(nfs4.ErrBadXDR)},
		{"bytes left over", []op{putfh(fh), one(0, 0, 0, 0, 0, 0, 0, 0)}, is(nfs4.ErrBadXDR)},
		{"a name that ends early", []op{putfh(fh), one(append(make([]byte, 16), 0, 0, 0, 9, 'O', 'W', 'N', 'E')...)}, is(nfs4.ErrBadXDR)},
	}...)
	e.expect(table)
	after := e.attr([]op{putfh(fh)}, nfs4.AttrChange, nfs4.AttrACL)
	if before.Change != after.Change || showACEs(before.ACL) != showACEs(after.ACL) {
		e.Errorf("refused, and the file has %s, change %d; had %s, %d", showACEs(after.ACL), after.Change, showACEs(before.ACL), before.Change)
	}
	for _, how := range waysToMake() { // nor is anything made
		e.Run(how.name, func(t *testing.T) {
			c := e.with(t)
			for _, a := range []nfs4.ACE{kind(allow("OWNER@", aceR), nfs4.ACEAudit), allow("nobody@nowhere.invalid", aceR)} {
				r := c.do(how.ops(c, e.dir, "made", acl(a))...)
				if r.status != nfs4.ErrAttrNotSupp && r.status != nfs4.ErrBadOwner && r.status != nfs4.ErrInval {
					t.Errorf("%v", r.status)
				}
				c.refused([]op{putfh(e.dir), lookup("made")}, nfs4.ErrNoEnt)
			}
		})
	}
}

// An ACL of a thousand users is set, or is too large for the disk; then nothing is changed.
func testLargeACLs(e *env) {
	e.needACLs()
	fh := e.file("f", "")
	e.ok(putfh(fh), setACL(allow("OWNER@", aceRW)))
	for _, n := range []int{20, 400, 1000, 2000} {
		aces := []nfs4.ACE{allow("OWNER@", aceRW)}
		for i := range n {
			aces = append(aces, allow(fmt.Sprint(1000+i), aceR))
		}
		before := e.attr([]op{putfh(fh)}, nfs4.AttrACL).ACL
		r := e.do(putfh(fh), setACL(aces...))
		got := e.attr([]op{putfh(fh)}, nfs4.AttrACL).ACL
		switch {
		case r.status == nfs4.OK && len(got) < n+3, r.status != nfs4.OK && showACEs(got) != showACEs(before):
			e.Errorf("%d users: %v, and then it has %d ACEs", n, r.status, len(got))
		case r.status != nfs4.OK && (n < 100 || r.status != nfs4.ErrNoSpc && r.status != nfs4.ErrFBig && r.status != nfs4.ErrDQuot):
			e.Errorf("%d users: %v", n, r.status)
		}
	}
	var same []nfs4.ACE // of one user, which are one entry
	for range 1000 {
		same = append(same, allow("5", nfs4.ACEReadData), deny("GROUP@", nfs4.ACEExecute))
	}
	e.ok(putfh(fh), setACL(same...))
	e.aclIs(fh, deny("OWNER@", 1), allow("OWNER@", aceNo), allow("5", aceR), allow("GROUP@", aceNo), allow("EVERYONE@", aceNo))
	e.ok(putfh(fh), setACL())
	e.aclIs(fh, allow("OWNER@", aceNo), allow("GROUP@", aceNo), allow("EVERYONE@", aceNo))
}

// Section 6.2.1: users have the rights that the ACL gives.
func testACLRights(e *env) {
	e.needACLs()
	fh := e.file("f", "content")
	const asked = nfs4.AccessRead | nfs4.AccessModify | nfs4.AccessExtend | nfs4.AccessExecute
	e.asOther(func(other *client) {
		for _, tt := range []struct {
			aces []nfs4.ACE
			want uint32
		}{
			{[]nfs4.ACE{allow("1000", aceR)}, nfs4.AccessRead},
			{[]nfs4.ACE{allow("1000", aceRWX)}, asked},
			{[]nfs4.ACE{ofGroup(allow("1000", aceRW))}, nfs4.AccessRead | nfs4.AccessModify | nfs4.AccessExtend},
			{[]nfs4.ACE{deny("1000", aceR&1), allow("EVERYONE@", aceRW)}, nfs4.AccessModify | nfs4.AccessExtend},
			{[]nfs4.ACE{ofGroup(deny("1000", 1)), allow("EVERYONE@", aceRX)}, nfs4.AccessExecute},
			{[]nfs4.ACE{allow("1001", aceR), allow("OWNER@", aceRWX)}, 0},
			{[]nfs4.ACE{allow("EVERYONE@", aceR), deny("1000", aceRWX&^aceNo)}, nfs4.AccessRead},
		} {
			e.ok(putfh(fh), setACL(tt.aces...))
			if got := get[nfs4.AccessRes](e, other.ok(putfh(fh), access(asked))).Access; got != tt.want {
				e.Errorf("%s: access %#x, want %#x", showACEs(tt.aces), got, tt.want)
			}
		}
	})
}

// Section 6.2.1.3.2: the owner may write the ACL, and others not, whatever it says.
func testACLOwners(e *env) {
	e.needACLs()
	fh := e.file("f", "")
	e.asOther(func(other *client) {
		e.ok(putfh(fh), setACL(allow("EVERYONE@", aceRWX|aceOwner)))
		other.refused([]op{putfh(fh), setACL(allow("OWNER@", aceR))}, nfs4.ErrPerm, nfs4.ErrAccess)
		other.aclIs(fh, allow("OWNER@", aceRWX), allow("GROUP@", aceRWX), allow("EVERYONE@", aceRWX))
		e.ok(putfh(fh), setattr(nfs4.Stateid{}, nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrOwner), Owner: []byte("1000")}))
		other.ok(putfh(fh), setACL(allow("7", aceR)))
		other.aclIs(fh, deny("OWNER@", 1), allow("OWNER@", aceNo), allow("7", aceR), allow("GROUP@", aceNo), allow("EVERYONE@", aceNo))
	})
}

// Section 6.4.1.3: of a mode beside an ACL only setuid, setgid and the sticky bit count.
func testACLAndMode(e *env) {
	e.needACLs()
	fh := e.file("f", "")
	withMode := func(m uint32, aces ...nfs4.ACE) nfs4.Sattr {
		s := acl(aces...)
		s.Mask.Set(nfs4.AttrMode)
		s.Mode = m
		return s
	}
	s := withMode(0o4777, allow("OWNER@", aceRW), allow("5", aceR))
	r := get[nfs4.SetattrRes](e, e.ok(putfh(fh), setattr(nfs4.Stateid{}, s)))
	if a := e.attr([]op{putfh(fh)}, nfs4.AttrMode); a.Mode != 0o4640 || r.AttrSet != s.Mask {
		e.Errorf("mode %o, set %x", a.Mode, r.AttrSet)
	}
	var many []nfs4.ACE // which some disks have no room for
	for i := range 1000 {
		many = append(many, allow(fmt.Sprint(1000+i), aceR))
	}
	s = withMode(0o777, many...)
	if r := e.do(putfh(fh), setattr(nfs4.Stateid{}, s)); r.status != nfs4.OK {
		if a := e.attr([]op{putfh(fh)}, nfs4.AttrMode); a.Mode != 0o4640 {
			e.Errorf("mode %o after %v", a.Mode, r.status)
		}
	}
}

// What an operation sets, those that follow it in the COMPOUND see.
func testACLInCompound(e *env) {
	e.needACLs()
	fh := e.file("f", "")
	e.ok(putfh(fh), setattr(nfs4.Stateid{}, mode(0o644)))
	set := []nfs4.ACE{allow("OWNER@", aceRWX), allow("GROUP@", aceR), allow("EVERYONE@", aceNo)}
	r := e.ok(putfh(fh), setACL(set...), getattrs(nfs4.AttrACL, nfs4.AttrMode))
	if a := get[nfs4.GetattrRes](e, r).Attr; a.Mode != 0o740 || showACEs(a.ACL) != showACEs(e.attr([]op{putfh(fh)}, nfs4.AttrACL).ACL) {
		e.Errorf("mode %o, %s", a.Mode, showACEs(a.ACL))
	}
	e.asOther(func(other *client) {
		e.ok(putfh(fh), setattr(nfs4.Stateid{}, nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrOwner), Owner: []byte("1000")}))
		for _, tt := range []struct{ mode, may uint32 }{{0, 0}, {0o400, nfs4.AccessRead}} {
			r := other.ok(putfh(fh), access(nfs4.AccessRead), setattr(nfs4.Stateid{}, mode(tt.mode)), access(nfs4.AccessRead))
			if got := get[nfs4.AccessRes](e, r).Access; got != tt.may {
				e.Errorf("ACCESS after the mode %o: %#x", tt.mode, got)
			}
		}
	})
}

// Section 6.4.3: what is made with an ACL has that, and not its directory's.
func testACLsOfNew(e *env) {
	e.needACLs()
	for minor := uint32(1); minor <= 2; minor++ {
		c := e.in(minor)
		for n, how := range waysToMake() {
			if how.link {
				continue
			}
			e.Run(fmt.Sprint(how.name, minor), func(t *testing.T) {
				c := c.with(t)
				s := acl(allow("OWNER@", aceRW), allow("5", aceR), allow("GROUP@", aceNo), allow("EVERYONE@", aceNo))
				if how.name == "directory" {
					s.ACL[0].Mask |= nfs4.ACEDeleteChild
				}
				name := fmt.Sprintf("f%d-%d", minor, n)
				r := c.ok(append(how.ops(c, e.dir, name, s), getfh(), getattrs(nfs4.AttrMode))...)
				if m := get[nfs4.GetattrRes](c, r).Attr.Mode; m != 0o640 {
					t.Errorf("mode %o", m)
				}
				c.aclIs(get[nfs4.GetfhRes](c, r).FH, s.ACL...)
			})
		}
	}
}

// Section 6.4.3: what is made in a directory gets the ACEs that are inherited, and its mode limits them; no umask does.
func testACLsInherited(e *env) {
	e.needACLs()
	c := e.in42()
	const full = aceRWX | nfs4.ACEDeleteChild
	dir := c.fh(putfh(e.dir), mkdir("d"))
	c.ok(putfh(dir), setACL(allow("OWNER@", full), allow("GROUP@", aceRX), allow("EVERYONE@", aceRX), inherits(allow("5", full), nfs4.ACEInheritOnly)))
	byOnly := func(who string, mask uint32) nfs4.ACE { return inherits(allow(who, mask), nfs4.ACEInheritOnly) }
	c.aclIs(dir, allow("OWNER@", aceRWX), allow("GROUP@", aceRX), allow("EVERYONE@", aceRX),
		byOnly("OWNER@", aceRWX), byOnly("5", aceRWX), byOnly("GROUP@", aceRX), byOnly("EVERYONE@", aceRX))
	for n, how := range waysToMake() {
		if how.link {
			continue
		}
		e.Run(how.name, func(t *testing.T) {
			c := c.with(t)
			r := c.ok(append(how.ops(c, dir, fmt.Sprint("f", n), modeUmask(0o666, 0o77)), getattrs(nfs4.AttrMode))...)
			if m := get[nfs4.GetattrRes](c, r).Attr.Mode; m != 0o664 { // others have r-x in the ACL, and 5 has rwx
				t.Errorf("mode %o with umask 77", m)
			}
		})
	}
	c.ok(putfh(dir), setACL(allow("OWNER@", full), inherits(allow("OWNER@", full), 0), inherits(allow("5", aceRX), 0)))
	for n, how := range waysToMake()[:3] { // setgid does not make it more than the directory gives
		r := c.ok(append(how.ops(c, dir, fmt.Sprint("g", n), mode(0o2770)), getattrs(nfs4.AttrMode))...)
		if m := get[nfs4.GetattrRes](c, r).Attr.Mode & 0o777; m != 0o750 {
			e.Errorf("%s: mode %o", how.name, m)
		}
	}
	c.ok(putfh(dir), setACL(allow("OWNER@", full), inherits(allow("EVERYONE@", aceRX), 0))) // both
	if a := c.attr([]op{putfh(dir)}, nfs4.AttrMode); a.Mode != 0o755 {
		e.Errorf("mode %o", a.Mode)
	}
	if r := c.ok(putfh(dir), create(nfs4.CreateArgs{Type: nfs4.TypeDir, Name: []byte("sub"), Attr: mode(0o777)}), getattrs(nfs4.AttrMode)); get[nfs4.GetattrRes](c, r).Attr.Mode != 0o555 {
		e.Errorf("in it: mode %o", get[nfs4.GetattrRes](c, r).Attr.Mode)
	}
	c.ok(putfh(dir), setACL(allow("OWNER@", full))) // without: the default ACL is gone
	r := c.ok(append(waysToMake()[0].ops(c, dir, "last", modeUmask(0o666, 0o77)), getattrs(nfs4.AttrMode))...)
	if m := get[nfs4.GetattrRes](c, r).Attr.Mode; m != 0o600 {
		e.Errorf("mode %o", m)
	}
}

// Sections 18.15 and 18.30.
func testVerifyACL(e *env) {
	e.needACLs()
	fh := e.file("f", "")
	e.ok(putfh(fh), setACL(allow("OWNER@", aceRW), allow("5", aceR)))
	value := func(aces []nfs4.ACE) (f nfs4.Fattr) {
		a := nfs4.Attrs{Mask: nfs4.BitmapOf(nfs4.AttrACL), ACL: aces}
		d := a.Append(nil, a.Mask)
		return nfs4.Fattr{Mask: a.Mask, Vals: d[12:]}
	}
	is4 := e.attr([]op{putfh(fh)}, nfs4.AttrACL).ACL
	e.ok(putfh(fh), verify(value(is4)))
	e.refused([]op{putfh(fh), nverify(value(is4))}, nfs4.ErrSame)
	e.refused([]op{putfh(fh), verify(value(is4[1:]))}, nfs4.ErrNotSame)
	e.ok(putfh(fh), nverify(value(is4[1:])))
}

// Each entry of a listing has its own.
func testACLsListed(e *env) {
	e.needACLs()
	for i := range 4 {
		fh := e.file(fmt.Sprint("f", i), "")
		e.ok(putfh(fh), setACL(allow(fmt.Sprint(100+i), aceR)))
	}
	for _, entry := range e.list(e.dir, nfs4.ReaddirArgs{DirCount: 8192, MaxCount: 8192, Request: nfs4.BitmapOf(nfs4.AttrACL)}) {
		attrs, err := entry.Attr.Attrs()
		if want := "10" + string(entry.Name[1:]); err != nil || len(attrs.ACL) != 5 || string(attrs.ACL[2].Who) != want {
			e.Errorf("%s: %s, %v", entry.Name, showACEs(attrs.ACL), err)
		}
	}
	if entries := e.list(e.fh(putrootfh()), nfs4.ReaddirArgs{DirCount: 8192, MaxCount: 8192, Request: nfs4.BitmapOf(nfs4.AttrACL)}); len(entries) == 0 {
		e.Error("the server's root is empty")
	}
}

func testACLsReadOnly(e *env) {
	if e.target.ReadOnly == "" {
		e.Skip("named skip: a read-only volume: there is none")
	}
	e.needACLs()
	e.ok(putfh(e.file("f", "")), setACL(allow("5", aceR)))
	fh := e.fh(append(walkOps(e.target.ReadOnly), lookup(e.dirName), lookup("f"))...)
	e.refused([]op{putfh(fh), setACL(allow("OWNER@", aceR))}, nfs4.ErrROFS)
	e.aclIs(fh, deny("OWNER@", 1), allow("OWNER@", aceNo), allow("5", aceR), allow("GROUP@", aceNo), allow("EVERYONE@", aceNo))
}

// A file that is removed while it is open keeps its ACL.
func testACLRemoved(e *env) {
	e.needACLs()
	fh, id := e.client.open(e.dir, opening{name: "f", create: true})
	e.ok(putfh(e.dir), remove("f"))
	e.ok(putfh(fh), setACL(allow("OWNER@", aceRW), allow("GROUP@", aceR)))
	e.aclIs(fh, allow("OWNER@", aceRW), allow("GROUP@", aceR), allow("EVERYONE@", aceNo))
	e.ok(putfh(fh), closeOp(id))
}
