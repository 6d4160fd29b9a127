package nfstest4

import (
	"slices"

	"github.com/podnas/podnas/nfs/nfs4"
)

// detailTests are what results say beside their status.
var detailTests = []test{
	{"rename that does nothing", testRenameNothing},
}

// Section 18.26.3: a RENAME from one name of a file to another one of it does nothing.
func testRenameNothing(e *env) {
	fh := e.file("f", "content")
	e.ok(link2(fh, e.dir, "link")...)
	sub := e.fh(putfh(e.dir), mkdir("sub"))
	e.ok(link2(fh, sub, "link")...)
	before := e.attr([]op{putfh(e.dir)}, nfs4.AttrChange).Change
	for name, ops := range map[string][]op{
		"file": {putfh(e.dir), savefh(), rename("f", "f")}, "directory": {putfh(e.dir), savefh(), rename("sub", "sub")},
		"link": {putfh(e.dir), savefh(), rename("f", "link")}, "link elsewhere": {putfh(e.dir), savefh(), putfh(sub), rename("f", "link")},
	} {
		res := get[nfs4.RenameRes](e, e.ok(ops...))
		if res.Source.Before != res.Source.After || res.Target.Before != res.Target.After {
			e.Errorf("%s: %+v", name, res)
		}
	}
	if now := e.attr([]op{putfh(e.dir)}, nfs4.AttrChange).Change; now != before {
		e.Errorf("the directory's change attribute was %d and is %d", before, now)
	}
	if names := e.names(e.dir); !slices.Equal(names, []string{"f", "link", "sub"}) {
		e.Errorf("%q", names)
	}
}
