package nfstest

import (
	"bytes"
	"fmt"
	"os"
	"slices"

	"github.com/podnas/podnas/nfs/nfs3"
)

var handleTests = []test{
	{"garbage", testGarbageHandles},
	{"garbage in every procedure", testGarbageHandleEverywhere},
	{"forged", testForgedHandles},
	{"stable", testStableHandles},
	{"removed", testRemovedHandles},
	{"removed and made again", testReusedInodes},
	{"after a rename", testHandlesAfterRename},
	{"after a restart", testHandlesAfterRestart},
	{"many", testManyHandles},
}

// stale are the valid statuses for a handle that is invalid, or no longer valid.
var stale = []nfs3.Status{nfs3.ErrStale, nfs3.ErrBadHandle}

func testGarbageHandles(e *env) {
	for _, fh := range []nfs3.FH{
		{},
		{0},
		make(nfs3.FH, 4),
		make(nfs3.FH, 16),
		make(nfs3.FH, nfs3.FHSize),
		pattern(1, 8),
		pattern(2, 16),
		pattern(3, 28),
		pattern(4, 32),
		pattern(5, 36),
		pattern(6, nfs3.FHSize),
		bytes.Repeat([]byte{0xff}, 16),
		bytes.Repeat([]byte{0xff}, nfs3.FHSize),
		e.root[:len(e.root)-1],
		e.root[:len(e.root)/2],
	} {
		e.refused(fmt.Sprintf("GETATTR of %x", fh), e.getattr(fh).Status, stale...)
	}
	e.attr(e.dir)
}

// statusOf calls each procedure with a handle and returns the statuses.
func (e *env) statusOf(fh nfs3.FH) map[string]nfs3.Status {
	return map[string]nfs3.Status{
		"GETATTR":     e.getattr(fh).Status,
		"SETATTR":     e.setattr(fh, mode(0o600)),
		"LOOKUP":      e.lookup(fh, "name").Status,
		"ACCESS":      e.access(fh, nfs3.AccessRead).Status,
		"READLINK":    e.readlink(fh).Status,
		"READ":        e.readRes(fh, 0, 1).Status,
		"WRITE":       e.writeRes(fh, 0, nfs3.FileSync, []byte("x")).Status,
		"CREATE":      e.createRes(nfs3.CreateArgs{Where: *where(fh, "name")}).Status,
		"MKDIR":       e.mkdirRes(fh, "name").Status,
		"SYMLINK":     e.symlinkRes(fh, "name", "to").Status,
		"REMOVE":      e.remove(fh, "name").Status,
		"RMDIR":       e.rmdir(fh, "name").Status,
		"RENAME from": e.rename(fh, "name", e.dir, "to").Status,
		"RENAME to":   e.rename(e.dir, "exists", fh, "to").Status,
		"READDIR":     e.readdir(nfs3.ReaddirArgs{Dir: fh, Count: 8192}).Status,
		"READDIRPLUS": e.readdirplus(nfs3.ReaddirplusArgs{Dir: fh, DirCount: 8192, MaxCount: 8192}).Status,
		"FSSTAT":      e.fsstat(fh).Status,
		"FSINFO":      e.fsinfo(fh).Status,
		"PATHCONF":    e.pathconf(fh).Status,
		"COMMIT":      e.commit(fh, 0, 0).Status,
	}
}

func testGarbageHandleEverywhere(e *env) {
	e.create(e.dir, "exists")
	for name, status := range e.statusOf(pattern(7, 16)) {
		e.refused(name, status, stale...)
	}
	e.handle(e.dir, "exists")
}

// A handle with a byte changed, added or left out is refused.
func testForgedHandles(e *env) {
	e.need(FeatureHandleProof)
	for _, fh := range []nfs3.FH{e.root, e.create(e.dir, "file")} {
		for i := range fh {
			forged := slices.Clone(fh)
			forged[i] ^= 0x01
			e.refused(fmt.Sprintf("GETATTR with byte %d changed", i), e.getattr(forged).Status, stale...)
		}
		for n := range len(fh) {
			e.refused(fmt.Sprintf("GETATTR with %d bytes", n), e.getattr(fh[:n]).Status, stale...)
		}
		if len(fh) < nfs3.FHSize {
			longer := append(slices.Clone(fh), 0)
			e.refused("GETATTR with a byte more", e.getattr(longer).Status, stale...)
		}
	}
}

// All ways to get a file's handle give the same one.
func testStableHandles(e *env) {
	file := e.create(e.dir, "file")
	for range 3 {
		if got := e.handle(e.dir, "file"); !bytes.Equal(got, file) {
			e.Errorf("LOOKUP gave %x, CREATE %x", got, file)
		}
	}
	other := e.dial()
	defer other.Close()
	res, err := other.Lookup(e.Context(), e.dir, "file")
	e.answered("LOOKUP", err)
	if !bytes.Equal(res.Object, file) {
		e.Errorf("another client got %x, want %x", res.Object, file)
	}
	for _, entry := range e.readdirplus(nfs3.ReaddirplusArgs{Dir: e.dir, DirCount: 8192, MaxCount: 8192}).Entries {
		if string(entry.Name) == "file" && entry.Object != nil && !bytes.Equal(entry.Object, file) {
			e.Errorf("READDIRPLUS gave %x, want %x", entry.Object, file)
		}
	}
}

