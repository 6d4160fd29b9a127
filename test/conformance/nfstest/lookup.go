package nfstest

import (
	"bytes"

	"github.com/podnas/podnas/nfs/nfs3"
)

var lookupTests = []test{
	{"LOOKUP", testLookup},
	{"LOOKUP of dot", testLookupDot},
	{"LOOKUP of dot-dot", testLookupDotDot},
	{"LOOKUP of dot-dot at the root", testLookupRootDotDot},
	{"ACCESS", testAccess},
	{"READLINK", testReadlink},
}

func testLookup(e *env) {
	dir, file := e.mkdir(e.dir, "dir"), e.create(e.dir, "file")
	for name, fh := range map[string]nfs3.FH{"dir": dir, "file": file} {
		res := e.lookup(e.dir, name)
		e.ok("LOOKUP", res.Status)
		attr := e.attr(fh)
		if got := e.attr(res.Object); got != attr {
			e.Errorf("%s: found %+v, want %+v", name, got, attr)
		}
		if res.Attr.Present && res.Attr.Attr != attr {
			e.Errorf("%s: attributes %+v, want %+v", name, res.Attr.Attr, attr)
		}
	}
	e.refused("LOOKUP of a missing name", e.lookup(e.dir, "missing").Status, nfs3.ErrNoEnt)
	e.refused("LOOKUP of a name in another case", e.lookup(e.dir, "FILE").Status, nfs3.ErrNoEnt)
	e.refused("LOOKUP in a file", e.lookup(file, "name").Status, nfs3.ErrNotDir)
	e.refused("LOOKUP of dot in a file", e.lookup(file, ".").Status, nfs3.ErrNotDir)
	e.refused("LOOKUP of dot-dot in a file", e.lookup(file, "..").Status, nfs3.ErrNotDir)
}

func testLookupDot(e *env) {
	res := e.lookup(e.dir, ".")
	e.ok("LOOKUP", res.Status)
	if !bytes.Equal(res.Object, e.dir) {
		e.Errorf("handle %x, want %x", res.Object, e.dir)
	}
}

func testLookupDotDot(e *env) {
	sub := e.mkdir(e.mkdir(e.dir, "dir"), "sub")
	for _, want := range []string{"dir", ""} {
		res := e.lookup(sub, "..")
		e.ok("LOOKUP", res.Status)
		fh := e.dir
		if want != "" {
			fh = e.handle(e.dir, want)
		}
		if !bytes.Equal(res.Object, fh) {
			e.Errorf("handle %x, want %x", res.Object, fh)
		}
		sub = res.Object
	}
}

// The parent of the root is the root, or nothing.
func testLookupRootDotDot(e *env) {
	res := e.lookup(e.root, "..")
	if res.Status != nfs3.OK {
		e.refused("LOOKUP", res.Status, nfs3.ErrNoEnt, nfs3.ErrAcces, nfs3.ErrPerm)
		return
	}
	if got, root := e.attr(res.Object), e.attr(e.root); got.FileID != root.FileID || got.FSID != root.FSID {
		e.Errorf("found %+v outside of the export, whose root is %+v", got, root)
	}
	e.handle(res.Object, e.dirName)
}

func testAccess(e *env) {
	const all = nfs3.AccessRead | nfs3.AccessLookup | nfs3.AccessModify | nfs3.AccessExtend | nfs3.AccessDelete | nfs3.AccessExecute
	for name, fh := range map[string]nfs3.FH{"file": e.create(e.dir, "file"), "directory": e.mkdir(e.dir, "dir")} {
		for _, asked := range []uint32{0, nfs3.AccessRead, nfs3.AccessRead | nfs3.AccessModify | nfs3.AccessExtend, all} {
			res := e.access(fh, asked)
			e.ok("ACCESS", res.Status)
			if res.Access&^asked != 0 {
				e.Errorf("%s: asked %#x, got %#x", name, asked, res.Access)
			}
			// Root may read and write everything.
			if want := asked & (nfs3.AccessRead | nfs3.AccessModify | nfs3.AccessExtend); res.Access&want != want {
				e.Errorf("%s: asked %#x, got %#x, want at least %#x", name, asked, res.Access, want)
			}
		}
	}
}

func testReadlink(e *env) {
	for _, target := range []string{"to", "../nfstest-none/b", "/nfstest-none", "dangling/for ever", "\xff\xfe not UTF-8"} {
		link := e.symlink(e.dir, "link", target)
		res := e.readlink(link)
		e.ok("READLINK", res.Status)
		if string(res.Path) != target {
			e.Errorf("READLINK: %q, want %q", res.Path, target)
		}
		e.ok("REMOVE", e.remove(e.dir, "link").Status)
	}
	e.refused("READLINK of a file", e.readlink(e.create(e.dir, "file")).Status, nfs3.ErrInval, nfs3.ErrNotSupp)
	e.refused("READLINK of a directory", e.readlink(e.dir).Status, nfs3.ErrInval, nfs3.ErrNotSupp)
}
