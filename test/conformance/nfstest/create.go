package nfstest

import (
	"fmt"
	"strings"

	"github.com/podnas/podnas/nfs/nfs3"
)

var createTests = []test{
	{"unchecked", testCreateUnchecked},
	{"guarded", testCreateGuarded},
	{"exclusive", testCreateExclusive},
	{"attributes", testCreateAttributes},
	{"MKDIR", testMkdir},
	{"SYMLINK", testSymlink},
	{"MKNOD", testMknod},
	{"in what is no directory", testCreateNotDir},
	{"owner that may not be set", testCreateOwner},
	{"setuid and setgid", testCreateBits},
}

// CREATE UNCHECKED of an existing file changes only the given attributes. Clients
// send it for open(O_CREAT).
func testCreateUnchecked(e *env) {
	args := nfs3.CreateArgs{Where: *where(e.dir, "file"), Mode: nfs3.Unchecked, Attr: mode(0o640)}
	res := e.createRes(args)
	e.ok("CREATE", res.Status)
	file := e.made(e.dir, "file", res)
	e.write(file, 0, []byte("content"))
	before := e.attr(file)

	args.Attr = nfs3.Sattr{}
	res = e.createRes(args)
	e.ok("CREATE again", res.Status)
	if got := e.attr(e.made(e.dir, "file", res)); got.FileID != before.FileID || got.Mode != before.Mode {
		e.Errorf("CREATE again: %+v, was %+v", got, before)
	}
	e.content(file, []byte("content"))

	args.Attr = size(0)
	e.ok("CREATE with size 0", e.createRes(args).Status)
	e.content(file, nil)

	e.mkdir(e.dir, "dir")
	res = e.createRes(nfs3.CreateArgs{Where: *where(e.dir, "dir"), Mode: nfs3.Unchecked})
	e.refused("CREATE over a directory", res.Status, nfs3.ErrExist, nfs3.ErrIsDir)
}

func testCreateGuarded(e *env) {
	file := e.create(e.dir, "file")
	e.write(file, 0, []byte("content"))
	e.mkdir(e.dir, "dir")
	e.symlink(e.dir, "link", "nowhere")
	for _, name := range []string{"file", "dir", "link"} {
		res := e.createRes(nfs3.CreateArgs{Where: *where(e.dir, name), Mode: nfs3.Guarded, Attr: size(0)})
		e.refused("CREATE of "+name, res.Status, nfs3.ErrExist)
	}
	e.content(file, []byte("content"))
	e.gone(e.dir, "nowhere")
}

