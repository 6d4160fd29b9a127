package nfsv3

import (
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/vfs"
)

// make answers a procedure that puts something new with some attributes into a directory.
func (t *task) make(res *nfs3.CreateRes, where *nfs3.DirOpArgs, attr *nfs3.Sattr, set *vfs.SetAttr, do func(*inode.File) (vfs.Made, error)) (result, rpc.AcceptStat) {
	dir, err := t.Open(where.Dir, inode.UseNames)
	if err != nil {
		res.Status = t.statusOf(err)
		return res, rpc.Success
	}
	var made vfs.Made
	if *set, err = setAttr(attr); err == nil {
		made, err = do(dir)
	}
	res.Status, res.DirWcc = t.statusOf(err), wcc(dir.Volume, &made.Dir.Before, &made.Dir.After)
	if err == nil {
		res.Object, res.Attr = made.Object.AppendHandle(t.handle[:0]), postOp(dir.Volume, &made.Attr)
	}
	return res, rpc.Success
}

// create: RFC 1813 section 3.3.8.
func (t *task) create() (result, rpc.AcceptStat) {
	n := t.naming()
	args := &n.args.create
	if !t.decode(args) {
		return nil, rpc.GarbageArgs
	}
	modes := [...]vfs.CreateMode{nfs3.Unchecked: vfs.Unchecked, nfs3.Guarded: vfs.Guarded, nfs3.Exclusive: vfs.Exclusive}
	return t.make(&n.res.create, &args.Where, &args.Attr, &n.set, func(dir *inode.File) (vfs.Made, error) {
		return t.Create(dir, args.Where.Name, modes[args.Mode], &n.set, args.Verf)
	})
}

// mkdir: section 3.3.9.
func (t *task) mkdir(args *nfs3.MkdirArgs) (result, rpc.AcceptStat) {
	var set vfs.SetAttr
	return t.make(&nfs3.CreateRes{}, &args.Where, &args.Attr, &set, func(dir *inode.File) (vfs.Made, error) {
		return t.Mkdir(dir, args.Where.Name, &set)
	})
}

// symlink: section 3.3.10.
func (t *task) symlink(args *nfs3.SymlinkArgs) (result, rpc.AcceptStat) {
	var set vfs.SetAttr
	return t.make(&nfs3.CreateRes{}, &args.Where, &args.Attr, &set, func(dir *inode.File) (vfs.Made, error) {
		return t.Symlink(dir, args.Where.Name, args.Path, &set)
	})
}

// mknod: section 3.3.11.
func (t *task) mknod(args *nfs3.MknodArgs) (result, rpc.AcceptStat) {
	types := map[nfs3.FType]uint32{nfs3.TypeFIFO: inode.TypeFIFO, nfs3.TypeSock: inode.TypeSocket, nfs3.TypeChr: inode.TypeChar, nfs3.TypeBlk: inode.TypeBlock}
	var set vfs.SetAttr
	return t.make(&nfs3.CreateRes{}, &args.Where, &args.Attr, &set, func(dir *inode.File) (vfs.Made, error) {
		return t.Mknod(dir, args.Where.Name, types[args.Type], args.Spec.Major, args.Spec.Minor, &set)
	})
}
