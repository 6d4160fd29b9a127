package nfstest4

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// handleTests are file handles and names: RFC 8881 sections 4, 7, 14 and those of the
// operations.
var handleTests = []test{
	{"pseudo root", testPseudoRoot},
	{"pseudo root is read only", testPseudoReadOnly},
	{"hidden volume", testHidden},
	{"up to the root", testUp},
	{"as in version 3", testAsV3},
	{"saved", testSaved},
	{"no file handle", testNoFileHandle},
	{"bad handle", testBadHandle},
	{"stale", testStale},
	{"lookup in no directory", testLookupNoDir},
	{"bad names", testBadNames},
	{"good names", testGoodNames},
	{"secinfo", testSecinfo},
}

// Section 7.3: the pseudo root leads to the volumes.
func testPseudoRoot(e *env) {
	root := e.fh(putrootfh())
	if pub := e.fh(plain(nfs4.OpPutpubfh)); !bytes.Equal(pub, root) { // section 18.20.4 lets them differ; here they don't
		e.Logf("PUTPUBFH %x, PUTROOTFH %x", pub, root)
	}
	path := strings.Split(strings.Trim(e.target.Export, "/"), "/")
	dir := root
	for i, name := range path {
		names := e.names(dir)
		if !slices.Contains(names, name) {
			e.Fatalf("%q is not in %q", name, names)
		}
		if again := e.fh(putfh(dir)); !bytes.Equal(again, dir) {
			e.Errorf("handle %x came back as %x", dir, again)
		}
		dir = e.fh(putfh(dir), lookup(name))
		if same := e.fh(walkOps(strings.Join(path[:i+1], "/"))...); !bytes.Equal(same, dir) {
			e.Errorf("two handles of %q: %x and %x", name, dir, same)
		}
		a := e.attr([]op{putfh(dir)}, nfs4.AttrType, nfs4.AttrFileID)
		if a.Type != nfs4.TypeDir || a.FileID == 0 {
			e.Errorf("%q: %+v", name, a)
		}
	}
	e.expect([]expect{
		{"lookup", []op{putrootfh(), lookup("nothing-of-this-name")}, is(nfs4.ErrNoEnt)},
		{"readlink", []op{putrootfh(), readlink()}, is(nfs4.ErrWrongType, nfs4.ErrInval)},
		{"read", []op{putrootfh(), read(nfs4.Stateid{}, 0, 1)}, is(nfs4.ErrIsDir)},
		{"lockt", []op{putrootfh(), lockt(nfs4.LocktArgs{Type: nfs4.LockRead, Length: 1, Owner: nfs4.StateOwner{Owner: []byte("l")}})}, is(nfs4.ErrIsDir)},
	})
}

// The pseudo file system is nobody's to change.
func testPseudoReadOnly(e *env) {
	no := is(nfs4.ErrROFS, nfs4.ErrAccess, nfs4.ErrPerm)
	path := strings.Split(strings.Trim(e.target.Export, "/"), "/")
	e.expect([]expect{
		{"create", []op{putrootfh(), mkdir("x")}, no},
		{"open", []op{putrootfh(), open(e.openArgs(opening{name: "x", create: true}))}, no},
		{"remove", []op{putrootfh(), remove(path[0])}, append(no, nfs4.ErrNotEmpty)},
		{"setattr", []op{putrootfh(), setattr(nfs4.Stateid{}, mode(0o700))}, no},
		{"rename", []op{putfh(e.dir), savefh(), putrootfh(), rename("x", "y")}, append(no, nfs4.ErrXDev)},
		{"link", []op{putfh(e.file("f", "")), savefh(), putrootfh(), link("x")}, append(no, nfs4.ErrXDev)},
		{"remove a volume", append(walkOps(e.target.Export), lookupp(), remove(path[len(path)-1])), append(no, nfs4.ErrNotEmpty)},
	})
}

// Section 7.3: what a client may not mount it does not see.
func testHidden(e *env) {
	if e.target.Hidden == "" {
		e.Skip("named skip: no hidden volume")
	}
	ops := walkOps(e.target.Hidden)
	e.refused(ops, nfs4.ErrNoEnt, nfs4.ErrAccess)
	dir := e.fh(ops[:len(ops)-1]...)
	name := e.target.Hidden[strings.LastIndexByte(e.target.Hidden, '/')+1:]
	if names := e.names(dir); slices.Contains(names, name) {
		e.Errorf("listed: %q", names)
	}
}

