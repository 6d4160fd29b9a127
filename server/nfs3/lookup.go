package nfs3

import (
	"syscall"

	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
)

// lookup: RFC 1813 section 3.3.3.
func (s *service) lookup(c *oncrpc.Call) {
	t := s.task(c)
	args := &t.args.lookup
	if !decode(c, args) {
		return
	}
	dir, err := s.open(c, args.Dir)
	if err != nil {
		t.res.lookup.Status = statusOf(err)
		reply(c, &t.res.lookup)
		return
	}
	if string(args.Name) == ".." {
		s.lookupParent(c, dir)
		return
	}
	t.file, t.id = dir, identity(c, dir.Volume)
	if !t.lookupDirectly() {
		t.start(dir.Volume, (*task).lookup, dir)
	}
}

func (t *task) lookup() result {
	return t.looked(lookupIn(t.file, t.args.lookup.Name, (*export.File).Lookup))
}

// looked is the result of a lookup.
func (t *task) looked(child *export.File, err error) result {
	dir, res := t.file, &t.res.lookup
	if err == nil {
		res.Object = child.AppendHandle(t.handle[:0])
		res.Attr = PostOpAttr{true, fattr(dir.Volume, &child.Attr)}
		child.Close()
	}
	res.Status = statusOf(err)
	res.DirAttr = postOpOf(dir.Volume, dir)
	return res
}

func lookupIn(dir *export.File, name []byte, lookup func(*export.File, []byte) (*export.File, error)) (*export.File, error) {
	switch {
	case !dir.Attr.IsDir():
		return nil, syscall.ENOTDIR
	case string(name) == ".":
	case len(name) > MaxName:
		return nil, syscall.ENAMETOOLONG
	case !export.ValidName(name):
		return nil, syscall.EINVAL
	}
	return lookup(dir, name)
}

// lookupParent answers "..", which is looked for as root since what is above may
// be closed to the caller; that the caller may search the directory is asked
// after.
func (s *service) lookupParent(c *oncrpc.Call, dir *export.File) {
	if !dir.Attr.IsDir() {
		res := LookupRes{Status: ErrNotDir, DirAttr: PostOpAttr{true, fattr(dir.Volume, &dir.Attr)}}
		dir.Close()
		reply(c, &res)
		return
	}
	parent, err := s.opener.Parent(dir)
	files := []closer{dir}
	if err == nil {
		files = append(files, parent)
	}
	s.work(c, dir.Volume, func(export.Identity) result {
		res := &LookupRes{}
		failed := err
		if failed == nil {
			failed = dir.Access(export.MayExec)
		}
		if res.Status = statusOf(failed); failed == nil {
			res.Object, res.Attr = parent.Handle(), PostOpAttr{true, fattr(dir.Volume, &parent.Attr)}
		}
		res.DirAttr = postOpOf(dir.Volume, dir)
		return res
	}, files...)
}

// readlink: section 3.3.5. A symbolic link can be read by everyone.
func (s *service) readlink(c *oncrpc.Call) {
	var args ReadlinkArgs
	if !decode(c, &args) {
		return
	}
	f, err := s.open(c, args.Object)
	if err != nil {
		reply(c, &ReadlinkRes{Status: statusOf(err)})
		return
	}
	s.work(c, f.Volume, func(export.Identity) result {
		path, err := f.Readlink()
		return &ReadlinkRes{Status: statusOf(err), Attr: postOpOf(f.Volume, f), Path: path}
	}, f)
}