func testRemovedHandles(e *env) {
	file := e.create(e.dir, "file")
	e.create(e.dir, "exists")
	e.write(file, 0, []byte("content"))
	e.ok("REMOVE", e.remove(e.dir, "file").Status)
	dir := e.mkdir(e.dir, "dir")
	e.ok("RMDIR", e.rmdir(e.dir, "dir").Status)
	link := e.symlink(e.dir, "link", "to")
	e.ok("REMOVE", e.remove(e.dir, "link").Status)

	e.refused("READLINK of a removed link", e.readlink(link).Status, stale...)
	for name, status := range e.statusOf(dir) {
		e.refused(name+" of a removed directory", status, stale...)
	}
	for name, status := range map[string]nfs3.Status{
		"GETATTR": e.getattr(file).Status,
		"SETATTR": e.setattr(file, size(0)),
		"READ":    e.readRes(file, 0, 10).Status,
		"WRITE":   e.writeRes(file, 0, nfs3.Unstable, []byte("x")).Status,
		"ACCESS":  e.access(file, nfs3.AccessRead).Status,
		"COMMIT":  e.commit(file, 0, 0).Status,
	} {
		e.refused(name+" of a removed file", status, stale...)
	}
}

// A removed file's handle is not that of the next file, which has the same name,
// and often the same inode number.
func testReusedInodes(e *env) {
	var old []nfs3.FH
	for i := range 50 {
		fh := e.create(e.dir, "file")
		e.write(fh, 0, fmt.Append(nil, i))
		if slices.ContainsFunc(old, func(o nfs3.FH) bool { return bytes.Equal(o, fh) }) {
			e.Fatalf("file %d has the handle of one that was removed", i)
		}
		e.ok("REMOVE", e.remove(e.dir, "file").Status)
		old = append(old, fh)
	}
	last := e.create(e.dir, "file")
	e.write(last, 0, []byte("last"))
	for i, fh := range old {
		e.refused(fmt.Sprintf("READ of removed file %d", i), e.readRes(fh, 0, 10).Status, stale...)
		e.refused(fmt.Sprintf("WRITE of removed file %d", i), e.writeRes(fh, 0, nfs3.Unstable, []byte("bad")).Status, stale...)
	}
	e.content(last, []byte("last"))
}

func testHandlesAfterRename(e *env) {
	a, b := e.mkdir(e.dir, "a"), e.mkdir(e.dir, "b")
	file := e.create(a, "file")
	e.write(file, 0, []byte("content"))
	e.ok("RENAME", e.rename(a, "file", b, "moved").Status)
	e.content(file, []byte("content"))
	if got := e.handle(b, "moved"); !bytes.Equal(got, file) {
		e.Errorf("the handle is %x, was %x", got, file)
	}
	e.gone(a, "file")

	// A directory with files two levels down.
	sub := e.mkdir(b, "sub")
	deep := e.create(sub, "deep")
	e.write(deep, 0, []byte("deep"))
	e.ok("RENAME of a directory", e.rename(e.dir, "b", a, "c").Status)
	e.content(deep, []byte("deep"))
	e.content(file, []byte("content"))
	if got := e.handle(sub, "deep"); !bytes.Equal(got, deep) {
		e.Errorf("the handle is %x, was %x", got, deep)
	}
	e.create(b, "new")
	e.handle(e.handle(a, "c"), "new")
	e.gone(e.dir, "b")
}

func testHandlesAfterRestart(e *env) {
	e.needRestart()
	sub := e.mkdir(e.dir, "sub")
	file := e.create(sub, "file")
	e.write(file, 0, []byte("content"))
	e.ok("COMMIT", e.commit(file, 0, 0).Status)
	moved := e.create(e.dir, "moving")
	e.ok("RENAME", e.rename(e.dir, "moving", sub, "moved").Status)
	removed := e.create(e.dir, "removed")
	e.ok("REMOVE", e.remove(e.dir, "removed").Status)
	root := e.root

	for range 2 {
		e.target.Restart(e.T)
		e.connect()
		if !bytes.Equal(e.root, root) {
			e.Errorf("the root's handle is %x, was %x", e.root, root)
		}
		e.content(file, []byte("content"))
		e.attr(moved)
		e.refused("GETATTR of a file removed before the restart", e.getattr(removed).Status, stale...)
		if got := e.handle(sub, "file"); !bytes.Equal(got, file) {
			e.Errorf("the handle is %x, was %x", got, file)
		}
	}
	e.ok("RENAME after the restart", e.rename(e.dir, "sub", e.dir, "sub2").Status)
	e.content(file, []byte("content"))
	e.ok("REMOVE after the restart", e.remove(sub, "file").Status)
	e.refused("GETATTR of a file removed after the restart", e.getattr(file).Status, stale...)
}

// A handle stays valid among many others: among 3,000 where CI is set.
func testManyHandles(e *env) {
	n := 500
	if os.Getenv("CI") != "" {
		n = 3000
	}
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	seen := make(map[uint64]int)
	for i, fh := range e.createAll(e.dir, names) {
		id := e.attr(fh).FileID
		if first, ok := seen[id]; ok {
			e.Fatalf("files %d and %d both have the id %d", first, i, id)
		}
		seen[id] = i
	}
}