// Section 18.14: the parent, over the volume's root, up to the pseudo root, which has none.
func testUp(e *env) {
	sub := e.fh(putfh(e.dir), mkdir("sub"))
	want := []nfs4.FH{e.dir, e.root}
	path := strings.Split(strings.Trim(e.target.Export, "/"), "/")
	for i := len(path) - 1; i > 0; i-- {
		want = append(want, e.walk(strings.Join(path[:i], "/")))
	}
	want = append(want, e.fh(putrootfh()))
	at := sub
	for i, w := range want {
		if at = e.fh(putfh(at), lookupp()); !bytes.Equal(at, w) {
			e.Fatalf("step %d up: %x, want %x", i+1, at, w)
		}
	}
	e.refused([]op{putrootfh(), lookupp()}, nfs4.ErrNoEnt)
	e.refused([]op{putfh(e.file("f", "")), lookupp()}, nfs4.ErrNotDir)
	// Section 18.14.3: as who may search the directory, and as who may not.
	e.asOther(func(user *client) { e.up(user, sub) })
}

func (e *env) up(user *client, sub nfs4.FH) {
	if at := user.fh(putfh(sub), lookupp()); !bytes.Equal(at, e.dir) {
		e.Errorf("up as another user: %x, want %x", at, e.dir)
	}
	user.ok(putfh(sub), secinfoNoName(nfs4.SecinfoParent))
	e.ok(putfh(sub), setattr(nfs4.Stateid{}, mode(0o700)))
	user.refused([]op{putfh(sub), lookupp()}, nfs4.ErrAccess)
}

// A file has the same handle in both versions.
func testAsV3(e *env) {
	if e.target.MountAddr == "" {
		e.Skip("named skip: no version 3")
	}
	v3, err := nfstest.Dial(e.Context(), e.target.Addr, e.target.MountAddr)
	if err != nil {
		e.Fatal(err)
	}
	defer v3.Close()
	res, err := v3.Mount(e.Context(), e.target.Export)
	if err != nil || !bytes.Equal(res.Handle, e.root) {
		e.Fatalf("MNT: %v, %v, %x; PUTROOTFH and LOOKUP: %x", err, res.Status, res.Handle, e.root)
	}
	file := e.file("f", "content")
	dir, err := v3.Lookup(e.Context(), e.root3(), e.dirName)
	if err != nil || !bytes.Equal(dir.Object, e.dir) {
		e.Fatalf("%v, %v, %x; version 4 has %x", err, dir.Status, dir.Object, e.dir)
	}
	found, err := v3.Lookup(e.Context(), dir.Object, "f")
	if err != nil || !bytes.Equal(found.Object, file) {
		e.Fatalf("%v, %v, %x; version 4 has %x", err, found.Status, found.Object, file)
	}
	// What one version writes the other reads at once.
	if w, err := v3.Write(e.Context(), found.Object, 0, 2, []byte("CONTENT")); err != nil || w.Status != 0 {
		e.Fatal(w.Status, err)
	}
	e.content(file, "CONTENT")
	e.ok(putfh(file), setattr(nfs4.Stateid{}, size(3)))
	if r, err := v3.Read(e.Context(), found.Object, 0, 100); err != nil || string(r.Data) != "CON" {
		e.Errorf("%v, %v, %q", err, r.Status, r.Data)
	}
}

// Sections 18.27 and 18.28.
func testSaved(e *env) {
	e.refused([]op{putrootfh(), restorefh()}, nfs4.ErrNoFileHandle, nfs4.ErrRestoreFH)
	e.refused([]op{savefh()}, nfs4.ErrNoFileHandle)
	if fh := e.fh(putfh(e.dir), savefh(), putrootfh(), restorefh()); !bytes.Equal(fh, e.dir) {
		e.Errorf("restored %x, want %x", fh, e.dir)
	}
	if fh := e.fh(putfh(e.dir), savefh(), putrootfh(), restorefh(), putrootfh(), restorefh()); !bytes.Equal(fh, e.dir) {
		e.Errorf("restored a second time %x, want %x", fh, e.dir)
	}
	if fh := e.fh(putrootfh(), savefh(), putfh(e.dir)); !bytes.Equal(fh, e.dir) {
		e.Errorf("SAVEFH changed the current handle: %x", fh)
	}
	// Nothing is left for the next COMPOUND.
	e.refused([]op{getfh()}, nfs4.ErrNoFileHandle)
	e.refused([]op{restorefh()}, nfs4.ErrNoFileHandle, nfs4.ErrRestoreFH)
}

