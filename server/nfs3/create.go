package nfs3

import (
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/vfs"
)

// make answers a procedure that puts something new into a directory.
func (t *task) make(where *nfs3.DirOpArgs, do func(dir *export.File) (vfs.Made, error)) oncrpc.Answer {
	res := &nfs3.CreateRes{}
	dir, err := t.Open(where.Dir, export.UseNames)
	if err != nil {
		res.Status = statusOf(err)
		return t.reply(res)
	}
	return t.answerAsCaller(func(t *task) result {
		made, err := do(dir)
		return t.made(res, dir, &made, err)
	})
}

// made is the result of what made says.
func (t *task) made(res *nfs3.CreateRes, dir *export.File, made *vfs.Made, err error) result {
	res.Status, res.DirWcc = statusOf(err), wcc(dir.Volume, &made.Dir.Before, &made.Dir.After)
	if made.Object != nil {
		res.Object, res.Attr = made.Object.AppendHandle(t.handle[:0]), postOp(dir.Volume, &made.Attr)
	}
	t.syncs(&res.Status)
	return res
}

// create: RFC 1813 section 3.3.8.
func (s *service) create(c *oncrpc.Call) oncrpc.Answer {
	t := s.task(c)
	n := t.naming()
	args, res := &n.args.create, &n.res.create
	if !decode(c, args) {
		return t.badArgs()
	}
	dir, err := t.Open(args.Where.Dir, export.UseNames)
	if err != nil {
		res.Status = statusOf(err)
		return t.reply(res)
	}
	t.file, n.set = dir, setAttr(&args.Attr)
	return t.answerAsCaller((*task).create)
}

func (t *task) create() result {
	modes := [...]vfs.CreateMode{nfs3.Unchecked: vfs.Unchecked, nfs3.Guarded: vfs.Guarded, nfs3.Exclusive: vfs.Exclusive}
	args := &t.names.args.create
	made, err := t.Create(t.file, args.Where.Name, modes[args.Mode], &t.names.set, args.Verf)
	return t.made(&t.names.res.create, t.file, &made, err)
}

// mkdir: section 3.3.9.
func (t *task) mkdir(args *nfs3.MkdirArgs) oncrpc.Answer {
	return t.make(&args.Where, func(dir *export.File) (vfs.Made, error) {
		set := setAttr(&args.Attr)
		return t.Mkdir(dir, args.Where.Name, &set)
	})
}

// symlink: section 3.3.10.
func (t *task) symlink(args *nfs3.SymlinkArgs) oncrpc.Answer {
	return t.make(&args.Where, func(dir *export.File) (vfs.Made, error) {
		set := setAttr(&args.Attr)
		return t.Symlink(dir, args.Where.Name, args.Path, &set)
	})
}

// mknod: section 3.3.11.
func (t *task) mknod(args *nfs3.MknodArgs) oncrpc.Answer {
	types := map[nfs3.FType]uint32{nfs3.TypeFIFO: export.TypeFIFO, nfs3.TypeSock: export.TypeSocket, nfs3.TypeChr: export.TypeChar, nfs3.TypeBlk: export.TypeBlock}
	return t.make(&args.Where, func(dir *export.File) (vfs.Made, error) {
		set := setAttr(&args.Attr)
		return t.Mknod(dir, args.Where.Name, types[args.Type], args.Spec.Major, args.Spec.Minor, &set)
	})
}
