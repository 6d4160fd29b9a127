package nfstest4

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// Snapshots takes and deletes snapshots of the volume Export, which has none at the start.
type Snapshots struct{ Take, Delete func(name string) }

// RunSnapshots runs the tests of the directory of snapshots.
func RunSnapshots(t *testing.T, target Target, control Snapshots) {
	if target.Minor == 0 {
		target.Minor = 1
	}
	tests := []test{
		{"come and go", func(e *env) { testComeAndGo(e, control) }},
		{"where they are", func(e *env) { testSnapshotPlaces(e, control) }},
		{"nothing changes them", func(e *env) { testSnapshotsReadOnly(e, control) }},
		{"handles of a deleted one", func(e *env) { testSnapshotHandles(e, control) }},
		{"the name is in use", func(e *env) { testSnapshotsName(e, control) }},
	}
	runTests(t, target, tests, "")
}

const snapshotsName = ".snapshots"

// byVersion3 is a client of version 3, to which handles of the others are the same.
func (e *env) byVersion3() *nfstest.Client {
	e.Helper()
	c, err := nfstest.Dial(e.Context(), e.target.Addr, e.target.MountAddr)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(c.Close)
	return c
}

// taken takes snapshots, which are deleted at the end of the test, and returns the directory of all.
func (e *env) taken(control Snapshots, names ...string) (all nfs4.FH) {
	e.Helper()
	for _, name := range names {
		control.Take(name)
		e.Cleanup(func() { control.Delete(name) })
	}
	return e.fh(putfh(e.root), lookup(snapshotsName))
}

// dirTimes is how clients know whether a directory is as it was: by the change attribute, or in version 3 by the ctime.
type dirTimes struct {
	change       uint64
	ctime, mtime nfs3.Time
}

func (e *env) dirTimes(c3 *nfstest.Client, dir nfs4.FH) dirTimes {
	e.Helper()
	a := e.attr([]op{putfh(dir)}, nfs4.AttrChange)
	res, err := c3.Getattr(context.Background(), nfs3.FH(dir))
	if err != nil || res.Status != nfs3.OK {
		e.Fatal(res.Status, err)
	}
	return dirTimes{a.Change, res.Attr.Ctime, res.Attr.Mtime}
}

// moved checks that clients look again in a directory.
func (e *env) moved(what string, before, now dirTimes) {
	e.Helper()
	if now.change == before.change || now.ctime == before.ctime {
		e.Errorf("%s: clients take what they know of the directory for right: %+v, and before %+v", what, now, before)
	}
}

// testComeAndGo has clients look before the first snapshot, and after each.
func testComeAndGo(e *env, control Snapshots) {
	c3 := e.byVersion3()
	e.file("f", "content")
	lacks := func(dir nfs4.FH, name string) {
		e.Helper()
		e.refused([]op{putfh(dir), lookup(name)}, nfs4.ErrNoEnt)
		if res, err := c3.Lookup(e.Context(), nfs3.FH(dir), name); err != nil || res.Status != nfs3.ErrNoEnt {
			e.Errorf("version 3 finds %s: %v, %v", name, res.Status, err)
		}
	}
	lacks(e.root, snapshotsName)
	root := e.dirTimes(c3, e.root)
	was := e.attr([]op{putfh(e.root)}, nfs4.AttrMode, nfs4.AttrOwner, nfs4.AttrOwnerGroup, nfs4.AttrNumLinks)

	control.Take("one")
	all := e.fh(putfh(e.root), lookup(snapshotsName))
	now := e.dirTimes(c3, e.root)
	e.moved("the root, after the first", root, now)
	is := e.attr([]op{putfh(e.root)}, nfs4.AttrMode, nfs4.AttrOwner, nfs4.AttrOwnerGroup, nfs4.AttrNumLinks)
	if now.mtime != root.mtime || is.Mode != was.Mode || is.NumLinks != was.NumLinks || !bytes.Equal(is.Owner, was.Owner) || !bytes.Equal(is.OwnerGroup, was.OwnerGroup) {
		e.Errorf("the root is %+v, %+v, and was %+v, %+v", now, is, root, was)
	}
	lacks(all, "two")
	root, in := now, e.dirTimes(c3, all)

	control.Take("two")
	e.fh(putfh(all), lookup("two"))
	now = e.dirTimes(c3, all)
	e.moved("the snapshots, after the second", in, now)
	if now.mtime == in.mtime {
		e.Errorf("their mtime is still %+v", in.mtime)
	}
	if now := e.dirTimes(c3, e.root); now != root {
		e.Errorf("after the second, the root is %+v, and was %+v", now, root)
	}
	if names := e.names(all); len(names) != 2 || names[0] != "one" || names[1] != "two" {
		e.Errorf("there are %q", names)
	}

	in = now
	control.Delete("one")
	lacks(all, "one")
	e.moved("the snapshots, after a deletion", in, e.dirTimes(c3, all))
	control.Delete("two")
	lacks(e.root, snapshotsName)
	e.moved("the root, after the last deletion", root, e.dirTimes(c3, e.root))
	e.refused([]op{putfh(all), getattrs(nfs4.AttrType)}, nfs4.ErrStale)
}