// Section 15.1.2.5: whatever works on the current or saved file needs it.
func testNoFileHandle(e *env) {
	for _, o := range anyOps() {
		switch o.num {
		case nfs4.OpPutfh, nfs4.OpPutpubfh, nfs4.OpPutrootfh, nfs4.OpRestorefh, nfs4.OpBackchannelCtl,
			nfs4.OpFreeStateid, nfs4.OpTestStateid, nfs4.OpReclaimComplete:
			continue
		}
		e.Run(o.num.String(), func(t *testing.T) {
			e.with(t).refused([]op{o}, nfs4.ErrNoFileHandle)
		})
	}
	e.refused([]op{putfh(e.dir), link("x")}, nfs4.ErrNoFileHandle) // no saved one
	e.refused([]op{putfh(e.dir), rename("x", "y")}, nfs4.ErrNoFileHandle)
}

// Section 15.1.2.1: a handle that the server can't have made.
func testBadHandle(e *env) {
	bad := map[string]nfs4.FH{
		"empty": {}, "one byte": {1}, "zeros": make(nfs4.FH, 32), "128 bytes": bytes.Repeat(nfs4.FH{0xff}, 128),
		"cut": e.dir[:len(e.dir)-1], "longer": append(slices.Clone(e.dir), 0),
	}
	for _, i := range []int{0, len(e.dir) / 2, len(e.dir) - 1} {
		fh := slices.Clone(e.dir)
		fh[i] ^= 1
		bad["byte "+string(rune('a'+i))] = fh
	}
	for name, fh := range bad {
		for _, after := range []op{getfh(), getattrs(nfs4.AttrType), read(nfs4.Stateid{}, 0, 1), mkdir("x")} {
			r := e.do(putfh(fh), after)
			if r.last() != nfs4.OpPutfh || r.status != nfs4.ErrBadHandle && r.status != nfs4.ErrStale {
				e.Errorf("%s: %v says %v", name, r.last(), r.status)
			}
		}
	}
	e.ok(putfh(e.dir), getfh())
}

// Section 15.1.2.7: a file that is gone, and that nobody has open.
func testStale(e *env) {
	dir := e.fh(putfh(e.dir), mkdir("gone"))
	file := e.file("f", "x")
	e.ok(putfh(e.dir), remove("gone"), remove("f"))
	for what, ops := range map[string][]op{
		"directory": {putfh(dir), getattrs(nfs4.AttrType)}, "directory's handle": {putfh(dir), getfh()},
		"create": {putfh(dir), mkdir("x")}, "lookup": {putfh(dir), lookup("x")}, "readdir": {putfh(dir), readdir(nfs4.ReaddirArgs{MaxCount: 4096})},
		"file": {putfh(file), getattrs(nfs4.AttrType)}, "read": {putfh(file), read(nfs4.Stateid{}, 0, 1)},
		"write": {putfh(file), write(nfs4.Stateid{}, 0, "x")}, "commit": {putfh(file), commit(0, 0)},
		"link": {putfh(file), savefh(), putfh(e.dir), link("x")},
	} {
		if r := e.do(ops...); r.status != nfs4.ErrStale {
			e.Errorf("%s: %v says %v", what, r.last(), r.status)
		}
	}
	e.ok(putfh(e.dir), getfh())
}

// Section 18.13.4.
func testLookupNoDir(e *env) {
	file := e.file("f", "")
	e.ok(putfh(e.dir), symlink("link", "f"))
	e.expect([]expect{
		{"file", []op{putfh(file), lookup("x")}, is(nfs4.ErrNotDir)},
		{"link", []op{putfh(e.dir), lookup("link"), lookup("x")}, is(nfs4.ErrSymlink)},
		{"up from a link", []op{putfh(e.dir), lookup("link"), lookupp()}, is(nfs4.ErrSymlink, nfs4.ErrNotDir)},
		{"readdir", []op{putfh(file), readdir(nfs4.ReaddirArgs{MaxCount: 4096})}, is(nfs4.ErrNotDir)},
		{"mkdir", []op{putfh(file), mkdir("x")}, is(nfs4.ErrNotDir)},
		{"remove", []op{putfh(file), remove("x")}, is(nfs4.ErrNotDir)},
		{"open", []op{putfh(file), open(e.openArgs(opening{name: "x"}))}, is(nfs4.ErrNotDir)},
		{"secinfo", []op{putfh(file), secinfo("x")}, is(nfs4.ErrNotDir)},
		{"rename", []op{putfh(file), savefh(), putfh(e.dir), rename("x", "y")}, is(nfs4.ErrNotDir)},
		{"lookup nothing", []op{putfh(e.dir), lookup("nothing")}, is(nfs4.ErrNoEnt)},
	})
}