// CREATE EXCLUSIVE can be repeated by the client that made the file, and no other.
func testCreateExclusive(e *env) {
	e.need(FeatureExclusiveCreate)
	for _, verf := range [][nfs3.CreateVerfSize]byte{
		{1, 2, 3, 4, 5, 6, 7, 8},
		{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		{},
		{0x80, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff},
	} {
		args := nfs3.CreateArgs{Where: *where(e.dir, "file"), Mode: nfs3.Exclusive, Verf: verf}
		res := e.createRes(args)
		e.ok("CREATE", res.Status)
		file := e.made(e.dir, "file", res)
		id := e.attr(file).FileID
		res = e.createRes(args)
		e.ok("CREATE again", res.Status)
		if got := e.attr(e.made(e.dir, "file", res)).FileID; got != id {
			e.Errorf("CREATE again made file %d, the first was %d", got, id)
		}
		args.Verf[7] ^= 1
		e.refused("CREATE with another verifier", e.createRes(args).Status, nfs3.ErrExist)
		args.Verf[7] ^= 1
		args.Verf[0] ^= 1
		e.refused("CREATE with another verifier", e.createRes(args).Status, nfs3.ErrExist)
		// The client then sets the attributes, and the file is ordinary.
		e.ok("SETATTR", e.setattr(file, mode(0o600)))
		e.write(file, 0, []byte("content"))
		e.content(file, []byte("content"))
		e.ok("REMOVE", e.remove(e.dir, "file").Status)
	}
	e.create(e.dir, "old")
	res := e.createRes(nfs3.CreateArgs{Where: *where(e.dir, "old"), Mode: nfs3.Exclusive, Verf: [8]byte{1}})
	e.refused("CREATE of a file that was there", res.Status, nfs3.ErrExist)
}

func testCreateAttributes(e *env) {
	for _, m := range []uint32{0o600, 0o755, 0o666, 0o777, 0o400} {
		attr := mode(m)
		attr.Size = nfs3.SetUint64{Set: true, Value: 100}
		res := e.createRes(nfs3.CreateArgs{Where: *where(e.dir, "file"), Mode: nfs3.Guarded, Attr: attr})
		e.ok("CREATE", res.Status)
		got := e.attr(e.made(e.dir, "file", res))
		if got.Mode&nfs3.ModePerm != m {
			e.Errorf("file: mode %o, want %o", got.Mode&nfs3.ModePerm, m)
		}
		if got.Size != 100 {
			e.Errorf("file: size %d, want 100", got.Size)
		}
		if res.Attr.Present && res.Attr.Attr.FileID != got.FileID {
			e.Errorf("CREATE's attributes are of file %d, want %d", res.Attr.Attr.FileID, got.FileID)
		}
		e.ok("REMOVE", e.remove(e.dir, "file").Status)

		dir, err := e.client.Mkdir(e.Context(), e.dir, "dir", mode(m))
		e.answered("MKDIR", err)
		e.ok("MKDIR", dir.Status)
		if got := e.attr(e.made(e.dir, "dir", dir)); got.Mode&nfs3.ModePerm != m {
			e.Errorf("directory: mode %o, want %o", got.Mode&nfs3.ModePerm, m)
		}
		e.ok("RMDIR", e.rmdir(e.dir, "dir").Status)
	}
}

func testMkdir(e *env) {
	dir := e.mkdir(e.dir, "dir")
	e.create(dir, "file")
	e.create(e.dir, "file")
	e.symlink(e.dir, "link", "dir")
	e.symlink(e.dir, "dangling", "nowhere")
	for _, name := range []string{"dir", "file", "link", "dangling"} {
		e.refused("MKDIR of "+name, e.mkdirRes(e.dir, name).Status, nfs3.ErrExist)
	}
	e.handle(dir, "file")
	e.gone(e.dir, "nowhere")
	if names := e.names(e.mkdir(dir, "empty")); len(names) != 0 {
		e.Errorf("a new directory holds %q", names)
	}
}

func testSymlink(e *env) {
	e.symlink(e.dir, "link", "first")
	e.create(e.dir, "file")
	for _, name := range []string{"link", "file"} {
		e.refused("SYMLINK of "+name, e.symlinkRes(e.dir, name, "second").Status, nfs3.ErrExist)
	}
	if res := e.readlink(e.handle(e.dir, "link")); string(res.Path) != "first" {
		e.Errorf("the link leads to %q, want %q", res.Path, "first")
	}
	if res := e.symlinkRes(e.dir, "empty", ""); res.Status == nfs3.OK {
		e.Error("SYMLINK to an empty path succeeded")
	}
	for _, n := range []int{4096, 4097, 100_000} {
		e.refused("SYMLINK to a path that is too long", e.symlinkRes(e.dir, "long", strings.Repeat("x", n)).Status, nfs3.ErrNameTooLong)
	}
	e.gone(e.dir, "long")
}

func testMknod(e *env) {
	e.need(FeatureMknod)
	for _, tt := range []struct {
		name   string
		typ    nfs3.FType
		device bool
	}{
		{"fifo", nfs3.TypeFIFO, false},
		{"socket", nfs3.TypeSock, false},
		{"character device", nfs3.TypeChr, true},
		{"block device", nfs3.TypeBlk, true},
	} {
		args := nfs3.MknodArgs{Where: *where(e.dir, tt.name), Type: tt.typ, Attr: mode(0o640), Spec: nfs3.SpecData{Major: 1, Minor: 3}}
		res := e.mknod(args)
		if _, lacks := e.target.Lacks[FeatureDevices]; tt.device && lacks {
			e.refused("MKNOD of a "+tt.name, res.Status, nfs3.ErrPerm)
			continue
		}
		e.ok("MKNOD of a "+tt.name, res.Status)
		fh := e.made(e.dir, tt.name, res)
		attr := e.checkType(tt.name, fh, tt.typ)
		if attr.Mode&nfs3.ModePerm != 0o640 {
			e.Errorf("%s: mode %o", tt.name, attr.Mode)
		}
		if tt.device && attr.Rdev != args.Spec {
			e.Errorf("%s: device %v, want %v", tt.name, attr.Rdev, args.Spec)
		}
		e.refused("MKNOD again", e.mknod(args).Status, nfs3.ErrExist)
		// The server must not open it: a fifo would hang, a device would act.
		e.refused("READ of a "+tt.name, e.readRes(fh, 0, 10).Status, nfs3.ErrInval)
		e.refused("WRITE of a "+tt.name, e.writeRes(fh, 0, nfs3.Unstable, []byte("x")).Status, nfs3.ErrInval)
		e.ok("REMOVE", e.remove(e.dir, tt.name).Status)
	}
	for _, typ := range []nfs3.FType{nfs3.TypeReg, nfs3.TypeDir, nfs3.TypeLnk} {
		res := e.mknod(nfs3.MknodArgs{Where: *where(e.dir, "new"), Type: typ})
		e.refused("MKNOD of a type that has its own procedure", res.Status, nfs3.ErrBadType, nfs3.ErrInval)
	}
	// Linux has 12 and 20 bits for a device, specdata3 32 for each.
	for _, spec := range []nfs3.SpecData{{Major: 1<<12 | 1, Minor: 3}, {Major: 1, Minor: 1<<20 | 3}} {
		want := []nfs3.Status{nfs3.ErrInval}
		if _, lacks := e.target.Lacks[FeatureDevices]; lacks {
			want = append(want, nfs3.ErrPerm)
		}
		res := e.mknod(nfs3.MknodArgs{Where: *where(e.dir, "new"), Type: nfs3.TypeChr, Spec: spec})
		e.refused(fmt.Sprintf("MKNOD of the device %d:%d", spec.Major, spec.Minor), res.Status, want...)
	}
	e.gone(e.dir, "new")
}

func testCreateNotDir(e *env) {
	file := e.create(e.dir, "file")
	e.create(e.dir, "exists")
	for name, status := range map[string]nfs3.Status{
		"CREATE":  e.createRes(nfs3.CreateArgs{Where: *where(file, "new")}).Status,
		"MKDIR":   e.mkdirRes(file, "new").Status,
		"SYMLINK": e.symlinkRes(file, "new", "to").Status,
		"REMOVE":  e.remove(file, "new").Status,
		"RMDIR":   e.rmdir(file, "new").Status,
		"RENAME":  e.rename(e.dir, "exists", file, "new").Status,
		"READDIR": e.readdir(nfs3.ReaddirArgs{Dir: file, Count: 8192}).Status,
	} {
		e.refused(name+" in a file", status, nfs3.ErrNotDir)
	}
	e.refused("RENAME from a file", e.rename(file, "new", e.dir, "to").Status, nfs3.ErrNotDir)
	e.handle(e.dir, "exists")
}

// A file has the setuid and setgid that it is made with, also with a size, and a directory keeps the setgid that it inherits, though
// its owner is not in its group.
func testCreateBits(e *env) {
	e.need(FeatureIdentity)
	e.need(FeatureModeBits)
	e.need(FeatureChown)
	e.setMode(e.dir, 0o777)
	a := e.as(alice, alice)
	for _, attr := range []nfs3.Sattr{mode(0o6755), {Mode: nfs3.SetUint32{Set: true, Value: 0o6755}, Size: size(7).Size}} {
		file := e.made(e.dir, "file", a.createRes(nfs3.CreateArgs{Where: *where(e.dir, "file"), Mode: nfs3.Guarded, Attr: attr}))
		if got := e.attr(file); got.Mode != 0o6755 || got.Size != attr.Size.Value {
			e.Errorf("a file made with mode 06755 and size %d: mode %o, size %d", attr.Size.Value, got.Mode, got.Size)
		}
		e.ok("REMOVE", e.remove(e.dir, "file").Status)
	}
	shared := e.mkdir(e.dir, "shared")
	e.ok("SETATTR", e.setattr(shared, nfs3.Sattr{GID: nfs3.SetUint32{Set: true, Value: team}, Mode: nfs3.SetUint32{Set: true, Value: 0o2777}}))
	for m, want := range map[uint32]uint32{0o755: 0o2755, 0o2755: 0o2755} {
		name := fmt.Sprintf("%o", m)
		res, err := a.client.Mkdir(e.Context(), shared, name, mode(m))
		e.answered("MKDIR", err)
		e.ok("MKDIR", res.Status)
		if got := e.attr(e.made(shared, name, res)); got.Mode != want || got.GID != team {
			e.Errorf("a directory made with mode %o: mode %o, group %d, want %o and %d", m, got.Mode, got.GID, want, team)
		}
	}
}

// What can't be made as it was asked for is not there.
func testCreateOwner(e *env) {
	e.need(FeatureIdentity)
	e.need(FeatureMknod)
	e.setMode(e.dir, 0o777)
	a := e.as(alice, alice)
	for _, attr := range []nfs3.Sattr{
		{UID: nfs3.SetUint32{Set: true, Value: bob}},
		{GID: nfs3.SetUint32{Set: true, Value: team}},
		{UID: nfs3.SetUint32{Set: true, Value: alice}, GID: nfs3.SetUint32{Set: true, Value: 0}, Mode: nfs3.SetUint32{Set: true, Value: 0o6755}},
	} {
		for range 2 { // the second is no EXIST
			e.refused("CREATE UNCHECKED", a.createRes(nfs3.CreateArgs{Where: *where(e.dir, "new"), Mode: nfs3.Unchecked, Attr: attr}).Status, nfs3.ErrPerm)
			e.refused("CREATE GUARDED", a.createRes(nfs3.CreateArgs{Where: *where(e.dir, "new"), Mode: nfs3.Guarded, Attr: attr}).Status, nfs3.ErrPerm)
			res, err := a.client.Mkdir(e.Context(), e.dir, "new", attr)
			e.answered("MKDIR", err)
			e.refused("MKDIR", res.Status, nfs3.ErrPerm)
			e.refused("MKNOD", a.mknod(nfs3.MknodArgs{Where: *where(e.dir, "new"), Type: nfs3.TypeFIFO, Attr: attr}).Status, nfs3.ErrPerm)
			e.gone(e.dir, "new")
		}
	}
}