// testSnapshotPlaces looks what clients see of where the files of a snapshot are.
func testSnapshotPlaces(e *env, control Snapshots) {
	c3 := e.byVersion3()
	fh := e.file("f", "content")
	e.ok(putfh(e.dir), mkdir("sub"))
	all := e.taken(control, "one", "two")
	one := e.fh(putfh(all), lookup("one"))
	sub := e.fh(putfh(one), lookup(e.dirName), lookup("sub"))
	fs := func(fh nfs4.FH) *nfs4.Attrs {
		e.Helper()
		return e.attr([]op{putfh(fh)}, nfs4.AttrFSID, nfs4.AttrFileID, nfs4.AttrMountedOnFileID, nfs4.AttrSpaceTotal, nfs4.AttrFilesTotal)
	}
	root := fs(e.root)
	if e.attr([]op{putfh(e.root)}, nfs4.AttrUniqueHandles).UniqueHandles {
		e.Error("unique_handles is true, and a file may be in several snapshots")
	}
	df, err := c3.Fsstat(e.Context(), e.root3())
	if err != nil {
		e.Fatal(err)
	}
	ids := map[uint64]string{root.FileID: "the root", fs(fh).FileID: "the file"}
	file := e.fh(putfh(one), lookup(e.dirName), lookup("f"))
	for what, fh := range map[string]nfs4.FH{snapshotsName: all, "one": one, "sub of one": sub, "the file of one": file} {
		a := fs(fh)
		if a.FSID != root.FSID || a.MountedOnFileID != a.FileID {
			e.Errorf("%s is on the file system %v with the numbers %d, %d, and the root on %v", what, a.FSID, a.FileID, a.MountedOnFileID, root.FSID)
		}
		if other := ids[a.FileID]; other != "" {
			e.Errorf("%s has the number of %s", what, other)
		}
		ids[a.FileID] = what
		in3, err := c3.Fsstat(e.Context(), nfs3.FH(fh))
		if a.SpaceTotal != root.SpaceTotal || a.FilesTotal != root.FilesTotal || err != nil || in3.TBytes != df.TBytes || in3.TFiles != df.TFiles {
			e.Errorf("%s is on %d bytes, by version 3 %d (%v), and the root on %d, %d", what, a.SpaceTotal, in3.TBytes, err, root.SpaceTotal, df.TBytes)
		}
	}
	// The way up, by which a client finds the path of a directory.
	for at, want := range map[string][2]nfs4.FH{"one": {one, all}, snapshotsName: {all, e.root}} {
		up := e.fh(putfh(want[0]), lookupp())
		up3, err := c3.Lookup(e.Context(), nfs3.FH(want[0]), "..")
		if !bytes.Equal(up, want[1]) || err != nil || !bytes.Equal(up3.Object, want[1]) {
			e.Errorf("above %s is %x, by version 3 %x, %v; want %x", at, up, up3.Object, err, want[1])
		}
	}
	if up := e.fh(putfh(sub), lookupp(), lookupp()); !bytes.Equal(up, one) {
		e.Errorf("above the directory's directory is %x, want %x", up, one)
	}
	// A listing has the handles that a LOOKUP has.
	listed := map[string][]byte{}
	for _, entry := range e.list(all, nfs4.ReaddirArgs{DirCount: 8192, MaxCount: 8192, Request: nfs4.BitmapOf(nfs4.AttrFilehandle)}) {
		a, err := entry.Attr.Attrs()
		if err != nil {
			e.Fatal(err)
		}
		listed[string(entry.Name)] = a.Filehandle
	}
	plus, err := c3.Readdirplus(e.Context(), nfs3.ReaddirplusArgs{Dir: nfs3.FH(all), DirCount: 8192, MaxCount: 8192})
	if err != nil {
		e.Fatal(err)
	}
	listed3 := map[string][]byte{}
	for _, entry := range plus.Entries {
		if name := string(entry.Name); name != "." && name != ".." {
			listed3[name] = entry.Object
		}
	}
	want := map[string][]byte{"one": one, "two": e.fh(putfh(all), lookup("two"))}
	if !maps.EqualFunc(listed, want, bytes.Equal) || !maps.EqualFunc(listed3, want, bytes.Equal) {
		e.Errorf("the listings have\n%x and\n%x, want\n%x", listed, listed3, want)
	}
}

