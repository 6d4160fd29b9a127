package nfstest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/podnas/podnas/nfs/nfs3"
)

var symlinkTests = []test{
	{"not followed", testSymlinkNotFollowed},
	{"out of the export", testSymlinkOut},
	{"put in a directory's place", testSymlinkSwap},
	{"long", testLongSymlink},
}

// throughLink makes every call that could follow a link: with the link as an
// object, as a directory, and by its name. None may reach the link's target.
func (e *env) throughLink(link nfs3.FH, name, inside string) {
	e.Helper()
	e.refused("LOOKUP through the link", e.lookup(link, inside).Status, nfs3.ErrNotDir)
	e.refused("READDIR of the link", e.readdir(nfs3.ReaddirArgs{Dir: link, Count: 8192}).Status, nfs3.ErrNotDir)
	e.refused("CREATE through the link", e.createRes(nfs3.CreateArgs{Where: *where(link, "new")}).Status, nfs3.ErrNotDir)
	e.refused("MKDIR through the link", e.mkdirRes(link, "new").Status, nfs3.ErrNotDir)
	e.refused("SYMLINK through the link", e.symlinkRes(link, "new", "to").Status, nfs3.ErrNotDir)
	e.refused("REMOVE through the link", e.remove(link, inside).Status, nfs3.ErrNotDir)
	e.refused("RMDIR through the link", e.rmdir(link, inside).Status, nfs3.ErrNotDir)
	e.refused("RENAME from the link", e.rename(link, inside, e.dir, "new").Status, nfs3.ErrNotDir)
	e.refused("RENAME to the link", e.rename(e.dir, name, link, "new").Status, nfs3.ErrNotDir, nfs3.ErrInval)
	e.refused("READ of the link", e.readRes(link, 0, 10).Status, nfs3.ErrInval)
	e.refused("WRITE of the link", e.writeRes(link, 0, nfs3.Unstable, []byte("bad")).Status, nfs3.ErrInval)
	e.refused("SETATTR of the link's size", e.setattr(link, size(0)), nfs3.ErrInval, nfs3.ErrNotSupp, nfs3.ErrAcces)
	e.refused("CREATE over the link", e.createRes(nfs3.CreateArgs{Where: *where(e.dir, name), Mode: nfs3.Unchecked, Attr: size(0)}).Status,
		nfs3.ErrExist, nfs3.ErrInval, nfs3.ErrIsDir)
	e.refused("MKDIR over the link", e.mkdirRes(e.dir, name).Status, nfs3.ErrExist)
	// A link's own mode can't be set, and its target's must not be.
	e.setattr(link, mode(0o604))
	e.checkType("link", link, nfs3.TypeLnk)
	e.access(link, nfs3.AccessRead)
	e.commit(link, 0, 0)
}

func testSymlinkNotFollowed(e *env) {
	dir, file := e.mkdir(e.dir, "dir"), e.create(e.dir, "file")
	e.create(dir, "inside")
	e.write(file, 0, []byte("content"))
	e.throughLink(e.symlink(e.dir, "to-dir", "dir"), "to-dir", "inside")
	e.throughLink(e.symlink(e.dir, "to-file", "file"), "to-file", "inside")
	e.throughLink(e.symlink(e.dir, "to-nothing", "nothing"), "to-nothing", "inside")
	e.throughLink(e.symlink(e.dir, "to-itself", "to-itself"), "to-itself", "inside")
	e.content(file, []byte("content"))
	if m := e.attr(file).Mode & nfs3.ModePerm; m != 0o644 {
		e.Errorf("the file's mode is %o", m)
	}
	e.sameNames("the directory", e.names(dir), []string{"inside"})
	e.gone(e.dir, "nothing")
}

// A broken server follows these links with root's rights, so they lead only to
// files of the test: never to "/".
func testSymlinkOut(e *env) {
	outside := e.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
		e.Fatal(err)
	}
	e.throughLink(e.symlink(e.dir, "to-dir", outside), "to-dir", "secret")
	e.throughLink(e.symlink(e.dir, "to-file", secret), "to-file", "secret")
	up := strings.Repeat("../", 40) + strings.TrimPrefix(outside, "/")
	e.throughLink(e.symlink(e.dir, "up", up), "up", "secret")
	e.throughLink(e.symlink(e.dir, "to-new", filepath.Join(outside, "new")), "to-new", "x")
	got, err := os.ReadFile(secret)
	if err != nil || string(got) != "secret" {
		e.Errorf("outside of the export: %q, %v", got, err)
	}
	entries, err := os.ReadDir(outside)
	if err != nil || len(entries) != 1 {
		e.Errorf("outside of the export: %v, %v", entries, err)
	}
	info, err := os.Stat(secret)
	if err != nil || info.Mode().Perm() != 0o644 {
		e.Errorf("outside of the export: %v, %v", info, err)
	}
}

// The handle of a directory leads to the directory, not to its old path: a link
// there is not followed.
func testSymlinkSwap(e *env) {
	outside := e.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "file"), []byte("outside"), 0o644); err != nil {
		e.Fatal(err)
	}
	dir := e.mkdir(e.dir, "dir")
	sub := e.mkdir(dir, "sub")
	file := e.create(sub, "file")
	e.write(file, 0, []byte("inside"))
	e.ok("RENAME", e.rename(dir, "sub", dir, "moved").Status)
	e.symlink(dir, "sub", outside)
	e.content(file, []byte("inside"))
	e.content(e.handle(sub, "file"), []byte("inside"))
	e.write(file, 0, []byte("INSIDE"))
	e.create(sub, "new")
	e.sameNames("the directory", e.names(sub), []string{"file", "new"})
	e.ok("REMOVE", e.remove(sub, "file").Status)
	entries, err := os.ReadDir(outside)
	if err != nil || len(entries) != 1 {
		e.Errorf("outside of the export: %v, %v", entries, err)
	}
	if got, err := os.ReadFile(filepath.Join(outside, "file")); err != nil || string(got) != "outside" {
		e.Errorf("outside of the export: %q, %v", got, err)
	}
}

func testLongSymlink(e *env) {
	for _, n := range []int{255, 256, 1000, 1023} {
		target := strings.Repeat("long/", n)[:n]
		res := e.readlink(e.symlink(e.dir, fmt.Sprint("link", n), target))
		e.ok("READLINK", res.Status)
		if string(res.Path) != target {
			e.Errorf("%d bytes came back of %d", len(res.Path), n)
		}
	}
}
