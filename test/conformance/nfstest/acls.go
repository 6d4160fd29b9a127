package nfstest

import (
	"context"
	"fmt"
	"slices"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
)

// aclTests are those of NFSACL, by which Linux's client of version 3 has ACLs.
var aclTests = []test{
	{"without an ACL", testNoACL},
	{"what was asked for", testACLMask},
	{"set and get", testSetACL},
	{"change time", testACLCtime},
	{"default ACL", testDefaultACL},
	{"chmod", testACLChmod},
	{"rights", testACLRights},
	{"who may set one", testACLOwner},
	{"what is no ACL", testBadACLs},
	{"many entries", testManyACEs},
	{"types of files", testACLTypes},
	{"bad calls", testACLBadCalls},
}

func (c *Client) callACL(ctx context.Context, proc uint32, args rpc.Args, res result) error {
	h := rpc.CallHeader{Prog: nfs3.ACLProgram, Vers: nfs3.ACLVersion, Proc: proc, Cred: c.cred}
	return c.call(ctx, c.nfs, h, args, res)
}

func (e *env) getacl(fh nfs3.FH, mask uint32) (res nfs3.GetaclRes) {
	e.Helper()
	if err := e.client.callACL(e.Context(), nfs3.ProcGetacl, &nfs3.GetaclArgs{Object: fh, Mask: mask}, &res); err != nil {
		e.Fatalf("GETACL: %v", err)
	}
	return res
}

func (e *env) setacl(fh nfs3.FH, mask uint32, access, inherited []nfs3.ACE) nfs3.Status {
	e.Helper()
	var res nfs3.SetaclRes
	args := nfs3.SetaclArgs{Object: fh, Mask: mask, Access: nfs3.ACLOf(access...), Default: nfs3.ACLOf(inherited...)}
	if err := e.client.callACL(e.Context(), nfs3.ProcSetacl, &args, &res); err != nil {
		e.Fatalf("SETACL: %v", err)
	}
	return res.Status
}

// isACL checks both ACLs.
func (e *env) isACL(fh nfs3.FH, access, inherited []nfs3.ACE) {
	e.Helper()
	res := e.getacl(fh, nfs3.ACLMask)
	e.ok("GETACL", res.Status)
	for i := range inherited {
		inherited[i].Tag |= nfs3.ACLOfDefault
	}
	if !slices.Equal(res.Access.Entries, access) || !slices.Equal(res.Default.Entries, inherited) || res.Mask != nfs3.ACLMask || !res.Attr.Present {
		e.Errorf("the ACLs are\n%v\n%v, want\n%v\n%v", res.Access, res.Default, access, inherited)
	}
	if int(res.Access.Count) != len(access) || int(res.Default.Count) != len(inherited) {
		e.Errorf("of %d and %d entries, want %d and %d", res.Access.Count, res.Default.Count, len(access), len(inherited))
	}
}

// aces is an ACL of a file that is user 0's and group 0's, with the rights of owner, user 1000, group, mask, others.
func aces(owner, user, group, mask, other uint32) []nfs3.ACE {
	return []nfs3.ACE{{Tag: nfs3.ACLUserObj, Perm: owner}, {Tag: nfs3.ACLUser, ID: 1000, Perm: user}, {Tag: nfs3.ACLGroupObj, Perm: group}, {Tag: nfs3.ACLMaskObj, Perm: mask}, {Tag: nfs3.ACLOther, Perm: other}}
}

// modeACL is the ACL of a mode: with a mask, which is the group's.
func modeACL(owner, group, other uint32) []nfs3.ACE {
	return []nfs3.ACE{{Tag: nfs3.ACLUserObj, Perm: owner}, {Tag: nfs3.ACLGroupObj, Perm: group}, {Tag: nfs3.ACLMaskObj, Perm: group}, {Tag: nfs3.ACLOther, Perm: other}}
}

func (e *env) withACLs() {
	e.Helper()
	e.need(FeatureACLs)
	e.need(FeatureIdentity)
	e.need(FeatureChown)
}

// A file without an ACL has the one of its mode, and no directory a default ACL.
func testNoACL(e *env) {
	e.withACLs()
	e.isACL(e.create(e.dir, "file"), modeACL(6, 4, 4), nil)
	e.isACL(e.mkdir(e.dir, "dir"), modeACL(7, 5, 5), nil)
}