// testSnapshotsReadOnly tries to change a snapshot, and uses what can be read of it.
func testSnapshotsReadOnly(e *env, control Snapshots) {
	fh := e.file("f", "content")
	e.ok(putfh(e.dir), mkdir("sub"))
	c := e.in42()
	c.ok(putfh(fh), setxattr("a", "value", nfs4.SetxattrEither))
	hasACLs := e.attr([]op{putfh(fh)}, nfs4.AttrSupportedAttrs).SupportedAttrs.Has(nfs4.AttrACL)
	if hasACLs {
		e.ok(putfh(fh), setACL(allow("OWNER@", aceRW|aceOwner), allow("1234", aceR), allow("GROUP@", aceR), allow("EVERYONE@", aceNo)))
	}
	acl := e.attr([]op{putfh(fh)}, nfs4.AttrACL).ACL
	all := e.taken(control, "one")
	e.file("f2", "mine")
	c.ok(putfh(fh), setxattr("a", "another", nfs4.SetxattrEither))

	dir := e.fh(putfh(all), lookup("one"), lookup(e.dirName))
	file, id := e.client.open(dir, opening{name: "f", access: nfs4.ShareAccessRead})
	mine, to := e.opened(c, "to", "")
	e.readOnly(dir, file, mine, id)
	e.content(file, "content")
	c.xattrsAre(file, "a")
	c.xattrIs(file, "a", "value")
	if hasACLs {
		e.aclIs(file, acl...)
		e.refused([]op{putfh(file), setACL(allow("OWNER@", aceR))}, nfs4.ErrROFS)
	}
	none := nfs4.Stateid{}
	for _, ops := range [][]op{
		{putfh(file), allocate(none, 0, 1)},
		{putfh(file), deallocate(none, 0, 1)},
		{putfh(mine), savefh(), putfh(file), copyOp(to, none, 0, 0, 1)},
		{putfh(mine), savefh(), putfh(file), clone(to, none, 0, 0, 0)},
		{putfh(file), savefh(), putfh(file), clone(none, none, 0, 0, 0)},
		{putfh(file), setxattr("a", "x", nfs4.SetxattrEither)},
		{putfh(file), setxattr("b", "x", nfs4.SetxattrCreate)},
		{putfh(file), removexattr("a")},
	} {
		c.refused(ops, nfs4.ErrROFS)
	}
	// Out of it, a file is cloned and copied.
	from := c.openOf(dir, "f")
	c.ok(putfh(file), savefh(), putfh(mine), clone(from, to, 0, 0, 0))
	c.content(mine, "content")
	c.ok(putfh(file), savefh(), putfh(mine), copyOp(from, to, 0, 7, 7))
	c.content(mine, "contentcontent")

	// Whoever may read may have a lock for that, and it is no other's.
	lock := nfs4.LockArgs{Type: nfs4.LockRead, Length: 10, NewOwner: true, OpenStateid: id, Owner: nfs4.StateOwner{ClientID: e.client.id, Owner: []byte("lock")}}
	locked := get[nfs4.LockRes](e, e.ok(putfh(file), op{nfs4.OpLock, &lock, &nfs4.LockRes{}}))
	e.ok(putfh(file), locku(locked.Stateid, 0, 10))
	lock.Type, lock.Owner.Owner = nfs4.LockWrite, []byte("other")
	e.refused([]op{putfh(file), {nfs4.OpLock, &lock, &nfs4.LockRes{}}}, nfs4.ErrOpenMode)
	e.ok(putfh(file), closeOp(id))
}

// openOf opens a file to read.
func (c *client) openOf(dir nfs4.FH, name string) nfs4.Stateid {
	c.Helper()
	_, id := c.open(dir, opening{name: name, access: nfs4.ShareAccessRead})
	return id
}

