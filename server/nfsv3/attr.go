package nfsv3

import (
	"syscall"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/vfs"
)

func fattr(v *exports.Volume, a *disk.Attr) nfs3.Fattr {
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
		FSID:   v.FSID,
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

// postOp has a file's attributes, if they are known.
func postOp(v *exports.Volume, a *vfs.Attrs) nfs3.PostOpAttr {
	if !a.Known {
		return nfs3.PostOpAttr{}
	}
	return nfs3.PostOpAttr{Present: true, Attr: fattr(v, &a.Attr)}
}

// postOpOf has the attributes from when a file was opened.
func postOpOf(f *inode.File) nfs3.PostOpAttr {
	return nfs3.PostOpAttr{Present: true, Attr: fattr(f.Volume, &f.Attr)}
}

func preOp(a *vfs.Attrs) nfs3.PreOpAttr {
	if !a.Known {
		return nfs3.PreOpAttr{}
	}
	return nfs3.PreOpAttr{Present: true, Size: uint64(a.Size), Mtime: timeOf(a.Mtime), Ctime: timeOf(a.Ctime)}
}

func wcc(v *exports.Volume, before, after *vfs.Attrs) nfs3.WccData {
	return nfs3.WccData{Before: preOp(before), After: postOp(v, after)}
}

// getattr: RFC 1813 section 3.3.1. Whoever has a handle may ask, and nothing blocks.
func (t *task) getattr() (result, rpc.AcceptStat) {
	args, res := &t.args.getattr, &t.res.getattr
	if !t.decode(args) {
		return nil, rpc.GarbageArgs
	}
	f, err := t.Open(args.Object, inode.UseAttr, inode.AtOnce, inode.Recent)
	if res.Status = t.statusOf(err); err == nil {
		res.Attr = fattr(f.Volume, &f.Attr)
	}
	return res, rpc.Success
}

// allAccess is the rights that there are.
const allAccess = nfs3.AccessRead | nfs3.AccessLookup | nfs3.AccessModify | nfs3.AccessExtend | nfs3.AccessDelete | nfs3.AccessExecute

// access: section 3.3.4. Each bit is what the kernel says to the caller.
func (t *task) access() (result, rpc.AcceptStat) {
	args, res := &t.args.access, &t.res.access
	if !t.decode(args) {
		return nil, rpc.GarbageArgs
	}
	f, err := t.Open(args.Object, inode.UseAttr, inode.Recent)
	if err == nil {
		res.Access, _, err = t.Rights(f, args.Access&allAccess)
	}
	if res.Status = t.statusOf(err); err == nil {
		res.Attr = postOpOf(f)
	}
	return res, rpc.Success
}

// setattr: section 3.3.2.
func (t *task) setattr(args *nfs3.SetattrArgs) (result, rpc.AcceptStat) {
	res := &nfs3.SetattrRes{}
	f, err := t.Open(args.Object, inode.UseAttr)
	if err == nil && f.Volume.Options.ReadOnly {
		err = exports.ErrReadOnly
	}
	if err != nil {
		res.Status = t.statusOf(err)
		return res, rpc.Success
	}
	before, after, err := t.set(f, args)
	res.Status, res.Wcc = t.statusOf(err), wcc(f.Volume, &before, &after)
	return res, rpc.Success
}

func (t *task) set(f *inode.File, args *nfs3.SetattrArgs) (before, after vfs.Attrs, err error) {
	var data *inode.File // for a new size
	if args.Attr.Size.Set {
		if data, err = t.Open(args.Object, inode.UseWrite); err != nil { // and nothing is set
			after = vfs.AttrsOf(f)
			if before = after; f.Attr.IsDir() { // as of SetAttr
				before = vfs.Attrs{}
			}
			return before, after, err
		}
	}
	var expected func(time.Time) bool
	if args.Guarded {
		expected = func(ctime time.Time) bool { return timeOf(ctime) == args.Guard }
	}
	set, err := setAttr(&args.Attr)
	if err != nil {
		after = vfs.AttrsOf(f)
		return after, after, err
	}
	return t.SetAttr(f, data, &set, expected)
}

// setAttr is what an sattr3 sets. The error is EINVAL for a time with more than a second of nanoseconds.
func setAttr(a *nfs3.Sattr) (vfs.SetAttr, error) {
	number := func(s *nfs3.SetUint32) *uint32 {
		if !s.Set {
			return nil
		}
		return &s.Value
	}
	at := func(t nfs3.SetTime) inode.SetTime {
		return inode.SetTime{
			Set:  t.How != nfs3.DontChange,
			Now:  t.How == nfs3.SetToServerTime,
			Time: time.Unix(int64(t.Time.Sec), int64(t.Time.Nsec)),
		}
	}
	set := vfs.SetAttr{Mode: number(&a.Mode), UID: number(&a.UID), GID: number(&a.GID), Atime: at(a.Atime), Mtime: at(a.Mtime)}
	if a.Size.Set {
		set.Size = &a.Size.Value
	}
	const second = 1e9
	if a.Atime.Time.Nsec >= second || a.Mtime.Time.Nsec >= second {
		return set, syscall.EINVAL
	}
	return set, nil
}
