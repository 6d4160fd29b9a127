package nfsv3

import (
	"bytes"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/vfs"
)

// remove: RFC 1813 section 3.3.12.
func (t *task) remove() (result, rpc.AcceptStat) { return t.removeName((*vfs.Call).Remove) }

// rmdir: section 3.3.13.
func (t *task) rmdir() (result, rpc.AcceptStat) { return t.removeName((*vfs.Call).Rmdir) }

func (t *task) removeName(remove func(*vfs.Call, *inode.File, []byte) (vfs.Change, error)) (result, rpc.AcceptStat) {
	n := t.naming()
	args, res := &n.args.remove, &n.res.remove
	if !t.decode(args) {
		return nil, rpc.GarbageArgs
	}
	dir, err := t.Open(args.Dir, inode.UseNames)
	if err != nil {
		res.Status = t.statusOf(err)
		return res, rpc.Success
	}
	change, err := remove(&t.Call, dir, args.Name)
	res.Status, res.Wcc = t.statusOf(err), wcc(dir.Volume, &change.Before, &change.After)
	return res, rpc.Success
}

// rename: section 3.3.14.
func (t *task) rename() (result, rpc.AcceptStat) {
	n := t.naming()
	args, res := &n.args.rename, &n.res.rename
	if !t.decode(args) {
		return nil, rpc.GarbageArgs
	}
	from, err := t.Open(args.From.Dir, inode.UseNames)
	to := from
	if err == nil && !bytes.Equal(args.From.Dir, args.To.Dir) {
		to, err = t.Open(args.To.Dir, inode.UseNames)
	}
	if err != nil {
		res.Status = t.statusOf(err)
		return res, rpc.Success
	}
	inFrom, inTo, err := t.Rename(from, args.From.Name, to, args.To.Name)
	res.Status = t.statusOf(err)
	res.FromWcc = wcc(from.Volume, &inFrom.Before, &inFrom.After)
	res.ToWcc = wcc(to.Volume, &inTo.Before, &inTo.After)
	return res, rpc.Success
}

// link: section 3.3.15.
func (t *task) link(args *nfs3.LinkArgs) (result, rpc.AcceptStat) {
	res := &nfs3.LinkRes{}
	f, err := t.Open(args.File, inode.UseAttr)
	var dir *inode.File
	if err == nil {
		dir, err = t.Open(args.Link.Dir, inode.UseNames)
	}
	if err != nil {
		res.Status = t.statusOf(err)
		return res, rpc.Success
	}
	change, err := t.Link(f, dir, args.Link.Name)
	attr := vfs.AttrsOf(f)
	res.Status, res.Attr = t.statusOf(err), postOp(f.Volume, &attr)
	res.LinkWcc = wcc(dir.Volume, &change.Before, &change.After)
	return res, rpc.Success
}
