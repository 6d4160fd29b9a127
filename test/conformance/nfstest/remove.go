package nfstest

import (
	"bytes"

	"github.com/podnas/podnas/nfs/nfs3"
)

var removeTests = []test{
	{"REMOVE", testRemove},
	{"RMDIR", testRmdir},
	{"by type", testRemoveByType},
	{"LINK", testLink},
	{"LINK refused", testLinkRefused},
	{"LINK as another user", testLinkOfAnother},
}

func testRemove(e *env) {
	e.create(e.dir, "file")
	e.ok("REMOVE", e.remove(e.dir, "file").Status)
	e.gone(e.dir, "file")
	e.refused("REMOVE again", e.remove(e.dir, "file").Status, nfs3.ErrNoEnt)
	target := e.create(e.dir, "target")
	e.symlink(e.dir, "link", "target")
	e.ok("REMOVE of a symbolic link", e.remove(e.dir, "link").Status)
	e.gone(e.dir, "link")
	e.attr(target)
}

func testRmdir(e *env) {
	dir := e.mkdir(e.dir, "dir")
	e.create(dir, "file")
	e.refused("RMDIR of a full directory", e.rmdir(e.dir, "dir").Status, nfs3.ErrNotEmpty, nfs3.ErrExist)
	e.handle(dir, "file")
	e.ok("REMOVE", e.remove(dir, "file").Status)
	e.ok("RMDIR", e.rmdir(e.dir, "dir").Status)
	e.gone(e.dir, "dir")
	e.refused("RMDIR again", e.rmdir(e.dir, "dir").Status, nfs3.ErrNoEnt)
}

func testRemoveByType(e *env) {
	e.need(FeatureRemoveByType)
	e.mkdir(e.dir, "dir")
	e.create(e.dir, "file")
	e.symlink(e.dir, "link", "dir")
	e.refused("REMOVE of a directory", e.remove(e.dir, "dir").Status, nfs3.ErrIsDir, nfs3.ErrPerm, nfs3.ErrInval)
	e.refused("RMDIR of a file", e.rmdir(e.dir, "file").Status, nfs3.ErrNotDir)
	e.refused("RMDIR of a symbolic link to a directory", e.rmdir(e.dir, "link").Status, nfs3.ErrNotDir)
	for _, name := range []string{"dir", "file", "link"} {
		e.handle(e.dir, name)
	}
}

func testLink(e *env) {
	e.need(FeatureLink)
	dir := e.mkdir(e.dir, "dir")
	file := e.create(e.dir, "file")
	e.write(file, 0, []byte("content"))
	res := e.link(file, dir, "link")
	e.ok("LINK", res.Status)
	attr := e.attr(file)
	if attr.Nlink != 2 {
		e.Errorf("%d links, want 2", attr.Nlink)
	}
	if res.Attr.Present && res.Attr.Attr != attr {
		e.Errorf("LINK's attributes %+v, want %+v", res.Attr.Attr, attr)
	}
	linked := e.handle(dir, "link")
	if e.attr(linked).FileID != attr.FileID {
		e.Error("the link is another file")
	}
	if !bytes.Equal(linked, file) {
		e.Errorf("the link's handle is %x, the file's %x", linked, file)
	}
	e.ok("REMOVE", e.remove(e.dir, "file").Status)
	e.content(file, []byte("content"))
	if got := e.attr(file).Nlink; got != 1 {
		e.Errorf("%d links, want 1", got)
	}
	e.ok("REMOVE", e.remove(dir, "link").Status)
	e.refused("GETATTR without links", e.getattr(file).Status, stale...)
}

func testLinkRefused(e *env) {
	e.need(FeatureLink)
	file, other := e.create(e.dir, "file"), e.create(e.dir, "other")
	dir := e.mkdir(e.dir, "dir")
	e.refused("LINK over a file", e.link(file, e.dir, "other").Status, nfs3.ErrExist)
	e.refused("LINK over itself", e.link(file, e.dir, "file").Status, nfs3.ErrExist)
	e.refused("LINK over a directory", e.link(file, e.dir, "dir").Status, nfs3.ErrExist)
	e.refused("LINK in a file", e.link(file, other, "new").Status, nfs3.ErrNotDir)
	e.refused("LINK of a directory", e.link(dir, e.dir, "new").Status, nfs3.ErrIsDir, nfs3.ErrPerm, nfs3.ErrInval)
	e.refused("LINK of garbage", e.link(pattern(1, 16), e.dir, "new").Status, stale...)
	e.refused("LINK in garbage", e.link(file, pattern(1, 16), "new").Status, stale...)
	e.gone(e.dir, "new")
}

// Section 3.3.15 asks for the rights to the directory, and for none to the file: fs.protected_hardlinks of the server's
// kernel is for its own users.
func testLinkOfAnother(e *env) {
	e.need(FeatureLink)
	e.need(FeatureIdentity)
	open, closed, unseen := e.mkdir(e.dir, "open"), e.mkdir(e.dir, "closed"), e.mkdir(e.dir, "unseen")
	e.setMode(open, 0o777)
	e.setMode(unseen, 0o776)
	file := e.create(e.dir, "file")
	e.setMode(file, 0o600)
	other := e.as(alice, alice)
	for name, fh := range map[string]nfs3.FH{"of a file": file, "of a symbolic link": e.symlink(e.dir, "symlink", "to")} {
		e.ok("LINK "+name, other.link(fh, open, name).Status)
		if attr := e.attr(fh); attr.Nlink != 2 || attr.UID != 0 {
			e.Errorf("%s: %d links, owner %d", name, attr.Nlink, attr.UID)
		}
		e.refused("LINK over a name", other.link(fh, open, name).Status, nfs3.ErrExist)
		e.refused("LINK without the right to write", other.link(fh, closed, "new").Status, nfs3.ErrAcces)
		e.refused("LINK without the right to search", other.link(fh, unseen, "new").Status, nfs3.ErrAcces)
	}
	e.refused("READ", other.readRes(file, 0, 1).Status, nfs3.ErrAcces)
	e.sameNames("of root", e.names(closed), nil)
}
