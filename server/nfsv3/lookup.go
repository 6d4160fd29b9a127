package nfsv3

import (
	"syscall"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/vfs"
)

// lookup: RFC 1813 section 3.3.3.
func (t *task) lookup() (result, rpc.AcceptStat) {
	args, res := &t.args.lookup, &t.res.lookup
	if !t.decode(args) {
		return nil, rpc.GarbageArgs
	}
	dir, err := t.Open(args.Dir, inode.UseAttr, inode.Recent)
	if err != nil {
		res.Status = t.statusOf(err)
		return res, rpc.Success
	}
	// From before it is looked: with later ones a client would keep what is found
	// here, or that there is nothing, though the directory has changed since.
	res.DirAttr = postOpOf(dir)
	if string(args.Name) == ".." {
		res.Status = t.statusOf(t.lookupParent(dir, res))
		return res, rpc.Success
	}
	if snapshots, err := t.Snapshots(dir, args.Name); snapshots != nil || err != nil {
		if res.Status = t.statusOf(err); err == nil {
			res.Object, res.Attr = snapshots.Handle(), postOpOf(snapshots)
		}
		return res, rpc.Success
	}
	attr, object, err := t.Lookup(dir, args.Name, t.handle[:0])
	if res.Status = t.statusOf(err); err == nil {
		res.Object, res.Attr = object, nfs3.PostOpAttr{Present: true, Attr: fattr(dir.Volume, &attr)}
	}
	return res, rpc.Success
}

// lookupParent answers "..".
func (t *task) lookupParent(dir *inode.File, res *nfs3.LookupRes) error {
	parent, err := t.Parent(dir)
	if err != nil {
		return err
	}
	if !t.May(dir, inode.MayExec) {
		return syscall.EACCES
	}
	res.Object, res.Attr = parent.Handle(), postOpOf(parent)
	return nil
}

// readlinkMax is the most that READLINK's result takes, in bytes.
const readlinkMax = 4 + 4 + 84 + 4 + nfs3.MaxPath

// readlink: section 3.3.5. A symbolic link can be read by everyone.
func (t *task) readlink(args *nfs3.ReadlinkArgs) (result, rpc.AcceptStat) {
	if !t.rpc.Reserve(readlinkMax) {
		return nil, rpc.SystemErr
	}
	f, err := t.Open(args.Object, inode.UseAttr)
	if err != nil {
		return &nfs3.ReadlinkRes{Status: t.statusOf(err)}, rpc.Success
	}
	path, err := f.Readlink()
	attr := vfs.AttrsOf(f)
	return &nfs3.ReadlinkRes{Status: t.statusOf(err), Attr: postOp(f.Volume, &attr), Path: path}, rpc.Success
}
