package nfstest

import (
	"os"
	"syscall"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
)

var attrTests = []test{
	{"GETATTR", testGetattr},
	{"GETATTR as the disk has it", testGetattrDisk},
	{"mode", testSetMode},
	{"setuid setgid sticky", testModeBits},
	{"owner", testSetOwner},
	{"size", testSetSize},
	{"size of what has none", testSetSizeNotFile},
	{"size past the largest", testSetSizeLargest},
	{"mtime", testSetMtime},
	{"server's time", testSetServerTime},
	{"atime mtime ctime", testThreeTimes},
	{"more nanoseconds than a second has", testBadNanoseconds},
	{"changes show", testChangesShow},
	{"guard", testGuard},
	{"space used", testSpaceUsed},
	{"wcc data", testWcc},
}

func (e *env) checkType(name string, fh nfs3.FH, want nfs3.FType) nfs3.Fattr {
	e.Helper()
	attr := e.attr(fh)
	if attr.Type != want {
		e.Errorf("%s: type %d, want %d", name, attr.Type, want)
	}
	return attr
}

func testGetattr(e *env) {
	file := e.create(e.dir, "file")
	e.write(file, 0, make([]byte, 1234))
	root := e.checkType("root", e.root, nfs3.TypeDir)
	dir := e.checkType("directory", e.dir, nfs3.TypeDir)
	attr := e.checkType("file", file, nfs3.TypeReg)
	link := e.checkType("symbolic link", e.symlink(e.dir, "link", "to/where"), nfs3.TypeLnk)

	if attr.Size != 1234 || attr.Nlink != 1 || attr.Mode&nfs3.ModePerm != 0o644 {
		e.Errorf("file: %+v", attr)
	}
	if link.Size != uint64(len("to/where")) {
		e.Errorf("symbolic link: size %d", link.Size)
	}
	ids := map[uint64]bool{root.FileID: true, dir.FileID: true, attr.FileID: true, link.FileID: true}
	if len(ids) != 4 {
		e.Errorf("file ids are not distinct: %d, %d, %d, %d", root.FileID, dir.FileID, attr.FileID, link.FileID)
	}
	if root.FSID != attr.FSID || dir.FSID != attr.FSID || link.FSID != attr.FSID {
		e.Error("one export, but not one fsid")
	}
	for _, t := range []nfs3.Time{attr.Atime, attr.Mtime, attr.Ctime} {
		if d := time.Since(unix(t)); d < -time.Minute || d > 10*time.Minute || t.Nsec >= 1e9 {
			e.Errorf("a new file's time is %v", t)
		}
	}
	if again := e.attr(file); again != attr {
		e.Errorf("GETATTR gave %+v, then %+v", attr, again)
	}
}

func unix(t nfs3.Time) time.Time {
	return time.Unix(int64(t.Sec), int64(t.Nsec))
}

func testGetattrDisk(e *env) {
	e.needDisk()
	file := e.create(e.dir, "file")
	e.write(file, 0, make([]byte, 4321))
	info, err := os.Lstat(e.path("file"))
	if err != nil {
		e.Fatal(err)
	}
	attr := e.attr(file)
	if attr.Size != uint64(info.Size()) || unix(attr.Mtime) != info.ModTime() || attr.Mode&nfs3.ModePerm != uint32(info.Mode().Perm()) {
		e.Errorf("%+v; on the disk size %d, mtime %v, mode %v", attr, info.Size(), info.ModTime(), info.Mode())
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		// On an overlay a file and a directory may have one number; podnas marks the file's by its highest bit.
		if attr.FileID<<1 != sys.Ino<<1 || attr.UID != sys.Uid || attr.GID != sys.Gid || uint64(attr.Nlink) != uint64(sys.Nlink) { //nolint:unconvert // 32 bits on arm64
			e.Errorf("%+v; on the disk %+v", attr, sys)
		}
	}
	e.need(FeatureDiskChanges)
	if err := os.Truncate(e.path("file"), 10); err != nil {
		e.Fatal(err)
	}
	if attr := e.attr(file); attr.Size != 10 {
		e.Errorf("size %d after a truncation on the disk, want 10", attr.Size)
	}
}

func testSetMode(e *env) {
	for name, fh := range map[string]nfs3.FH{"file": e.create(e.dir, "file"), "directory": e.mkdir(e.dir, "dir")} {
		for _, m := range []uint32{0o600, 0o777, 0o000, 0o421, 0o755} {
			e.ok("SETATTR", e.setattr(fh, mode(m)))
			if got := e.attr(fh).Mode & nfs3.ModePerm; got != m {
				e.Errorf("%s: mode %o, want %o", name, got, m)
			}
		}
	}
}

