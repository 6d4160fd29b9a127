package nfs3

import (
	"syscall"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
)

// lookup: RFC 1813 section 3.3.3.
func (s *service) lookup(c *oncrpc.Call) oncrpc.Answer {
	t := s.task(c)
	args := &t.args.lookup
	if !decode(c, args) {
		return badArgs(c)
	}
	dir, err := s.open(c, args.Dir)
	if err != nil {
		t.res.lookup.Status = statusOf(err)
		return reply(c, &t.res.lookup)
	}
	if string(args.Name) == ".." {
		return s.lookupParent(c, dir)
	}
	t.file, t.id = dir, identity(c, dir.Volume)
	if t.lookupDirectly() {
		return reply(c, &t.res.lookup)
	}
	return t.answer(dir.Volume, (*task).lookup, dir)
}

func (t *task) lookup() result {
	dir, res := t.file, &t.res.lookup
	// From before it is looked: with later ones a client would keep what is found
	// here, or that there is nothing, though the directory has changed since.
	res.DirAttr = nfs3.PostOpAttr{Present: true, Attr: fattr(dir.Volume, &dir.Attr)}
	attr, object, err := describe(dir, t.args.lookup.Name, t.handle[:0])
	if res.Status = statusOf(err); err == nil {
		res.Object, res.Attr = object, nfs3.PostOpAttr{Present: true, Attr: fattr(dir.Volume, &attr)}
	}
	return res
}

func describe(dir *export.File, name, handle []byte) (export.Attr, []byte, error) {
	switch {
	case !dir.Attr.IsDir():
		return export.Attr{}, nil, syscall.ENOTDIR
	case string(name) == ".":
	case len(name) > nfs3.MaxName:
		return export.Attr{}, nil, syscall.ENAMETOOLONG
	case !export.ValidName(name):
		return export.Attr{}, nil, syscall.EINVAL
	}
	return dir.Describe(name, handle)
}

// lookupParent answers "..", which is looked for as root since what is above may
// be closed to the caller; that the caller may search the directory is asked
// after.
func (s *service) lookupParent(c *oncrpc.Call, dir *export.File) oncrpc.Answer {
	if !dir.Attr.IsDir() {
		res := nfs3.LookupRes{Status: nfs3.ErrNotDir, DirAttr: nfs3.PostOpAttr{Present: true, Attr: fattr(dir.Volume, &dir.Attr)}}
		dir.Close()
		return reply(c, &res)
	}
	parent, err := s.opener.Parent(dir)
	files := []closer{dir}
	if err == nil {
		files = append(files, parent)
	}
	return s.work(c, dir.Volume, func(*task) result {
		res := &nfs3.LookupRes{DirAttr: nfs3.PostOpAttr{Present: true, Attr: fattr(dir.Volume, &dir.Attr)}}
		failed := err
		if failed == nil {
			failed = dir.Access(export.MayExec)
		}
		if res.Status = statusOf(failed); failed == nil {
			res.Object, res.Attr = parent.Handle(), nfs3.PostOpAttr{Present: true, Attr: fattr(dir.Volume, &parent.Attr)}
		}
		return res
	}, files...)
}

// readlinkMax is the most that READLINK's result takes, in bytes.
const readlinkMax = 4 + 4 + 84 + 4 + nfs3.MaxPath

// readlink: section 3.3.5. A symbolic link can be read by everyone.
func (s *service) readlink(c *oncrpc.Call) oncrpc.Answer {
	var args nfs3.ReadlinkArgs
	if !decode(c, &args) {
		return badArgs(c)
	}
	if !c.Reserve(readlinkMax) {
		return finishCall(c, rpc.SystemErr)
	}
	f, err := s.open(c, args.Object)
	if err != nil {
		return reply(c, &nfs3.ReadlinkRes{Status: statusOf(err)})
	}
	return s.work(c, f.Volume, func(*task) result {
		path, err := f.Readlink()
		return &nfs3.ReadlinkRes{Status: statusOf(err), Attr: postOpOf(f.Volume, f), Path: path}
	}, f)
}