// Section 14.5, 15.1.7: each operation that takes a name refuses what is none. The names lead
// nowhere on a server that follows them.
func testBadNames(e *env) {
	own := e.dirName + "-own"
	file := e.file("f", "")
	notName := is(nfs4.ErrBadName, nfs4.ErrBadChar, nfs4.ErrInval)
	for what, bad := range map[string]struct {
		name string
		want []nfs4.Status
	}{
		"empty":    {"", is(nfs4.ErrInval)},
		"dot":      {".", is(nfs4.ErrBadName)},
		"dotdot":   {"..", is(nfs4.ErrBadName)},
		"slash":    {own + "/x", notName},
		"absolute": {"/" + own, notName},
		"upwards":  {"../" + own, notName},
		"zero":     {"x\x00y", notName},
		"long":     {strings.Repeat("x", 256), is(nfs4.ErrNameTooLong)},
		"longest":  {strings.Repeat("x", 4000), is(nfs4.ErrNameTooLong)},
	} {
		e.expect([]expect{
			{what + "/lookup", []op{putfh(e.dir), lookup(bad.name)}, bad.want},
			{what + "/lookup in the pseudo root", []op{putrootfh(), lookup(bad.name)}, bad.want},
			{what + "/create", []op{putfh(e.dir), mkdir(bad.name)}, bad.want},
			{what + "/symlink", []op{putfh(e.dir), symlink(bad.name, "x")}, bad.want},
			{what + "/open", []op{putfh(e.dir), open(e.openArgs(opening{name: bad.name}))}, bad.want},
			{what + "/open to create", []op{putfh(e.dir), open(e.openArgs(opening{name: bad.name, create: true}))}, bad.want},
			{what + "/remove", []op{putfh(e.dir), remove(bad.name)}, bad.want},
			{what + "/rename from", []op{putfh(e.dir), savefh(), rename(bad.name, own)}, bad.want},
			{what + "/rename to", []op{putfh(e.dir), savefh(), rename("f", bad.name)}, bad.want},
			{what + "/link", []op{putfh(file), savefh(), putfh(e.dir), link(bad.name)}, bad.want},
			{what + "/secinfo", []op{putfh(e.dir), secinfo(bad.name)}, bad.want},
		})
	}
	if names := e.names(e.dir); !slices.Equal(names, []string{"f"}) {
		e.Errorf("made: %q", names)
	}
}

// A name is bytes: section 14.4 leaves it to the server, and Linux's file systems to users.
func testGoodNames(e *env) {
	names := []string{" ", "...", "..x", "-", "*", "new\nline", "ünï", "u\u0308", "\xff\xfe", "日本", strings.Repeat("y", 255)}
	for _, name := range names {
		fh := e.file(name, name)
		e.content(fh, name)
		if same := e.fh(putfh(e.dir), lookup(name)); !bytes.Equal(same, fh) {
			e.Errorf("%q: %x and %x", name, fh, same)
		}
	}
	slices.Sort(names)
	if got := e.names(e.dir); !slices.Equal(got, names) {
		e.Errorf("%q, want %q", got, names)
	}
}

// Sections 18.29.3, 18.45.3 and 2.6.3.1.1.8: they consume the current file handle.
func testSecinfo(e *env) {
	e.file("f", "")
	for _, ops := range [][]op{
		{putfh(e.dir), secinfo("f")},
		{putfh(e.dir), secinfoNoName(nfs4.SecinfoCurrentFH)},
		{putfh(e.dir), secinfoNoName(nfs4.SecinfoParent)},
		{putrootfh(), secinfoNoName(nfs4.SecinfoCurrentFH)},
	} {
		res := get[nfs4.SecinfoRes](e, e.ok(ops...))
		if len(res.Flavors) == 0 {
			e.Error("no flavor")
		}
		e.refused(append(ops, getfh()), nfs4.ErrNoFileHandle)
	}
	e.refused([]op{putfh(e.dir), secinfo("nothing")}, nfs4.ErrNoEnt)
	e.refused([]op{putrootfh(), secinfoNoName(nfs4.SecinfoParent)}, nfs4.ErrNoEnt)
}