// Linux takes an answer of less, or more, for an error.
func testACLMask(e *env) {
	e.withACLs()
	dir := e.mkdir(e.dir, "dir")
	e.ok("SETACL", e.setacl(dir, nfs3.ACLAccess|nfs3.ACLDefault, aces(7, 5, 5, 5, 0), aces(7, 7, 5, 7, 0)))
	for mask := range uint32(16) {
		res := e.getacl(dir, mask)
		e.ok("GETACL", res.Status)
		count := func(asked uint32, n int) int {
			if mask&asked == 0 {
				return 0
			}
			return n
		}
		if res.Mask != mask || len(res.Access.Entries) != count(nfs3.ACLAccess, 5) || len(res.Default.Entries) != count(nfs3.ACLDefault, 5) ||
			int(res.Access.Count) != count(nfs3.ACLAccess|nfs3.ACLAccessCount, 5) || int(res.Default.Count) != count(nfs3.ACLDefault|nfs3.ACLDefaultCount, 5) {
			e.Errorf("mask %d: %+v", mask, res)
		}
	}
	e.refused("GETACL of an unknown bit", e.getacl(dir, 16).Status, nfs3.ErrInval)
	// What the mask does not name stays.
	e.ok("SETACL of one", e.setacl(dir, nfs3.ACLAccess, aces(7, 4, 5, 5, 0), nil))
	e.isACL(dir, aces(7, 4, 5, 5, 0), aces(7, 7, 5, 7, 0))
	e.ok("SETACL of none", e.setacl(dir, 0, nil, nil))
	e.isACL(dir, aces(7, 4, 5, 5, 0), aces(7, 7, 5, 7, 0))
}

func testSetACL(e *env) {
	e.withACLs()
	file := e.create(e.dir, "file")
	e.ok("SETACL", e.setacl(file, nfs3.ACLAccess, aces(6, 6, 4, 6, 0), nil))
	e.isACL(file, aces(6, 6, 4, 6, 0), nil)
	if attr := e.attr(file); attr.Mode&nfs3.ModePerm != 0o660 {
		e.Errorf("mode %o: the group's bits are the mask", attr.Mode)
	}
	// In any order.
	mixed := aces(7, 1, 2, 3, 4)
	slices.Reverse(mixed)
	e.ok("SETACL in another order", e.setacl(file, nfs3.ACLAccess, mixed, nil))
	e.isACL(file, aces(7, 1, 2, 3, 4), nil)
	// One that is no more than a mode leaves no ACL.
	e.ok("SETACL of a mode", e.setacl(file, nfs3.ACLAccess, modeACL(6, 0, 4), nil))
	e.isACL(file, modeACL(6, 0, 4), nil)
	if attr := e.attr(file); attr.Mode&nfs3.ModePerm != 0o604 {
		e.Errorf("mode %o", attr.Mode)
	}
	e.ok("SETACL", e.setacl(file, nfs3.ACLAccess, aces(6, 6, 4, 6, 0), nil))
	e.ok("SETACL that removes it", e.setacl(file, nfs3.ACLAccess, nil, nil))
	e.isACL(file, modeACL(6, 6, 0), nil)
}

// What is made in a directory has its default ACL, as far as its mode has the rights.
func testDefaultACL(e *env) {
	e.withACLs()
	dir := e.mkdir(e.dir, "dir")
	inherited := aces(7, 7, 5, 7, 0)
	e.ok("SETACL", e.setacl(dir, nfs3.ACLAccess|nfs3.ACLDefault, modeACL(7, 5, 5), inherited))
	e.isACL(dir, modeACL(7, 5, 5), inherited)
	e.isACL(e.create(dir, "file"), aces(6, 7, 5, 4, 0), nil)
	e.isACL(e.mkdir(dir, "dir"), aces(7, 7, 5, 5, 0), aces(7, 7, 5, 7, 0))
	e.ok("SETACL that removes it", e.setacl(dir, nfs3.ACLDefault, nil, nil))
	e.isACL(dir, modeACL(7, 5, 5), nil)
	e.isACL(e.create(dir, "later"), modeACL(6, 4, 4), nil)
}

// Of a file with an ACL chmod sets the mask.
func testACLChmod(e *env) {
	e.withACLs()
	file := e.create(e.dir, "file")
	e.ok("SETACL", e.setacl(file, nfs3.ACLAccess, aces(6, 6, 4, 6, 0), nil))
	e.ok("SETATTR", e.setattr(file, nfs3.Sattr{Mode: nfs3.SetUint32{Set: true, Value: 0o741}}))
	e.isACL(file, aces(7, 6, 4, 4, 1), nil)
}

