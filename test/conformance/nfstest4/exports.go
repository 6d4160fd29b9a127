package nfstest4

import (
	"strconv"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// exportTests are what a volume's options take from each operation of a COMPOUND, whatever
// volumes the others are in.
var exportTests = []test{
	{"read only", testReadOnly},
	{"squashed", testSquashed},
	{"limited to some clients", testLimited},
}

// testReadOnly changes a volume in all ways, where it may not be changed.
func testReadOnly(e *env) {
	if e.target.ReadOnly == "" {
		e.Skip("named skip: options: no read-only volume")
	}
	e.file("f", "content")
	e.ok(putfh(e.dir), mkdir("sub"))
	e.ok(putfh(e.dir), symlink("link", "f"))
	dir := e.walk(e.target.ReadOnly + "/" + e.dirName)
	fh := e.fh(putfh(dir), lookup("f"))
	mine, _ := e.client.open(e.dir, opening{name: "mine", create: true})
	_, id := e.client.open(dir, opening{name: "f", access: nfs4.ShareAccessRead})
	e.readOnly(dir, fh, mine, id)
	// As open(2) with O_CREAT does with a file that is there.
	toCreate := e.openArgs(opening{name: "f", owner: "creates", create: true, access: nfs4.ShareAccessRead})
	r := e.ok(putfh(dir), open(toCreate), getfh())
	if same := get[nfs4.GetfhRes](e, r); string(same.FH) != string(fh) || !get[nfs4.OpenRes](e, r).AttrSet.Empty() {
		e.Errorf("OPEN to create: %x, want %x, set %x", same.FH, fh, get[nfs4.OpenRes](e, r).AttrSet)
	}
	for _, how := range []nfs4.CreateMode{nfs4.Guarded, nfs4.Exclusive} {
		toCreate.Mode = how
		e.refused([]op{putfh(dir), open(toCreate)}, nfs4.ErrExist, nfs4.ErrROFS)
	}
	e.asOther(func(other *client) {
		again := other.openArgs(opening{name: "f", owner: "creates", create: true, access: nfs4.ShareAccessRead})
		other.ok(putfh(dir), open(again))
		again.Name = []byte("nothing")
		other.refused([]op{putfh(dir), open(again)}, nfs4.ErrROFS, nfs4.ErrAccess)
	})
	res := get[nfs4.AccessRes](e, e.ok(putfh(fh), access(nfs4.AccessRead|nfs4.AccessModify|nfs4.AccessExtend)))
	if res.Access != nfs4.AccessRead {
		e.Errorf("ACCESS of a file: %#x", res.Access)
	}
	if got := get[nfs4.ReadRes](e, e.ok(putfh(fh), read(id, 0, 100))); string(got.Data) != "content" {
		e.Errorf("READ: %q", got.Data)
	}
	if names := e.names(e.dir); len(names) != 4 {
		e.Errorf("the directory has %q", names)
	}
	e.content(e.fh(putfh(e.dir), lookup("f")), "content")
}

// readOnly changes a directory in all ways where it may not be changed. It has a file f, of which fh is the handle and id an open
// to read, and a directory sub; mine is a file in a volume that may be.
func (e *env) readOnly(dir, fh, mine nfs4.FH, id nfs4.Stateid) {
	e.Helper()
	no := is(nfs4.ErrROFS)
	across := is(nfs4.ErrROFS, nfs4.ErrXDev)
	args := func(o opening, change func(*nfs4.OpenArgs)) nfs4.OpenArgs {
		a := e.openArgs(o)
		if change != nil {
			change(&a)
		}
		return a
	}
	reads := opening{name: "f", access: nfs4.ShareAccessRead}
	e.expect([]expect{
		{"open to write", []op{putfh(dir), open(args(opening{name: "f"}, nil))}, no},
		{"open to write by handle", []op{putfh(fh), open(args(opening{}, func(a *nfs4.OpenArgs) { a.Claim = nfs4.ClaimFH }))}, no},
		{"open to create", []op{putfh(dir), open(args(opening{name: "new", create: true, access: nfs4.ShareAccessRead}, nil))}, no},
		{"open to truncate", []op{putfh(dir), open(args(reads, func(a *nfs4.OpenArgs) { a.Create, a.Attr = true, size(0) }))}, no},
		{"create a directory", []op{putfh(dir), mkdir("new")}, no},
		{"create a link", []op{putfh(dir), symlink("new", "f")}, no},
		{"create a fifo", []op{putfh(dir), create(nfs4.CreateArgs{Type: nfs4.TypeFIFO, Name: []byte("new")})}, no},
		{"remove", []op{putfh(dir), remove("f")}, no},
		{"remove a directory", []op{putfh(dir), remove("sub")}, no},
		{"rename", []op{putfh(dir), savefh(), rename("f", "g")}, no},
		{"rename into it", []op{putfh(e.dir), savefh(), putfh(dir), rename("f", "g")}, across},
		{"rename out of it", []op{putfh(dir), savefh(), putfh(e.dir), rename("f", "g")}, across},
		{"link", []op{putfh(fh), savefh(), putfh(dir), link("g")}, no},
		{"link into it", []op{putfh(mine), savefh(), putfh(dir), link("g")}, across},
		{"link out of it", []op{putfh(fh), savefh(), putfh(e.dir), link("g")}, across},
		{"mode", []op{putfh(fh), setattr(nfs4.Stateid{}, mode(0o777))}, no},
		{"size", []op{putfh(fh), setattr(nfs4.Stateid{}, size(0))}, no},
		{"size by an open", []op{putfh(fh), setattr(id, size(0))}, is(nfs4.ErrROFS, nfs4.ErrOpenMode)},
		{"write", []op{putfh(fh), write(nfs4.Stateid{}, 0, "x")}, no},
		{"write by an open", []op{putfh(fh), write(id, 0, "x")}, is(nfs4.ErrROFS, nfs4.ErrOpenMode)},
	})
}

// testSquashed does as root what the anonymous user may not.
func testSquashed(e *env) {
	if e.target.Squashed == "" {
		e.Skip("named skip: options: no squashed volume")
	}
	e.need(nfstest.FeatureIdentity)
	secret := e.file("secret", "secret")
	e.ok(putfh(secret), setattr(nfs4.Stateid{}, mode(0o600)))
	e.ok(putfh(e.dir), setattr(nfs4.Stateid{}, mode(0o755)))
	e.ok(putfh(e.dir), mkdir("open"))
	e.ok(putfh(e.dir), lookup("open"), setattr(nfs4.Stateid{}, mode(0o777)))
	dir := e.walk(e.target.Squashed + "/" + e.dirName)
	fh := e.fh(putfh(dir), lookup("secret"))
	all := e.fh(putfh(dir), lookup("open"))
	no := is(nfs4.ErrAccess, nfs4.ErrPerm)
	reads := e.openArgs(opening{name: "secret", access: nfs4.ShareAccessRead})
	e.expect([]expect{
		{"open", []op{putfh(dir), open(reads)}, no},
		{"open to create", []op{putfh(dir), open(e.openArgs(opening{name: "new", create: true}))}, no},
		{"read", []op{putfh(fh), read(nfs4.Stateid{}, 0, 10)}, no},
		{"write", []op{putfh(fh), write(nfs4.Stateid{}, 0, "x")}, no},
		{"mode", []op{putfh(fh), setattr(nfs4.Stateid{}, mode(0o777))}, no},
		{"size", []op{putfh(fh), setattr(nfs4.Stateid{}, size(0))}, no},
		{"create", []op{putfh(dir), mkdir("new")}, no},
		{"remove", []op{putfh(dir), remove("secret")}, no},
		{"rename", []op{putfh(dir), savefh(), putfh(all), rename("secret", "mine")}, no},
		{"rename after another volume", []op{putfh(e.dir), savefh(), putfh(dir), savefh(), putfh(all), rename("secret", "mine")}, no},
	})
	// What it makes is the anonymous user's, and so is a directory's after root's own.
	e.ok(putfh(e.dir), mkdir("roots"), putfh(all), mkdir("dir"))
	e.client.open(all, opening{name: "file", create: true})
	for _, name := range []string{"dir", "file"} {
		owner := e.attr([]op{putfh(all), lookup(name)}, nfs4.AttrOwner).Owner
		if string(owner) != strconv.FormatUint(uint64(e.target.SquashUID), 10) {
			e.Errorf("%s belongs to %q", name, owner)
		}
	}
	if res := get[nfs4.AccessRes](e, e.ok(putfh(fh), access(nfs4.AccessRead|nfs4.AccessModify))); res.Access != 0 {
		e.Errorf("ACCESS: %#x", res.Access)
	}
	if owner := e.attr([]op{putfh(e.dir), lookup("roots")}, nfs4.AttrOwner).Owner; string(owner) != "0" {
		e.Errorf("what root made belongs to %q", owner)
	}
}

// testLimited has another machine use the handles, the session and the opens of one that may
// use the volume.
func testLimited(e *env) {
	if e.target.Limited == "" {
		e.Skip("named skip: options: no volume for another address alone")
	}
	allowed := e.stranger(e.T)
	allowed.conn = allowed.dialFrom(e.target.LimitedTo)
	allowed.start()
	allowed.ok(reclaimComplete(false))
	name := e.dirName + "-limited"
	root := allowed.fh(walkOps(e.target.Limited)...)
	fh, id := allowed.open(root, opening{name: name, create: true})
	allowed.ok(putfh(fh), write(id, 0, "content"))
	home := allowed.conn
	allowed.conn = allowed.dial() // from where it may not be used
	no := is(nfs4.ErrAccess, nfs4.ErrStale, nfs4.ErrPerm, nfs4.ErrNoEnt)
	for what, ops := range map[string][]op{
		"read":     {putfh(fh), read(id, 0, 100)},
		"write":    {putfh(fh), write(id, 0, "x")},
		"getattr":  {putfh(fh), getattrs(nfs4.AttrSize)},
		"setattr":  {putfh(fh), setattr(id, size(0))},
		"open":     {putfh(root), open(allowed.openArgs(opening{name: name}))},
		"by claim": {putfh(fh), open(func() nfs4.OpenArgs { a := allowed.openArgs(opening{}); a.Claim = nfs4.ClaimFH; return a }())},
		"readdir":  {putfh(root), readdir(nfs4.ReaddirArgs{DirCount: 4096, MaxCount: 4096})},
		"remove":   {putfh(root), remove(name)},
		"link":     {putfh(fh), savefh(), putfh(e.dir), link("stolen")},
		"rename":   {putfh(root), savefh(), putfh(e.dir), rename(name, "stolen")},
		"commit":   {putfh(fh), commit(0, 0)},
		"lookup":   walkOps(e.target.Limited),
	} {
		r := allowed.do(ops...)
		ended := false
		for _, s := range no {
			ended = ended || r.status == s
		}
		if !ended && what != "link" && what != "rename" || r.status == nfs4.OK {
			e.Errorf("%s from elsewhere: %v says %v", what, r.last(), r.status)
		}
	}
	allowed.conn = home
	if got := get[nfs4.ReadRes](e, allowed.ok(putfh(fh), read(id, 0, 100))); string(got.Data) != "content" {
		e.Errorf("READ: %q", got.Data)
	}
	allowed.ok(putfh(fh), closeOp(id))
	allowed.ok(putfh(root), remove(name))
	if err := allowed.leave(); err != nil {
		e.Error(err)
	}
}
