package nfstest4

import (
	"bytes"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
)

// RunView runs the test of a volume that shows a snapshot of the volume Export: ReadOnly, with a file f, which has "content", and a
// directory sub.
func RunView(t *testing.T, target Target) {
	runTests(t, target, []test{{"a view of a snapshot", testView}}, "")
}

// testView changes it in all ways, by both minor versions, and looks for a way out of it.
func testView(e *env) {
	dir := e.walk(e.target.ReadOnly)
	fh := e.fh(putfh(dir), lookup("f"))
	mine, _ := e.client.open(e.dir, opening{name: "mine", create: true})
	_, id := e.client.open(dir, opening{name: "f", access: nfs4.ShareAccessRead})
	e.readOnly(dir, fh, mine, id)
	e.refused([]op{putfh(fh), setACL(allow("OWNER@", aceR))}, nfs4.ErrROFS, nfs4.ErrAttrNotSupp)
	if got := get[nfs4.ReadRes](e, e.ok(putfh(fh), read(id, 0, 100))); string(got.Data) != "content" {
		e.Errorf("READ: %q", got.Data)
	}

	c := e.in42()
	none := nfs4.Stateid{}
	for _, ops := range [][]op{
		{putfh(fh), allocate(none, 0, 1)},
		{putfh(fh), deallocate(none, 0, 1)},
		{putfh(fh), savefh(), putfh(fh), copyOp(none, none, 0, 0, 1)},
		{putfh(fh), savefh(), putfh(fh), clone(none, none, 0, 0, 0)},
		{putfh(mine), savefh(), putfh(fh), copyOp(none, none, 0, 0, 1)},
		{putfh(fh), setxattr("a", "value", nfs4.SetxattrEither)},
		{putfh(fh), removexattr("a")},
	} {
		c.refused(ops, nfs4.ErrROFS)
	}

	// Above its root is what is above every volume, and not the folder of the snapshots.
	if up := e.fh(putfh(dir), lookupp()); !bytes.Equal(up, e.fh(append(walkOps(e.target.Export), lookupp())...)) {
		e.Errorf("above its root is %x", up)
	}
	for _, name := range []string{"..", ".snapshots", ".podnas"} {
		e.refused([]op{putfh(dir), lookup(name)}, nfs4.ErrNoEnt, nfs4.ErrBadName)
	}
	// A handle of one volume is none of another, though they have the same files.
	live := e.fh(putfh(e.root), lookup("f"))
	if at, of := e.attr([]op{putfh(live)}, nfs4.AttrFSID), e.attr([]op{putfh(fh)}, nfs4.AttrFSID); at.FSID == of.FSID || bytes.Equal(live, fh) {
		e.Errorf("the file system of both is %+v; handles %x, %x", of.FSID, live, fh)
	}
	forged := append(append(bytes.Clone(fh[:2]), live[2:10]...), fh[10:]...)
	e.refused([]op{putfh(forged)}, nfs4.ErrBadHandle)
	forged = append(append(bytes.Clone(live[:2]), fh[2:10]...), live[10:]...)
	e.refused([]op{putfh(forged)}, nfs4.ErrBadHandle)
}