// testSnapshotHandles deletes a snapshot of which clients have handles, while another one has the same files.
func testSnapshotHandles(e *env, control Snapshots) {
	c3 := e.byVersion3()
	e.file("f", "content")
	e.ok(putfh(e.dir), mkdir("sub"))
	all := e.taken(control, "two")
	control.Take("one") // later, so it has the file of the other one if that is the same
	one, two := e.fh(putfh(all), lookup("one")), e.fh(putfh(all), lookup("two"))
	dir := e.fh(putfh(one), lookup(e.dirName))
	file, id := e.client.open(dir, opening{name: "f", access: nfs4.ShareAccessRead})
	stays, staysID := e.client.open(e.fh(putfh(two), lookup(e.dirName)), opening{name: "f", access: nfs4.ShareAccessRead})
	handles := map[string]nfs4.FH{"the snapshot": one, "a directory": dir, "an empty directory": e.fh(putfh(dir), lookup("sub")), "a file": file}
	e.content(file, "content")
	if bytes.Equal(file, stays) {
		e.Error("a file of two snapshots has one handle")
	}

	control.Delete("one")
	gone := func(when string) {
		e.Helper()
		for what, fh := range handles {
			e.refused([]op{putfh(fh), getattrs(nfs4.AttrType)}, nfs4.ErrStale)
			if res, err := c3.Getattr(e.Context(), nfs3.FH(fh)); err != nil || res.Status != nfs3.ErrStale {
				e.Errorf("%s, %s by version 3: %v, %v", when, what, res.Status, err)
			}
		}
		e.refused([]op{putfh(file), read(nfs4.Stateid{}, 0, 10)}, nfs4.ErrStale)
		e.refused([]op{putfh(file), read(id, 0, 10)}, nfs4.ErrStale)
		if res, err := c3.Read(e.Context(), nfs3.FH(file), 0, 10); err != nil || res.Status != nfs3.ErrStale {
			e.Errorf("%s, READ by version 3: %q, %v, %v", when, res.Data, res.Status, err)
		}
		e.content(stays, "content")
		e.ok(putfh(stays), read(staysID, 0, 10))
		opens := get[nfs4.TestStateidRes](e, e.ok(testStateid(id, staysID))).Statuses
		if !slices.Equal(opens, []nfs4.Status{nfs4.ErrBadStateid, nfs4.OK}) { // it holds nothing of what is gone
			e.Errorf("%s, the opens are %v", when, opens)
		}
	}
	gone("deleted")
	control.Take("one")
	defer control.Delete("one")
	gone("with another one of the name")
	e.content(e.fh(putfh(all), lookup("one"), lookup(e.dirName), lookup("f")), "content")
	r := e.do(putfh(file), closeOp(id))
	if r.status != nfs4.OK && r.status != nfs4.ErrStale {
		e.Errorf("CLOSE of what is gone: %v", r.status)
	}
	e.ok(putfh(stays), closeOp(staysID))
}

// testSnapshotsName uses the name of the snapshots in a volume for other things.
func testSnapshotsName(e *env, control Snapshots) {
	c3 := e.byVersion3()
	fh := e.file("f", "content")
	e.ok(putfh(e.root), mkdir(snapshotsName), putfh(e.root), remove(snapshotsName))
	all := e.taken(control, "one")
	args := e.openArgs(opening{name: snapshotsName, create: true})
	guarded := args
	guarded.Mode = nfs4.Guarded
	plain := e.openArgs(opening{name: snapshotsName, access: nfs4.ShareAccessRead})
	e.expect([]expect{
		{"mkdir", []op{putfh(e.root), mkdir(snapshotsName)}, is(nfs4.ErrExist)},
		{"symlink", []op{putfh(e.root), symlink(snapshotsName, "f")}, is(nfs4.ErrExist)},
		{"link", []op{putfh(fh), savefh(), putfh(e.root), link(snapshotsName)}, is(nfs4.ErrExist)},
		{"open", []op{putfh(e.root), open(plain)}, is(nfs4.ErrIsDir)},
		{"open to create", []op{putfh(e.root), open(args)}, is(nfs4.ErrIsDir)}, // as of every directory
		{"open to create, guarded", []op{putfh(e.root), open(guarded)}, is(nfs4.ErrExist)},
		{"remove", []op{putfh(e.root), remove(snapshotsName)}, is(nfs4.ErrROFS)},
		{"rename", []op{putfh(e.root), savefh(), rename(snapshotsName, "x")}, is(nfs4.ErrROFS)},
		{"rename to it", []op{putfh(e.dir), savefh(), putfh(e.root), rename("f", snapshotsName)}, is(nfs4.ErrROFS)},
	})
	if res, err := c3.Create(e.Context(), nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: e.root3(), Name: []byte(snapshotsName)}}); err != nil || res.Status != nfs3.ErrExist {
		e.Errorf("CREATE of version 3: %v, %v", res.Status, err)
	}
	control.Delete("one")
	// The name is free from here on, and what has it comes first.
	e.ok(putfh(e.root), mkdir(snapshotsName))
	own := e.fh(putfh(e.root), lookup(snapshotsName))
	control.Take("one")
	if now := e.fh(putfh(e.root), lookup(snapshotsName)); !bytes.Equal(now, own) {
		e.Errorf("the directory of the volume is %x, and was %x", now, own)
	}
	e.ok(putfh(e.root), remove(snapshotsName))
	if now := e.fh(putfh(e.root), lookup(snapshotsName)); !bytes.Equal(now, all) {
		e.Errorf("the snapshots are %x, and were %x", now, all)
	}
}