// The kernel holds to them.
func testACLRights(e *env) {
	e.withACLs()
	file := e.create(e.dir, "file")
	e.write(file, 0, []byte("content"))
	other := e.as(1000, 1000)
	for _, tt := range []struct{ user, mask, want uint32 }{{6, 7, 6}, {4, 7, 4}, {6, 4, 4}, {0, 7, 0}} {
		e.ok("SETACL", e.setacl(file, nfs3.ACLAccess, aces(6, tt.user, 0, tt.mask, 6), nil))
		res, err := other.client.Access(e.Context(), file, nfs3.AccessRead|nfs3.AccessModify)
		e.answered("ACCESS", err)
		want := uint32(0)
		if tt.want&4 != 0 {
			want |= nfs3.AccessRead
		}
		if tt.want&2 != 0 {
			want |= nfs3.AccessModify
		}
		if res.Access != want {
			e.Errorf("user %d, mask %d: access %#x, want %#x", tt.user, tt.mask, res.Access, want)
		}
	}
}

func testACLOwner(e *env) {
	e.withACLs()
	file := e.create(e.dir, "file")
	e.ok("SETATTR", e.setattr(file, nfs3.Sattr{Mode: nfs3.SetUint32{Set: true, Value: 0o666}}))
	other := e.as(1000, 1000)
	e.refused("SETACL by another user", other.setacl(file, nfs3.ACLAccess, aces(6, 7, 4, 7, 0), nil), nfs3.ErrPerm)
	other.isACL(file, modeACL(6, 6, 6), nil)
	e.ok("SETATTR", e.setattr(file, nfs3.Sattr{UID: nfs3.SetUint32{Set: true, Value: 1000}}))
	e.ok("SETACL by the owner", other.setacl(file, nfs3.ACLAccess, aces(6, 7, 4, 7, 0), nil))
}

func testACLCtime(e *env) {
	e.withACLs()
	e.need(FeatureNanoseconds)
	file := e.create(e.dir, "file")
	before := e.attr(file).Ctime
	e.ok("SETACL", e.setacl(file, nfs3.ACLAccess, aces(6, 6, 4, 6, 0), nil))
	if after := e.attr(file).Ctime; after == before {
		e.Errorf("ctime %v as before SETACL", after)
	}
}

func testBadACLs(e *env) {
	e.withACLs()
	dir := e.mkdir(e.dir, "dir")
	for name, acl := range map[string][]nfs3.ACE{
		"no owner":             aces(6, 6, 4, 6, 0)[1:],
		"no others":            aces(6, 6, 4, 6, 0)[:4],
		"no group":             slices.Delete(aces(6, 6, 4, 6, 0), 2, 3),
		"a user and no mask":   slices.Delete(aces(6, 6, 4, 6, 0), 3, 4),
		"two owners":           append(aces(6, 6, 4, 6, 0), nfs3.ACE{Tag: nfs3.ACLUserObj}),
		"two masks":            append(aces(6, 6, 4, 6, 0), nfs3.ACE{Tag: nfs3.ACLMaskObj}),
		"one user twice":       append(aces(6, 6, 4, 6, 0), nfs3.ACE{Tag: nfs3.ACLUser, ID: 1000}),
		"no user":              append(aces(6, 6, 4, 6, 0), nfs3.ACE{Tag: nfs3.ACLUser, ID: 1<<32 - 1}),
		"an unknown tag":       append(aces(6, 6, 4, 6, 0), nfs3.ACE{Tag: 0x40}),
		"a tag of 32 bits":     append(aces(6, 6, 4, 6, 0), nfs3.ACE{Tag: 0x10002, ID: 5}),
		"no tag":               append(aces(6, 6, 4, 6, 0), nfs3.ACE{}),
		"rights of 8":          append(aces(6, 6, 4, 6, 0), nfs3.ACE{Tag: nfs3.ACLUser, ID: 5, Perm: 8}),
		"rights of 32 bits":    append(aces(6, 6, 4, 6, 0), nfs3.ACE{Tag: nfs3.ACLUser, ID: 5, Perm: 0x10007}),
		"nothing but the mask": {{Tag: nfs3.ACLMaskObj}},
	} {
		if status := e.setacl(dir, nfs3.ACLAccess, acl, nil); status != nfs3.ErrInval {
			e.Errorf("%s: %v", name, status)
		}
		if status := e.setacl(dir, nfs3.ACLAccess|nfs3.ACLDefault, aces(6, 7, 7, 7, 0), acl); status != nfs3.ErrInval {
			e.Errorf("%s, as default: %v", name, status)
		}
	}
	e.isACL(dir, modeACL(7, 5, 5), nil)
}