func testModeBits(e *env) {
	e.need(FeatureModeBits)
	file, dir := e.create(e.dir, "file"), e.mkdir(e.dir, "dir")
	for _, m := range []uint32{0o4755, 0o2755, 0o6711, 0o755} {
		e.ok("SETATTR", e.setattr(file, mode(m)))
		if got := e.attr(file).Mode; got != m {
			e.Errorf("file: mode %o, want %o", got, m)
		}
	}
	for _, m := range []uint32{0o1777, 0o2775, 0o3777, 0o755} {
		e.ok("SETATTR", e.setattr(dir, mode(m)))
		if got := e.attr(dir).Mode; got != m {
			e.Errorf("directory: mode %o, want %o", got, m)
		}
	}
	link := e.symlink(e.dir, "link", "to")
	if got := e.attr(link).Mode; got&^0o7777 != 0 {
		e.Errorf("symbolic link: mode %o", got)
	}
}

func testSetOwner(e *env) {
	e.need(FeatureChown)
	for name, fh := range map[string]nfs3.FH{
		"file": e.create(e.dir, "file"), "directory": e.mkdir(e.dir, "dir"), "symbolic link": e.symlink(e.dir, "link", "file"),
	} {
		for _, tt := range []struct {
			set      nfs3.Sattr
			uid, gid uint32
		}{
			{nfs3.Sattr{UID: nfs3.SetUint32{Set: true, Value: 1000}}, 1000, 0},
			{nfs3.Sattr{GID: nfs3.SetUint32{Set: true, Value: 100}}, 1000, 100},
			{nfs3.Sattr{UID: nfs3.SetUint32{Set: true, Value: 1001}, GID: nfs3.SetUint32{Set: true, Value: 101}}, 1001, 101},
			{nfs3.Sattr{UID: nfs3.SetUint32{Set: true}, GID: nfs3.SetUint32{Set: true}}, 0, 0},
		} {
			e.ok("SETATTR of a "+name, e.setattr(fh, tt.set))
			if attr := e.attr(fh); attr.UID != tt.uid || attr.GID != tt.gid {
				e.Errorf("%s: owner %d:%d, want %d:%d", name, attr.UID, attr.GID, tt.uid, tt.gid)
			}
		}
	}
}

func testSetSize(e *env) {
	file := e.create(e.dir, "file")
	e.write(file, 0, pattern(1, 10_000))
	want := pattern(1, 10_000)
	for _, n := range []int{5001, 5000, 12_345, 12_345, 0, 3} {
		e.ok("SETATTR", e.setattr(file, size(uint64(n))))
		if n <= len(want) {
			want = want[:n]
		} else {
			want = append(want[:len(want):len(want)], make([]byte, n-len(want))...)
		}
		e.content(file, want)
	}
	const large = 5<<30 + 7
	e.ok("SETATTR to 5 GiB", e.setattr(file, size(large)))
	if got := e.attr(file).Size; got != large {
		e.Errorf("size %d, want %d", got, uint64(large))
	}
	res := e.readRes(file, large-1, 10)
	if res.Status != nfs3.OK || !res.EOF || string(res.Data) != "\x00" {
		e.Errorf("READ of the last byte: %v, eof %v, %q", res.Status, res.EOF, res.Data)
	}
}

func testSetSizeNotFile(e *env) {
	e.need(FeatureErrorCodes)
	e.refused("SETATTR of a directory's size", e.setattr(e.mkdir(e.dir, "dir"), size(0)), nfs3.ErrIsDir, nfs3.ErrInval)
	// NOTSUPP, knfsd's INVAL: no status is wrong.
	link := e.symlink(e.dir, "link", "file")
	e.refused("SETATTR of a symbolic link's size", e.setattr(link, size(0)), nfs3.ErrInval, nfs3.ErrNotSupp, nfs3.ErrAcces)
}

func testSetSizeLargest(e *env) {
	file := e.create(e.dir, "file")
	e.write(file, 0, []byte("content"))
	e.refused("SETATTR of a size of 2^63", e.setattr(file, size(1<<63)), nfs3.ErrFBig, nfs3.ErrInval)
	e.refused("SETATTR of a size of 2^64-1", e.setattr(file, size(1<<64-1)), nfs3.ErrFBig, nfs3.ErrInval)
	e.content(file, []byte("content"))
}

func clientTime(t nfs3.Time) nfs3.SetTime {
	return nfs3.SetTime{How: nfs3.SetToClientTime, Time: t}
}

func testSetMtime(e *env) {
	e.need(FeatureNanoseconds)
	for name, fh := range map[string]nfs3.FH{"file": e.create(e.dir, "file"), "directory": e.mkdir(e.dir, "dir")} {
		for _, want := range []nfs3.Time{{Sec: 1_000_000_000, Nsec: 123_456_789}, {Sec: 0, Nsec: 0}, {Sec: 1<<31 - 1, Nsec: 999_999_999}} {
			e.ok("SETATTR", e.setattr(fh, nfs3.Sattr{Atime: clientTime(want), Mtime: clientTime(want)}))
			if got := e.attr(fh).Mtime; got != want {
				e.Errorf("%s: mtime %v, want %v", name, got, want)
			}
		}
	}
}

