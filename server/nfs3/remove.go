package nfs3

import (
	"bytes"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/vfs"
)

// remove: RFC 1813 section 3.3.12.
func (t *task) remove(args *nfs3.RemoveArgs) oncrpc.Answer { return t.removeName(args, t.Remove) }

// rmdir: section 3.3.13.
func (t *task) rmdir(args *nfs3.RemoveArgs) oncrpc.Answer { return t.removeName(args, t.Rmdir) }

func (t *task) removeName(args *nfs3.RemoveArgs, remove func(*export.File, []byte) (vfs.Change, error)) oncrpc.Answer {
	res := &nfs3.RemoveRes{}
	dir, err := t.Open(args.Dir, export.UseNames)
	if err != nil {
		res.Status = statusOf(err)
		return t.reply(res)
	}
	return t.answerAsCaller(func(t *task) result {
		change, err := remove(dir, args.Name)
		res.Status, res.Wcc = statusOf(err), wcc(dir.Volume, &change.Before, &change.After)
		t.syncs(&res.Status)
		return res
	})
}

// rename: section 3.3.14.
func (t *task) rename(args *nfs3.RenameArgs) oncrpc.Answer {
	res := &nfs3.RenameRes{}
	from, err := t.Open(args.From.Dir, export.UseNames)
	to := from
	if err == nil && !bytes.Equal(args.From.Dir, args.To.Dir) {
		to, err = t.Open(args.To.Dir, export.UseNames)
	}
	if err != nil {
		res.Status = statusOf(err)
		return t.reply(res)
	}
	return t.answerAsCaller(func(t *task) result {
		inFrom, inTo, err := t.Rename(from, args.From.Name, to, args.To.Name)
		res.Status = statusOf(err)
		res.FromWcc = wcc(from.Volume, &inFrom.Before, &inFrom.After)
		res.ToWcc = wcc(to.Volume, &inTo.Before, &inTo.After)
		t.syncs(&res.Status)
		return res
	})
}

// link: section 3.3.15.
func (t *task) link(args *nfs3.LinkArgs) oncrpc.Answer {
	res := &nfs3.LinkRes{}
	f, err := t.Open(args.File, export.UseAttr)
	var dir *export.File
	if err == nil {
		dir, err = t.Open(args.Link.Dir, export.UseNames)
	}
	if err != nil {
		res.Status = statusOf(err)
		return t.reply(res)
	}
	return t.answerAsCaller(func(t *task) result {
		change, err := t.Link(f, dir, args.Link.Name)
		attr := vfs.AttrsOf(f)
		res.Status, res.Attr = statusOf(err), postOp(f.Volume, &attr)
		res.LinkWcc = wcc(dir.Volume, &change.Before, &change.After)
		t.syncs(&res.Status)
		return res
	})
}
