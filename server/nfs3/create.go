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
		res.Status, res.DirWcc = statusOf(err), wcc(dir.Volume, &made.Dir.Before, &made.Dir.After)
		if made.Object != nil {
			res.Object, res.Attr = made.Object.Handle(), postOp(dir.Volume, &made.Attr)
		}
		t.syncs(&res.Status)
		return res
	})
}

// create: RFC 1813 section 3.3.8.
func (t *task) create(args *nfs3.CreateArgs) oncrpc.Answer {
	modes := [...]vfs.CreateMode{nfs3.Unchecked: vfs.Unchecked, nfs3.Guarded: vfs.Guarded, nfs3.Exclusive: vfs.Exclusive}
	return t.make(&args.Where, func(dir *export.File) (vfs.Made, error) {
		return t.Create(dir, args.Where.Name, modes[args.Mode], setAttr(&args.Attr), args.Verf)
	})
}

// mkdir: section 3.3.9.
func (t *task) mkdir(args *nfs3.MkdirArgs) oncrpc.Answer {
	return t.make(&args.Where, func(dir *export.File) (vfs.Made, error) {
		return t.Mkdir(dir, args.Where.Name, setAttr(&args.Attr))
	})
}

// symlink: section 3.3.10.
func (t *task) symlink(args *nfs3.SymlinkArgs) oncrpc.Answer {
	return t.make(&args.Where, func(dir *export.File) (vfs.Made, error) {
		return t.Symlink(dir, args.Where.Name, args.Path, setAttr(&args.Attr))
	})
}

// mknod: section 3.3.11.
func (t *task) mknod(args *nfs3.MknodArgs) oncrpc.Answer {
	types := map[nfs3.FType]uint32{nfs3.TypeFIFO: export.TypeFIFO, nfs3.TypeSock: export.TypeSocket, nfs3.TypeChr: export.TypeChar, nfs3.TypeBlk: export.TypeBlock}
	return t.make(&args.Where, func(dir *export.File) (vfs.Made, error) {
		return t.Mknod(dir, args.Where.Name, types[args.Type], args.Spec.Major, args.Spec.Minor, setAttr(&args.Attr))
	})
}
