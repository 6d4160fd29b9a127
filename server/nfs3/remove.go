package nfs3

import (
	"bytes"
	"syscall"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
)

// remove: RFC 1813 section 3.3.12.
func (s *service) remove(c *oncrpc.Call) oncrpc.Answer {
	return s.take(c, (*export.File).Remove)
}

// rmdir: section 3.3.13.
func (s *service) rmdir(c *oncrpc.Call) oncrpc.Answer {
	return s.take(c, (*export.File).Rmdir)
}

// take answers a procedure that takes a name from a directory.
func (s *service) take(c *oncrpc.Call, remove func(*export.File, string) error) oncrpc.Answer {
	var args nfs3.RemoveArgs
	if !decode(c, &args) {
		return badArgs(c)
	}
	dir, err := s.openDir(c, args.Dir)
	if err != nil {
		return reply(c, &nfs3.RemoveRes{Status: statusOf(err)})
	}
	return s.work(c, dir.Volume, func(t *task) result {
		res := &nfs3.RemoveRes{}
		names, alone := export.LockNames(dir, dir)
		defer names.Unlock()
		res.Wcc.Before = preOpOf(lockedDir{dir}, alone)
		err := checkName(args.Name)
		if err == nil {
			err = remove(dir, string(args.Name))
		}
		if err == nil && !dir.Volume.Options.Async {
			t.sync(&res.Status, dir)
		}
		res.Status = statusOf(err)
		res.Wcc.After = postOpOf(dir.Volume, dir)
		return res
	}, dir)
}

// rename: section 3.3.14.
func (s *service) rename(c *oncrpc.Call) oncrpc.Answer {
	var args nfs3.RenameArgs
	if !decode(c, &args) {
		return badArgs(c)
	}
	from, err := s.openDir(c, args.From.Dir)
	if err != nil {
		return reply(c, &nfs3.RenameRes{Status: statusOf(err)})
	}
	to, files := from, []closer{from}
	if !bytes.Equal(args.From.Dir, args.To.Dir) {
		if to, err = s.openDir(c, args.To.Dir); err != nil {
			from.Close()
			return reply(c, &nfs3.RenameRes{Status: statusOf(err)})
		}
		files = append(files, to)
	}
	return s.work(c, from.Volume, func(t *task) result {
		res := &nfs3.RenameRes{}
		names, alone := export.LockNames(from, to)
		defer names.Unlock()
		res.FromWcc.Before = preOpOf(lockedDir{from}, alone)
		res.ToWcc.Before = res.FromWcc.Before
		if from.ID != to.ID {
			res.ToWcc.Before = preOpOf(lockedDir{to}, alone)
		}
		err := checkName(args.From.Name)
		if err == nil {
			err = checkName(args.To.Name)
		}
		if err == nil {
			err = from.Rename(string(args.From.Name), to, string(args.To.Name))
		}
		if err == nil && !from.Volume.Options.Async {
			// The new name first: after a power cut it is there twice rather
			// than not at all.
			if from.ID == to.ID {
				t.sync(&res.Status, to)
			} else {
				t.sync(&res.Status, to, from)
			}
		}
		res.Status = statusOf(err)
		res.FromWcc.After = postOpOf(from.Volume, from)
		res.ToWcc.After = res.FromWcc.After
		if from.ID != to.ID {
			res.ToWcc.After = postOpOf(to.Volume, to)
		}
		return res
	}, files...)
}

// link: section 3.3.15.
func (s *service) link(c *oncrpc.Call) oncrpc.Answer {
	var args nfs3.LinkArgs
	if !decode(c, &args) {
		return badArgs(c)
	}
	f, err := s.open(c, args.File)
	if err != nil {
		return reply(c, &nfs3.LinkRes{Status: statusOf(err)})
	}
	dir, err := s.openDir(c, args.Link.Dir)
	if err != nil {
		f.Close()
		return reply(c, &nfs3.LinkRes{Status: statusOf(err)})
	}
	return s.work(c, dir.Volume, func(t *task) result {
		res := &nfs3.LinkRes{}
		names, alone := export.LockNames(dir, dir)
		defer names.Unlock()
		res.LinkWcc.Before = preOpOf(lockedDir{dir}, alone)
		err := checkMade(args.Link.Name)
		switch {
		case err != nil:
		case f.Attr.IsDir():
			err = syscall.EISDIR
		default:
			err = f.Link(dir, string(args.Link.Name))
		}
		if err == nil && !dir.Volume.Options.Async {
			t.sync(&res.Status, dir)
		}
		res.Status = statusOf(err)
		res.Attr = postOpOf(f.Volume, f)
		res.LinkWcc.After = postOpOf(dir.Volume, dir)
		return res
	}, f, dir)
}