// As many as the disk takes, or none of them. There are at most 1,024.
func testManyACEs(e *env) {
	e.withACLs()
	file := e.create(e.dir, "file")
	many := func(n int) []nfs3.ACE {
		acl := slices.Delete(aces(6, 6, 4, 6, 0), 1, 2)
		for i := range n - 4 {
			acl = slices.Insert(acl, 1+i, nfs3.ACE{Tag: nfs3.ACLUser, ID: uint32(i), Perm: 4})
		}
		return acl
	}
	for _, n := range []int{20, 60, 1000, nfs3.MaxACL} {
		switch status := e.setacl(file, nfs3.ACLAccess, many(n), nil); status {
		case nfs3.OK:
			e.isACL(file, many(n), nil)
			e.ok("SETACL", e.setacl(file, nfs3.ACLAccess, modeACL(6, 4, 4), nil))
		case nfs3.ErrNoSpc:
			e.isACL(file, modeACL(6, 4, 4), nil)
		default:
			e.Errorf("%d entries: %v", n, status)
		}
	}
	for _, n := range []int{60, 100, 300, 400} {
		dir := e.mkdir(e.dir, fmt.Sprint("dir", n))
		switch status := e.setacl(dir, nfs3.ACLAccess|nfs3.ACLDefault, many(n), many(n)); status {
		case nfs3.OK:
			e.isACL(dir, many(n), many(n))
		case nfs3.ErrNoSpc: // also of a disk that has room for one of them
			e.isACL(dir, modeACL(7, 5, 5), nil)
		default:
			e.Errorf("%d entries twice: %v", n, status)
		}
	}
}

func testACLTypes(e *env) {
	e.withACLs()
	file := e.create(e.dir, "file")
	if status := e.setacl(file, nfs3.ACLDefault, nil, aces(6, 6, 4, 6, 0)); status == nfs3.OK {
		e.Error("a file got a default ACL")
	}
	e.ok("SETACL that removes a default ACL of a file", e.setacl(file, nfs3.ACLAccess|nfs3.ACLDefault, aces(6, 6, 4, 6, 0), nil))
	e.isACL(file, aces(6, 6, 4, 6, 0), nil)
	link := e.symlink(e.dir, "link", "file")
	if status := e.setacl(link, nfs3.ACLAccess, aces(7, 7, 7, 7, 7), nil); status == nfs3.OK {
		e.Error("a symbolic link got an ACL")
	}
	e.ok("GETACL of a symbolic link", e.getacl(link, nfs3.ACLMask).Status)
	e.isACL(file, aces(6, 6, 4, 6, 0), nil)
}

func testACLBadCalls(e *env) {
	e.withACLs()
	bad := nfs3.FH("no handle")
	if status := e.getacl(bad, nfs3.ACLMask).Status; status == nfs3.OK {
		e.Error("GETACL of no handle")
	}
	if status := e.setacl(bad, nfs3.ACLAccess, modeACL(7, 7, 7), nil); status == nfs3.OK {
		e.Error("SETACL of no handle")
	}
	if err := e.client.callACL(e.Context(), nfs3.ProcACLNull, nil, nil); err != nil {
		e.Errorf("NULL: %v", err)
	}
	args := nfs3.SetaclArgs{Object: e.dir, Mask: nfs3.ACLAccess, Access: nfs3.ACL{Count: nfs3.MaxACL + 1}}
	if err := e.client.callACL(e.Context(), nfs3.ProcSetacl, &args, &nfs3.SetaclRes{}); err == nil {
		e.Error("an ACL of 1,025 entries was not refused")
	}
	// A number of entries, as of an ACL that is not to be set, is none that could be set.
	file := e.create(e.dir, "file")
	e.ok("SETACL", e.setacl(file, nfs3.ACLAccess, aces(6, 7, 4, 7, 0), nil))
	args = nfs3.SetaclArgs{Object: file, Mask: nfs3.ACLAccess, Access: nfs3.ACL{Count: 5}}
	var res nfs3.SetaclRes
	if err := e.client.callACL(e.Context(), nfs3.ProcSetacl, &args, &res); err == nil && res.Status == nfs3.OK {
		e.Error("SETACL of 5 entries that are not there")
	}
	e.isACL(file, aces(6, 7, 4, 7, 0), nil)
}
