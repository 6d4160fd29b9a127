package nfs3

import (
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/vfs"
)

// lookup: RFC 1813 section 3.3.3.
func (s *service) lookup(c *oncrpc.Call) oncrpc.Answer {
	t := s.task(c)
	args, res := &t.args.lookup, &t.res.lookup
	if !decode(c, args) {
		return t.badArgs()
	}
	dir, err := t.OpenRecent(args.Dir)
	if err != nil {
		res.Status = statusOf(err)
		return t.reply(res)
	}
	t.file = dir
	if string(args.Name) == ".." {
		return t.lookupParent()
	}
	return t.answer((*task).lookup)
}

func (t *task) lookup() result {
	dir, res := t.file, &t.res.lookup
	// From before it is looked: with later ones a client would keep what is found
	// here, or that there is nothing, though the directory has changed since.
	res.DirAttr = postOpOf(dir)
	attr, object, done, err := t.Lookup(dir, t.args.lookup.Name, t.handle[:0])
	if !done {
		return nil
	}
	if res.Status = statusOf(err); err == nil {
		res.Object, res.Attr = object, nfs3.PostOpAttr{Present: true, Attr: fattr(dir.Volume, &attr)}
	}
	return res
}

// lookupParent answers "..".
func (t *task) lookupParent() oncrpc.Answer {
	dir, res := t.file, &t.res.lookup
	res.DirAttr = postOpOf(dir)
	parent, err := t.Parent(dir)
	return t.answerAsCaller(func(*task) result {
		if err == nil {
			err = dir.Access(export.MayExec)
		}
		if res.Status = statusOf(err); err == nil {
			res.Object, res.Attr = parent.Handle(), postOpOf(parent)
		}
		return res
	})
}

// readlinkMax is the most that READLINK's result takes, in bytes.
const readlinkMax = 4 + 4 + 84 + 4 + nfs3.MaxPath

// readlink: section 3.3.5. A symbolic link can be read by everyone.
func (t *task) readlink(args *nfs3.ReadlinkArgs) oncrpc.Answer {
	if !t.Call.Reserve(readlinkMax) {
		return t.fail(rpc.SystemErr)
	}
	f, err := t.Open(args.Object, export.UseAttr)
	if err != nil {
		return t.reply(&nfs3.ReadlinkRes{Status: statusOf(err)})
	}
	return t.answerAsCaller(func(*task) result {
		path, err := f.Readlink()
		attr := vfs.AttrsOf(f)
		return &nfs3.ReadlinkRes{Status: statusOf(err), Attr: postOp(f.Volume, &attr), Path: path}
	})
}
