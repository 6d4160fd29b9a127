package nfs3

import (
	"syscall"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
)

func fattr(v *export.Volume, a *export.Attr) nfs3.Fattr {
	types := [...]nfs3.FType{0o01: nfs3.TypeFIFO, 0o02: nfs3.TypeChr, 0o04: nfs3.TypeDir, 0o06: nfs3.TypeBlk, 0o10: nfs3.TypeReg, 0o12: nfs3.TypeLnk, 0o14: nfs3.TypeSock, 0o17: 0}
	return nfs3.Fattr{
		Type:   types[a.Mode>>12],
		Mode:   a.Mode & 0o7777,
		Nlink:  a.Nlink,
		UID:    a.UID,
		GID:    a.GID,
		Size:   uint64(a.Size),
		Used:   a.Used,
		Rdev:   nfs3.SpecData{Major: a.Major, Minor: a.Minor},
		FSID:   v.ID,
		FileID: a.Ino,
		Atime:  timeOf(a.Atime),
		Mtime:  timeOf(a.Mtime),
		Ctime:  timeOf(a.Ctime),
	}
}

// timeOf cuts a time to the RFC's 32 bits of seconds, as clients expect.
func timeOf(t time.Time) nfs3.Time {
	return nfs3.Time{Sec: uint32(t.Unix()), Nsec: uint32(t.Nanosecond())}
}

// stater is an open file whose attributes can be read.
type stater interface{ Stat() (export.Attr, error) }

func postOpOf(v *export.Volume, f stater) nfs3.PostOpAttr {
	a, err := f.Stat()
	if err != nil {
		return nfs3.PostOpAttr{}
	}
	return nfs3.PostOpAttr{Present: true, Attr: fattr(v, &a)}
}

// preOpOf is for who keeps others from changing the file until postOpOf, or there
// are none: a client takes all that differs for its own change.
func preOpOf(f stater, alone bool) nfs3.PreOpAttr {
	if !alone {
		return nfs3.PreOpAttr{}
	}
	a, err := f.Stat()
	if err != nil {
		return nfs3.PreOpAttr{}
	}
	return nfs3.PreOpAttr{Present: true, Size: uint64(a.Size), Mtime: timeOf(a.Mtime), Ctime: timeOf(a.Ctime)}
}

// lockedDir is a directory whose names are locked, before they are changed.
type lockedDir struct{ *export.File }

func (d lockedDir) Stat() (export.Attr, error) { return d.StatLocked() }

// madeFile is a file that the call has made.
type madeFile struct{ *export.File }

func (m madeFile) Stat() (export.Attr, error) { return m.Latest() }

// getattr: RFC 1813 section 3.3.1. Whoever has a handle may ask, and nothing
// blocks, so no worker is needed.
func (s *service) getattr(c *oncrpc.Call) oncrpc.Answer {
	t := s.task(c)
	args, res := &t.args.getattr, &t.res.getattr
	if !decode(c, args) {
		return badArgs(c)
	}
	f, err := s.look(c, args.Object)
	if res.Status = statusOf(err); err == nil {
		res.Attr = fattr(f.Volume, &f.Attr)
		f.Close()
	}
	return reply(c, res)
}

// access: section 3.3.4. Each bit is what the kernel says to the caller.
func (s *service) access(c *oncrpc.Call) oncrpc.Answer {
	t := s.task(c)
	if !decode(c, &t.args.access) {
		return badArgs(c)
	}
	f, err := s.open(c, t.args.access.Object)
	if err != nil {
		t.res.access.Status = statusOf(err)
		return reply(c, &t.res.access)
	}
	t.file, t.id = f, identity(c, f.Volume)
	if t.accessDirectly() {
		return reply(c, &t.res.access)
	}
	return t.answer(f.Volume, (*task).access, f)
}

func (t *task) access() result {
	return t.accessWith(func(mode uint32) bool { return t.file.Access(mode) == nil })
}

func (t *task) accessWith(may func(mode uint32) bool) result {
	f, res := t.file, &t.res.access
	// Of what may be changed, a directory's names also take the right to search
	// it, and nothing goes in a volume that is read only.
	read, change, execute := uint32(nfs3.AccessRead), uint32(nfs3.AccessModify|nfs3.AccessExtend), uint32(nfs3.AccessExecute)
	mayChange := uint32(export.MayWrite)
	if f.Attr.IsDir() {
		change, execute = change|nfs3.AccessDelete, nfs3.AccessLookup
		mayChange |= export.MayExec
	}
	if f.Volume.Options.ReadOnly {
		change = 0
	}
	for _, right := range [...]struct{ bits, mode uint32 }{
		{read, export.MayRead}, {change, mayChange}, {execute, export.MayExec},
	} {
		if asked := right.bits & t.args.access.Access; asked != 0 && may(right.mode) {
			res.Access |= asked
		}
	}
	res.Attr = nfs3.PostOpAttr{Present: true, Attr: fattr(f.Volume, &f.Attr)}
	return res
}