func testSetServerTime(e *env) {
	file := e.create(e.dir, "file")
	old := nfs3.Time{Sec: 1_000_000_000}
	e.ok("SETATTR", e.setattr(file, nfs3.Sattr{Atime: clientTime(old), Mtime: clientTime(old)}))
	now := nfs3.SetTime{How: nfs3.SetToServerTime}
	e.ok("SETATTR", e.setattr(file, nfs3.Sattr{Atime: now, Mtime: now}))
	if got := unix(e.attr(file).Mtime); time.Since(got).Abs() > time.Minute {
		e.Errorf("mtime %v, it is %v", got, time.Now())
	}
}

// Section 2.5: nanoseconds are 0 to 999,999,999.
func testBadNanoseconds(e *env) {
	e.need(FeatureErrorCodes)
	file := e.create(e.dir, "file")
	before := e.attr(file)
	bad := clientTime(nfs3.Time{Sec: 5, Nsec: 1_000_000_000})
	for what, attr := range map[string]nfs3.Sattr{"atime": {Atime: bad}, "mtime": {Mtime: bad}} {
		e.refused("SETATTR of the "+what, e.setattr(file, attr), nfs3.ErrInval)
		e.refused("CREATE with the "+what, e.createRes(nfs3.CreateArgs{Where: *where(e.dir, "new"), Mode: nfs3.Guarded, Attr: attr}).Status, nfs3.ErrInval)
		e.gone(e.dir, "new")
	}
	if after := e.attr(file); after.Mtime != before.Mtime || after.Atime != before.Atime {
		e.Errorf("the times are %v and %v, and were %v and %v", after.Atime, after.Mtime, before.Atime, before.Mtime)
	}
}

func testThreeTimes(e *env) {
	e.need(FeatureNanoseconds)
	e.need(FeatureTimes)
	file := e.create(e.dir, "file")
	before := e.attr(file)
	atime, mtime := nfs3.Time{Sec: 1_000_000_000, Nsec: 1}, nfs3.Time{Sec: 1_100_000_000, Nsec: 2}
	e.ok("SETATTR", e.setattr(file, nfs3.Sattr{Atime: clientTime(atime)}))
	if attr := e.attr(file); attr.Atime != atime || attr.Mtime != before.Mtime {
		e.Errorf("after setting the atime: %+v, before %+v", attr, before)
	}
	e.ok("SETATTR", e.setattr(file, nfs3.Sattr{Mtime: clientTime(mtime)}))
	attr := e.attr(file)
	if attr.Atime != atime || attr.Mtime != mtime {
		e.Errorf("after setting the mtime: %+v", attr)
	}
	// Only the server sets the ctime.
	if time.Since(unix(attr.Ctime)).Abs() > time.Minute || unix(attr.Ctime).Before(unix(before.Ctime)) {
		e.Errorf("ctime %v, before %v", unix(attr.Ctime), unix(before.Ctime))
	}
	tick()
	e.ok("SETATTR", e.setattr(file, mode(0o600)))
	if after := e.attr(file); after.Ctime == attr.Ctime || after.Mtime != mtime || after.Atime != atime {
		e.Errorf("after a change of the mode: %+v, before %+v", after, attr)
	}
}

// tick waits until the file system's clock has advanced.
func tick() {
	time.Sleep(20 * time.Millisecond)
}

// A client sees by the mtime that another changed something.
func testChangesShow(e *env) {
	e.need(FeatureNanoseconds)
	dir := e.mkdir(e.dir, "dir")
	file := e.create(dir, "file")
	for _, tt := range []struct {
		name   string
		of     nfs3.FH
		change func()
	}{
		{"WRITE", file, func() { e.write(file, 0, []byte("x")) }},
		{"WRITE of the same", file, func() { e.write(file, 0, []byte("x")) }},
		{"SETATTR of the size", file, func() { e.ok("SETATTR", e.setattr(file, size(100))) }},
		{"CREATE", dir, func() { e.create(dir, "new") }},
		{"RENAME", dir, func() { e.ok("RENAME", e.rename(dir, "new", dir, "newer").Status) }},
		{"REMOVE", dir, func() { e.ok("REMOVE", e.remove(dir, "newer").Status) }},
		{"MKDIR", dir, func() { e.mkdir(dir, "sub") }},
		{"RMDIR", dir, func() { e.ok("RMDIR", e.rmdir(dir, "sub").Status) }},
		{"SYMLINK", dir, func() { e.symlink(dir, "link", "to") }},
	} {
		before := e.attr(tt.of)
		tick()
		tt.change()
		if after := e.attr(tt.of); after.Mtime == before.Mtime || after.Ctime == before.Ctime {
			e.Errorf("%s: mtime %v, ctime %v as before", tt.name, after.Mtime, after.Ctime)
		}
	}
}

