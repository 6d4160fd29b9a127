package nfs3

import (
	"bytes"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/vfs"
)

// remove: RFC 1813 section 3.3.12.
func (s *service) remove(c *oncrpc.Call) oncrpc.Answer { return s.removeName(c, (*task).remove) }

// rmdir: section 3.3.13.
func (s *service) rmdir(c *oncrpc.Call) oncrpc.Answer { return s.removeName(c, (*task).rmdir) }

func (s *service) removeName(c *oncrpc.Call, remove func(*task) result) oncrpc.Answer {
	t := s.task(c)
	n := t.naming()
	args, res := &n.args.remove, &n.res.remove
	if !decode(c, args) {
		return t.badArgs()
	}
	dir, err := t.Open(args.Dir, export.UseNames)
	if err != nil {
		res.Status = statusOf(err)
		return t.reply(res)
	}
	t.file = dir
	return t.answerAsCaller(remove)
}

func (t *task) remove() result { return t.removed(t.Remove(t.file, t.names.args.remove.Name)) }

func (t *task) rmdir() result { return t.removed(t.Rmdir(t.file, t.names.args.remove.Name)) }

// removed is the result of a change.
func (t *task) removed(change vfs.Change, err error) result {
	res := &t.names.res.remove
	res.Status, res.Wcc = statusOf(err), wcc(t.file.Volume, &change.Before, &change.After)
	t.syncs(&res.Status)
	return res
}

// rename: section 3.3.14.
func (s *service) rename(c *oncrpc.Call) oncrpc.Answer {
	t := s.task(c)
	n := t.naming()
	args, res := &n.args.rename, &n.res.rename
	if !decode(c, args) {
		return t.badArgs()
	}
	from, err := t.Open(args.From.Dir, export.UseNames)
	to := from
	if err == nil && !bytes.Equal(args.From.Dir, args.To.Dir) {
		to, err = t.Open(args.To.Dir, export.UseNames)
	}
	if err != nil {
		res.Status = statusOf(err)
		return t.reply(res)
	}
	t.file, n.to = from, to
	return t.answerAsCaller((*task).rename)
}

func (t *task) rename() result {
	from, to, args, res := t.file, t.names.to, &t.names.args.rename, &t.names.res.rename
	inFrom, inTo, err := t.Rename(from, args.From.Name, to, args.To.Name)
	res.Status = statusOf(err)
	res.FromWcc = wcc(from.Volume, &inFrom.Before, &inFrom.After)
	res.ToWcc = wcc(to.Volume, &inTo.Before, &inTo.After)
	t.syncs(&res.Status)
	return res
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
