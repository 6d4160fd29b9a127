package nfstest

import (
	"bytes"

	"github.com/podnas/podnas/nfs/nfs3"
)

var renameTests = []test{
	{"RENAME", testRename},
	{"over a file", testRenameOverFile},
	{"over a directory", testRenameOverDirectory},
	{"to itself", testRenameToItself},
	{"between links", testRenameBetweenLinks},
	{"into itself", testRenameIntoItself},
	{"of an open file", testSillyRename},
}

func testRename(e *env) {
	a, b := e.mkdir(e.dir, "a"), e.mkdir(e.dir, "b")
	file := e.create(a, "file")
	e.write(file, 0, []byte("content"))
	e.ok("RENAME", e.rename(a, "file", a, "renamed").Status)
	e.gone(a, "file")
	e.ok("RENAME to another directory", e.rename(a, "renamed", b, "moved").Status)
	e.gone(a, "renamed")
	e.content(e.handle(b, "moved"), []byte("content"))
	e.symlink(a, "link", "nowhere")
	e.ok("RENAME of a symbolic link", e.rename(a, "link", b, "link").Status)
	if res := e.readlink(e.handle(b, "link")); string(res.Path) != "nowhere" {
		e.Errorf("the link leads to %q", res.Path)
	}
	e.refused("RENAME of a missing name", e.rename(a, "missing", b, "new").Status, nfs3.ErrNoEnt)
	e.gone(b, "new")
}

func testRenameOverFile(e *env) {
	from, over := e.create(e.dir, "from"), e.create(e.dir, "over")
	e.write(from, 0, []byte("from"))
	e.write(over, 0, []byte("over"))
	e.ok("RENAME", e.rename(e.dir, "from", e.dir, "over").Status)
	e.gone(e.dir, "from")
	e.content(e.handle(e.dir, "over"), []byte("from"))
	e.content(from, []byte("from"))
	e.refused("GETATTR of what was there", e.getattr(over).Status, stale...)

	// Over a symbolic link: the link is replaced, not its target.
	target := e.create(e.dir, "target")
	e.write(target, 0, []byte("target"))
	e.symlink(e.dir, "link", "target")
	e.ok("RENAME over a symbolic link", e.rename(e.dir, "over", e.dir, "link").Status)
	e.content(e.handle(e.dir, "link"), []byte("from"))
	e.content(target, []byte("target"))
}

func testRenameOverDirectory(e *env) {
	from, over := e.mkdir(e.dir, "from"), e.mkdir(e.dir, "over")
	inside := e.create(from, "inside")
	e.create(e.dir, "file")
	e.create(over, "full")
	e.refused("RENAME over a full directory", e.rename(e.dir, "from", e.dir, "over").Status, nfs3.ErrNotEmpty, nfs3.ErrExist)
	e.refused("RENAME of a file over a directory", e.rename(e.dir, "file", e.dir, "over").Status, nfs3.ErrIsDir, nfs3.ErrExist, nfs3.ErrNotEmpty)
	e.refused("RENAME of a directory over a file", e.rename(e.dir, "from", e.dir, "file").Status, nfs3.ErrNotDir, nfs3.ErrExist)
	for _, name := range []string{"from", "over", "file"} {
		e.handle(e.dir, name)
	}
	e.ok("REMOVE", e.remove(over, "full").Status)
	e.ok("RENAME over an empty directory", e.rename(e.dir, "from", e.dir, "over").Status)
	e.gone(e.dir, "from")
	if got := e.handle(e.handle(e.dir, "over"), "inside"); !bytes.Equal(got, inside) {
		e.Errorf("the handle inside is %x, was %x", got, inside)
	}
	e.refused("READDIR of what was there", e.readdir(nfs3.ReaddirArgs{Dir: over, Count: 8192}).Status, stale...)
}

func testRenameToItself(e *env) {
	file := e.create(e.dir, "file")
	e.write(file, 0, []byte("content"))
	e.ok("RENAME", e.rename(e.dir, "file", e.dir, "file").Status)
	e.content(file, []byte("content"))
	e.content(e.handle(e.dir, "file"), []byte("content"))
}

// If both names are links to one file nothing happens (RFC 1813 section 3.3.14).
func testRenameBetweenLinks(e *env) {
	e.need(FeatureLink)
	file := e.create(e.dir, "a")
	e.ok("LINK", e.link(file, e.dir, "b").Status)
	e.ok("RENAME", e.rename(e.dir, "a", e.dir, "b").Status)
	e.handle(e.dir, "a")
	e.handle(e.dir, "b")
}

func testRenameIntoItself(e *env) {
	dir := e.mkdir(e.dir, "dir")
	sub := e.mkdir(dir, "sub")
	e.refused("RENAME into itself", e.rename(e.dir, "dir", dir, "new").Status, nfs3.ErrInval)
	e.refused("RENAME into what is in it", e.rename(e.dir, "dir", sub, "new").Status, nfs3.ErrInval)
	e.refused("RENAME over what it is in", e.rename(dir, "sub", e.dir, "dir").Status, nfs3.ErrNotEmpty, nfs3.ErrExist, nfs3.ErrInval)
	e.handle(e.handle(e.dir, "dir"), "sub")
}

// A client that removes a file it has open renames it, continues to use it, and
// removes it later.
func testSillyRename(e *env) {
	file := e.create(e.dir, "file")
	e.write(file, 0, []byte("content"))
	e.ok("RENAME", e.rename(e.dir, "file", e.dir, ".nfs000000000000000100000001").Status)
	e.content(file, []byte("content"))
	e.write(file, 7, []byte(", more"))
	next := e.create(e.dir, "file")
	e.write(next, 0, []byte("next"))
	e.content(file, []byte("content, more"))
	e.content(next, []byte("next"))
	e.ok("REMOVE", e.remove(e.dir, ".nfs000000000000000100000001").Status)
	e.refused("READ", e.readRes(file, 0, 10).Status, stale...)
	e.content(next, []byte("next"))
}
