package nfs3

import (
	"bytes"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/vfs"
)

// remove: RFC 1813 section 3.3.12.
func (s *service) remove(c *oncrpc.Call) oncrpc.Answer {
	return s.removeName(c, (*vfs.Task).Remove)
}

// rmdir: section 3.3.13.
func (s *service) rmdir(c *oncrpc.Call) oncrpc.Answer {
	return s.removeName(c, (*vfs.Task).Rmdir)
}

func (s *service) removeName(c *oncrpc.Call, remove func(*vfs.Task, *export.File, []byte) (vfs.Change, error)) oncrpc.Answer {
	t := s.task(c)
	var args nfs3.RemoveArgs
	if !decode(c, &args) {
		return t.badArgs()
	}
	res := &nfs3.RemoveRes{}
	dir, err := t.Open(args.Dir, export.UseNames)
	if err != nil {
		res.Status = statusOf(err)
		return t.reply(res)
	}
	return t.answerAsCaller(func(t *task) result {
		change, err := remove(&t.Task, dir, args.Name)
		res.Status, res.Wcc = statusOf(err), wcc(dir.Volume, &change.Before, &change.After)
		t.syncs(&res.Status)
		return res
	})
}

// rename: section 3.3.14.
func (s *service) rename(c *oncrpc.Call) oncrpc.Answer {
	t := s.task(c)
	var args nfs3.RenameArgs
	if !decode(c, &args) {
		return t.badArgs()
	}
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
func (s *service) link(c *oncrpc.Call) oncrpc.Answer {
	t := s.task(c)
	var args nfs3.LinkArgs
	if !decode(c, &args) {
		return t.badArgs()
	}
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