// mayUse tells whether the caller may read or write a file's data. The owner
// always may: it had the right when it opened the file, and the server does not
// see opens. Every server does so.
func mayUse(f *export.DataFile, a *export.Attr, id *export.Identity, mode uint32) error {
	if a.UID == id.UID {
		return nil
	}
	return f.Access(mode)
}

// setattr: section 3.3.2.
func (s *service) setattr(c *oncrpc.Call) oncrpc.Answer {
	var args nfs3.SetattrArgs
	if !decode(c, &args) {
		return badArgs(c)
	}
	f, err := s.open(c, args.Object)
	if err == nil && f.Volume.Options.ReadOnly {
		f.Close()
		err = syscall.EROFS
	}
	if err != nil {
		return reply(c, &nfs3.SetattrRes{Status: statusOf(err)})
	}
	files, sync := []closer{f}, syncer(f)
	var data *export.DataFile // for a new size
	if args.Attr.Size.Set {
		if data, err = s.openToWrite(c, args.Object); err == nil {
			files, sync = append(files, data), data
		}
	}
	return s.work(c, f.Volume, func(t *task) result {
		res := &nfs3.SetattrRes{}
		before := preOpOf(f, true)
		if !f.Attr.IsDir() { // whose names may change meanwhile
			res.Wcc.Before = before
		}
		failed := err
		if args.Guarded && failed == nil && before.Ctime != args.Guard {
			res.Status = nfs3.ErrNotSync
		} else {
			if failed == nil {
				failed = setAttributes(f, data, &args.Attr, &t.id)
			}
			if failed == nil && !f.Volume.Options.Async {
				t.sync(&res.Status, sync)
			}
			res.Status = statusOf(failed)
		}
		res.Wcc.After = postOpOf(f.Volume, f)
		return res
	}, files...)
}

// setAttributes sets what an sattr3 names: first the owner, as that takes setuid
// away, and last the times, as all else moves them. data is needed for a size.
func setAttributes(f *export.File, data *export.DataFile, attr *nfs3.Sattr, id *export.Identity) error {
	if err := setOwner(f, attr); err != nil {
		return err
	}
	if attr.Mode.Set {
		if err := f.Chmod(attr.Mode.Value & 0o7777); err != nil {
			return err
		}
	}
	if attr.Size.Set {
		if attr.Size.Value > maxOffset {
			return syscall.EFBIG
		}
		if err := mayUse(data, &f.Attr, id, export.MayWrite); err != nil {
			return err
		}
		if err := data.Truncate(int64(attr.Size.Value)); err != nil {
			return err
		}
		// open(2) with O_TRUNC by who may write but does not own the file: the
		// client asks for the size and this time, and the size has set it.
		if attr.Atime.How == nfs3.DontChange && attr.Mtime.How == nfs3.SetToServerTime {
			return nil
		}
	}
	return setTimes(f, attr)
}

func setOwner(f *export.File, attr *nfs3.Sattr) error {
	if !attr.UID.Set && !attr.GID.Set {
		return nil
	}
	owner := func(s nfs3.SetUint32) (int, error) {
		switch {
		case !s.Set:
			return export.NoChange, nil
		case s.Value == 1<<32-1: // chown(2) takes it for no change
			return 0, syscall.EINVAL
		}
		return int(s.Value), nil
	}
	uid, err := owner(attr.UID)
	if err != nil {
		return err
	}
	gid, err := owner(attr.GID)
	if err != nil {
		return err
	}
	return f.Chown(uid, gid)
}

func setTimes(f *export.File, attr *nfs3.Sattr) error {
	if attr.Atime.How == nfs3.DontChange && attr.Mtime.How == nfs3.DontChange {
		return nil
	}
	set := func(t nfs3.SetTime) export.SetTime {
		return export.SetTime{
			Set:  t.How != nfs3.DontChange,
			Now:  t.How == nfs3.SetToServerTime,
			Time: time.Unix(int64(t.Time.Sec), int64(t.Time.Nsec)),
		}
	}
	return f.Chtimes(set(attr.Atime), set(attr.Mtime))
}