func testGuard(e *env) {
	e.need(FeatureGuard)
	file := e.create(e.dir, "file")
	ctime := e.attr(file).Ctime
	wrong := nfs3.Time{Sec: ctime.Sec, Nsec: (ctime.Nsec + 1) % 1e9}
	res := e.setattrRes(nfs3.SetattrArgs{Object: file, Attr: mode(0o600), Guarded: true, Guard: wrong})
	e.refused("SETATTR with another ctime", res.Status, nfs3.ErrNotSync)
	if got := e.attr(file).Mode & nfs3.ModePerm; got != 0o644 {
		e.Errorf("mode %o, it should be 644 still", got)
	}
	res = e.setattrRes(nfs3.SetattrArgs{Object: file, Attr: mode(0o600), Guarded: true, Guard: ctime})
	e.ok("SETATTR with the ctime", res.Status)
	if got := e.attr(file).Mode & nfs3.ModePerm; got != 0o600 {
		e.Errorf("mode %o, want 600", got)
	}
}

func testSpaceUsed(e *env) {
	e.need(FeatureSpaceUsed)
	sparse, full := e.create(e.dir, "sparse"), e.create(e.dir, "full")
	e.ok("SETATTR", e.setattr(sparse, size(1<<30)))
	e.write(full, 0, pattern(1, 1<<20))
	e.ok("COMMIT", e.commit(full, 0, 0).Status)
	if used := e.attr(sparse).Used; used > 1<<20 {
		e.Errorf("a hole of 1 GiB uses %d bytes", used)
	}
	if used := e.attr(full).Used; used < 1<<20 {
		e.Errorf("a file of 1 MiB uses %d bytes", used)
	}
}

// Every change returns the attributes before and after it, so that a client can
// keep its cache.
func testWcc(e *env) {
	e.need(FeatureWcc)
	dir, other := e.mkdir(e.dir, "dir"), e.mkdir(e.dir, "other")
	file := e.create(dir, "file")
	check := func(name string, of nfs3.FH, call func() (nfs3.Status, nfs3.WccData)) {
		e.Helper()
		before := e.attr(of)
		tick()
		status, wcc := call()
		after := e.attr(of)
		e.ok(name, status)
		if want := (nfs3.PreOpAttr{Present: true, Size: before.Size, Mtime: before.Mtime, Ctime: before.Ctime}); wcc.Before != want {
			e.Errorf("%s: before %+v, want %+v", name, wcc.Before, want)
		}
		if want := (nfs3.PostOpAttr{Present: true, Attr: after}); wcc.After != want {
			e.Errorf("%s: after %+v, want %+v", name, wcc.After, want)
		}
	}
	check("WRITE", file, func() (nfs3.Status, nfs3.WccData) {
		r := e.writeRes(file, 0, nfs3.FileSync, []byte("x"))
		return r.Status, r.Wcc
	})
	check("COMMIT", file, func() (nfs3.Status, nfs3.WccData) {
		r := e.commit(file, 0, 0)
		return r.Status, r.Wcc
	})
	check("SETATTR", file, func() (nfs3.Status, nfs3.WccData) {
		r := e.setattrRes(nfs3.SetattrArgs{Object: file, Attr: mode(0o600)})
		return r.Status, r.Wcc
	})
	check("CREATE", dir, func() (nfs3.Status, nfs3.WccData) {
		r := e.createRes(nfs3.CreateArgs{Where: *where(dir, "new"), Mode: nfs3.Guarded})
		return r.Status, r.DirWcc
	})
	check("MKDIR", dir, func() (nfs3.Status, nfs3.WccData) {
		r := e.mkdirRes(dir, "sub")
		return r.Status, r.DirWcc
	})
	check("SYMLINK", dir, func() (nfs3.Status, nfs3.WccData) {
		r := e.symlinkRes(dir, "link", "to")
		return r.Status, r.DirWcc
	})
	check("RENAME from", dir, func() (nfs3.Status, nfs3.WccData) {
		r := e.rename(dir, "new", other, "new")
		return r.Status, r.FromWcc
	})
	check("RENAME to", dir, func() (nfs3.Status, nfs3.WccData) {
		r := e.rename(other, "new", dir, "new")
		return r.Status, r.ToWcc
	})
	check("REMOVE", dir, func() (nfs3.Status, nfs3.WccData) {
		r := e.remove(dir, "new")
		return r.Status, r.Wcc
	})
	check("RMDIR", dir, func() (nfs3.Status, nfs3.WccData) {
		r := e.rmdir(dir, "sub")
		return r.Status, r.Wcc
	})
}
