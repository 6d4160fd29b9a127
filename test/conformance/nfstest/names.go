package nfstest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/podnas/podnas/nfs/nfs3"
)

var nameTests = []test{
	{"unusual", testUnusualNames},
	{"255 bytes", testLongNames},
	{"too long", testTooLongNames},
	{"more than one component", testComponents},
	{"dot and dot-dot", testDotNames},
	{"outside of the export", testOutside},
}

// A name is bytes. Only '/' and NUL are special.
func testUnusualNames(e *env) {
	names := []string{
		"with space", " leading", "trailing ", "new\nline", "tab\t", "\x01\x7f", "-dash", "...", "..x", ".hidden", "~",
		"back\\slash", `quo"te`, "col:on", "*?[]", "%2e%2e%2f", "ünïcödé", "u\u0308", "\u00fc",
		"\xff\xfe\xfd", "cut\xc3", "\x80", "日本語",
	}
	for _, name := range names {
		fh := e.create(e.dir, name)
		e.write(fh, 0, []byte(name))
	}
	slices.Sort(names)
	if got := e.names(e.dir); !slices.Equal(got, names) {
		e.Errorf("listed %q, want %q", got, names)
	}
	for _, name := range names {
		e.content(e.handle(e.dir, name), []byte(name))
		e.ok("RENAME", e.rename(e.dir, name, e.dir, name+"\xff").Status)
		e.gone(e.dir, name)
		e.ok("REMOVE", e.remove(e.dir, name+"\xff").Status)
	}
	for _, name := range names {
		e.mkdir(e.dir, name)
		e.ok("RMDIR", e.rmdir(e.dir, name).Status)
		e.symlink(e.dir, name, name)
		e.ok("REMOVE", e.remove(e.dir, name).Status)
	}
}

func testLongNames(e *env) {
	for i, unit := range []string{"x", "\xff", "ü."} {
		name := strings.Repeat(unit, 255)[:255]
		file := e.create(e.dir, name)
		e.write(file, 0, []byte("content"))
		e.content(e.handle(e.dir, name), []byte("content"))
		e.ok("RENAME", e.rename(e.dir, name, e.dir, "short").Status)
		e.ok("RENAME", e.rename(e.dir, "short", e.dir, name).Status)
		if got := e.names(e.dir); len(got) != 1 || got[0] != name {
			e.Errorf("name %d: listed %q", i, got)
		}
		e.ok("REMOVE", e.remove(e.dir, name).Status)
		e.mkdir(e.dir, name)
		e.ok("RMDIR", e.rmdir(e.dir, name).Status)
	}
}

// own returns a name that only this test uses. The tests of this file send names
// that a broken server may follow to anywhere, with root's rights. So none may be
// a name that could exist, such as "/etc" or "../sub". Then a broken server
// removes or moves only files of the test.
func (e *env) own(name string) string {
	return e.dirName + "-" + name
}

// nameCalls makes every call that takes a name, and returns the statuses.
func (e *env) nameCalls(dir nfs3.FH, name string) map[string]nfs3.Status {
	return map[string]nfs3.Status{
		"LOOKUP":      e.lookup(dir, name).Status,
		"CREATE":      e.createRes(nfs3.CreateArgs{Where: *where(dir, name), Mode: nfs3.Unchecked}).Status,
		"MKDIR":       e.mkdirRes(dir, name).Status,
		"SYMLINK":     e.symlinkRes(dir, name, "to").Status,
		"REMOVE":      e.remove(dir, name).Status,
		"RMDIR":       e.rmdir(dir, name).Status,
		"RENAME from": e.rename(dir, name, dir, e.own("renamed")).Status,
		"RENAME to":   e.rename(dir, e.own("exists"), dir, name).Status,
	}
}

// refusedName checks that every call refuses a name, and that the directory does
// not change.
func (e *env) refusedName(dir nfs3.FH, name string, want ...nfs3.Status) {
	e.Helper()
	e.create(dir, e.own("exists"))
	before := e.names(dir)
	calls := e.nameCalls(dir, name)
	if _, lacks := e.target.Lacks[FeatureLink]; !lacks {
		calls["LINK"] = e.link(e.handle(dir, e.own("exists")), dir, name).Status
	}
	for call, status := range calls {
		e.refused(fmt.Sprintf("%s of %s", call, abbreviate([]byte(name))), status, want...)
	}
	if after := e.names(dir); !slices.Equal(after, before) {
		e.Errorf("name %s: listed %q, before %q", abbreviate([]byte(name)), after, before)
	}
	e.ok("REMOVE", e.remove(dir, e.own("exists")).Status)
}

func testTooLongNames(e *env) {
	for _, n := range []int{256, 257, 1000, 4000} {
		e.refusedName(e.dir, strings.Repeat("x", n), nfs3.ErrNameTooLong)
	}
}

func testComponents(e *env) {
	sub, none := e.own("sub"), e.own("none")
	dir := e.mkdir(e.dir, sub)
	file := e.create(dir, "file")
	e.write(file, 0, []byte("content"))
	for _, name := range []string{
		"", none + "/x", none + "/", sub + "/", sub + "/file", sub + "/none", sub + "/.", "./" + sub, "./" + none, "../" + none,
		sub + "/../" + sub, sub + "/../" + none, none + "\x00", none + "\x00x", "\x00" + none, sub + "\x00", sub + "\x00/file",
	} {
		e.refusedName(e.dir, name, nfs3.ErrInval, nfs3.ErrAcces, nfs3.ErrNoEnt)
	}
	e.content(file, []byte("content"))
}

// "." and ".." can't be created, removed or renamed.
func testDotNames(e *env) {
	dir := e.mkdir(e.dir, "dir")
	sub := e.mkdir(dir, "sub")
	e.create(sub, e.own("exists"))
	for _, name := range []string{".", ".."} {
		calls := e.nameCalls(sub, name)
		delete(calls, "LOOKUP")
		for call, status := range calls {
			e.refused(call+" of "+name, status,
				nfs3.ErrInval, nfs3.ErrExist, nfs3.ErrIsDir, nfs3.ErrNotEmpty, nfs3.ErrAcces, nfs3.ErrPerm, nfs3.ErrNotDir, nfs3.ErrNoEnt)
		}
	}
	e.sameNames("the directory", e.names(dir), []string{"sub"})
	e.sameNames("the one in it", e.names(sub), []string{e.own("exists")})
}

// No name leads out of the export, and nothing is created, changed or removed
// there. The bait is in a temporary directory of the test.
func testOutside(e *env) {
	e.needDisk()
	outside := e.TempDir()
	bait := filepath.Join(outside, "bait")
	if err := os.WriteFile(bait, []byte("outside"), 0o644); err != nil {
		e.Fatal(err)
	}
	up, err := filepath.Rel(e.path(""), outside)
	if err != nil {
		e.Fatal(err)
	}
	e.create(e.dir, e.own("exists"))
	for _, prefix := range []string{up, "./" + up, "/" + up, outside} {
		for _, name := range []string{"bait", "new"} {
			for call, status := range e.nameCalls(e.dir, prefix+"/"+name) {
				e.refused(fmt.Sprintf("%s of %q", call, prefix+"/"+name), status, nfs3.ErrInval, nfs3.ErrAcces, nfs3.ErrNoEnt)
			}
		}
	}
	e.handle(e.dir, e.own("exists"))
	if got, err := os.ReadFile(bait); err != nil || string(got) != "outside" {
		e.Errorf("the file outside of the export: %q, %v", got, err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		e.Errorf("outside of the export: %v, %v", entries, err)
	}
}
