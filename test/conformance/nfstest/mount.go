package nfstest

import (
	"slices"
	"strings"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
)

var mountTests = []test{
	{"MNT", testMnt},
	{"MNT of unknown paths", testMntUnknown},
	{"MNT of a file", testMntFile},
	{"UMNT", testUmnt},
	{"EXPORT DUMP UMNTALL", testMountLists},
}

func testMnt(e *env) {
	res, err := e.client.Mount(e.Context(), e.target.Export)
	e.answered("MNT", err)
	if res.Status != mount3.OK {
		e.Fatalf("MNT: %v", res.Status)
	}
	if len(res.Handle) == 0 {
		e.Error("the handle is empty")
	}
	if !slices.Contains(res.Flavors, rpc.AuthSys) {
		e.Errorf("flavors %v: no AUTH_SYS", res.Flavors)
	}
	if attr := e.attr(res.Handle); attr.Type != nfs3.TypeDir {
		e.Errorf("the root's type is %d", attr.Type)
	}
	again := e.mount(e.client)
	if !slices.Equal(again, nfs3.FH(res.Handle)) {
		e.Errorf("handle %x, then %x", res.Handle, again)
	}
}

func testMntUnknown(e *env) {
	export := strings.TrimSuffix(e.target.Export, "/")
	for _, path := range []string{
		export + "-not-there",
		export + "/not-there",
		export + "/../not-there",
		export + "/..",
		export + "/../..",
		"/../../../.." + e.TempDir(),
		"not-there",
		"..",
		export + "\x00",
		"/" + strings.Repeat("x", 300),
		strings.Repeat("/x", mount3.MaxPath/2),
	} {
		res, err := e.client.Mount(e.Context(), path)
		e.answered("MNT", err)
		if res.Status == mount3.OK {
			e.Errorf("MNT of %q succeeded", path)
		}
	}
	// Beyond the protocol's limit: any refusal, even an RPC error.
	long := strings.Repeat("/x", mount3.MaxPath)
	if res, err := e.client.Mount(e.Context(), long); err == nil && res.Status == mount3.OK {
		e.Errorf("MNT of a path of %d bytes succeeded", len(long))
	}
	e.mount(e.client)
}

func testMntFile(e *env) {
	e.create(e.dir, "file")
	path := strings.TrimSuffix(e.target.Export, "/") + "/" + e.dirName + "/file"
	res, err := e.client.Mount(e.Context(), path)
	e.answered("MNT", err)
	if res.Status == mount3.OK {
		e.Error("MNT of a file succeeded")
	}
}

// UMNT has no results, and handles stay valid after it.
func testUmnt(e *env) {
	for _, path := range []string{e.target.Export, e.target.Export, "/not-there"} {
		if err := e.client.Unmount(e.Context(), path); err != nil {
			e.Errorf("UMNT of %q: %v", path, err)
		}
	}
	e.attr(e.root)
}

func testMountLists(e *env) {
	e.need(FeatureMountLists)
	exports, err := e.client.Exports(e.Context())
	e.answered("EXPORT", err)
	if !slices.ContainsFunc(exports.Exports, func(x mount3.Export) bool { return string(x.Directory) == e.target.Export }) {
		e.Errorf("EXPORT lists %q without %q", exports.Exports, e.target.Export)
	}
	// DUMP's list is only a hint (RFC 1813 section 5.2.2).
	if _, err := e.client.Dump(e.Context()); err != nil {
		e.Errorf("DUMP: %v", err)
	}
	if err := e.client.UnmountAll(e.Context()); err != nil {
		e.Errorf("UMNTALL: %v", err)
	}
	e.attr(e.root)
}
