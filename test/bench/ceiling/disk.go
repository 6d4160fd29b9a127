package main

import (
	"errors"
	"math"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/xdr"
)

// disk serves a directory. A handle is a path in it, which is why there is nothing to
// look up, or to remember but the descriptors, and why a name whose path is longer than
// a handle is too long. Attributes are in all replies that RFC 1813 has them in: what a server
// leaves out, clients ask for by themselves, or take what they have for out of date.
type disk struct {
	dir    string
	counts bool     // makes two more system calls, see -counts
	fds    sync.Map // int by path: open files
}

func (s *disk) root() nfs3.FH { return nfs3.FH(".") }

// waits: what has to be synced.
func (s *disk) waits(proc uint32, d xdr.Decoder) bool {
	if proc != nfs3.ProcWrite {
		return proc == nfs3.ProcCommit
	}
	var args nfs3.WriteArgs
	args.Decode(&d)
	return args.Stable != nfs3.Unstable
}

// path is where the file of a handle is.
func (s *disk) path(h nfs3.FH) string { return s.dir + "/" + string(h) }

// fd is a descriptor of a file or directory.
func (s *disk) fd(h nfs3.FH) (int, error) {
	if fd, ok := s.fds.Load(string(h)); ok {
		return fd.(int), nil
	}
	fd, err := unix.Open(s.path(h), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EISDIR) {
		fd, err = unix.Open(s.path(h), unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return -1, stale(err)
	}
	if other, ok := s.fds.LoadOrStore(string(h), fd); ok {
		_ = unix.Close(fd)
		fd = other.(int)
	}
	return fd, nil
}

// forget closes the descriptor of what is no longer there.
func (s *disk) forget(h nfs3.FH) {
	if fd, ok := s.fds.LoadAndDelete(string(h)); ok {
		_ = unix.Close(fd.(int)) // nothing is lost with it that was not told
	}
}

// attr tells the attributes of a file.
func (s *disk) attr(h nfs3.FH) (nfs3.PostOpAttr, error) {
	var st unix.Stat_t
	var err error
	if fd, ok := s.fds.Load(string(h)); ok {
		err = unix.Fstat(fd.(int), &st)
	} else {
		err = stale(unix.Lstat(s.path(h), &st))
	}
	return nfs3.PostOpAttr{Present: err == nil, Attr: fattr(&st)}, err
}

// change tells the attributes of a file before and after it is changed.
func (s *disk) change(h nfs3.FH, do func(fd int) error) (nfs3.WccData, error) {
	fd, err := s.fd(h)
	if err != nil {
		return nfs3.WccData{}, err
	}
	was, err := s.attr(h)
	if err == nil {
		err = do(fd)
	}
	is, _ := s.attr(h)
	before := nfs3.PreOpAttr{Present: was.Present, Size: was.Attr.Size, Mtime: was.Attr.Mtime, Ctime: was.Attr.Ctime}
	return nfs3.WccData{Before: before, After: is}, err
}

func (s *disk) answer(proc uint32, d *xdr.Decoder, out, block []byte) (results, data []byte) {
	switch proc {
	case nfs3.ProcNull:
		return out, nil
	case nfs3.ProcGetattr:
		var args nfs3.GetattrArgs
		args.Decode(d)
		attr, err := s.attr(args.Object)
		return (&nfs3.GetattrRes{Status: status(err), Attr: attr.Attr}).Append(out), nil
	case nfs3.ProcSetattr:
		var args nfs3.SetattrArgs
		args.Decode(d)
		wcc, err := s.change(args.Object, func(fd int) error { return s.set(fd, args.Object, &args.Attr) })
		return (&nfs3.SetattrRes{Status: status(err), Wcc: wcc}).Append(out), nil
	case nfs3.ProcAccess:
		var args nfs3.AccessArgs
		args.Decode(d)
		attr, err := s.attr(args.Object)
		return (&nfs3.AccessRes{Status: status(err), Attr: attr, Access: args.Access}).Append(out), nil
	case nfs3.ProcRead:
		var args nfs3.ReadArgs
		args.Decode(d)
		var n int
		fd, err := s.fd(args.File)
		if err == nil {
			n, err = unix.Pread(fd, block[:args.Count], int64(args.Offset))
		}
		attr, _ := s.attr(args.File)
		if err != nil {
			return (&nfs3.ReadRes{Status: status(err), Attr: attr}).Append(out), nil
		}
		return readRes(&nfs3.ReadRes{Attr: attr, Data: block[:n], EOF: args.Offset+uint64(n) >= attr.Attr.Size}, out)
	case nfs3.ProcWrite:
		var args nfs3.WriteArgs
		args.Decode(d)
		wcc, err := s.change(args.File, func(fd int) error {
			_, err := unix.Pwrite(fd, args.Data, int64(args.Offset))
			if err == nil && args.Stable != nfs3.Unstable {
				err = unix.Fsync(fd)
			}
			return err
		})
		return (&nfs3.WriteRes{Status: status(err), Wcc: wcc, Count: args.Count, Committed: args.Stable}).Append(out), nil
	case nfs3.ProcCommit:
		var args nfs3.CommitArgs
		args.Decode(d)
		wcc, err := s.change(args.File, unix.Fsync)
		return (&nfs3.CommitRes{Status: status(err), Wcc: wcc}).Append(out), nil
	case nfs3.ProcFsstat:
		return (&nfs3.FsstatRes{TBytes: 1 << 40, FBytes: 1 << 40, ABytes: 1 << 40, TFiles: 1 << 30, FFiles: 1 << 30, AFiles: 1 << 30}).Append(out), nil
	case nfs3.ProcFsinfo:
		return (&nfs3.FsinfoRes{
			RtMax: 1 << 20, RtPref: 1 << 20, RtMult: 4096, WtMax: 1 << 20, WtPref: 1 << 20, WtMult: 4096,
			DtPref: 64 << 10, MaxFileSize: math.MaxInt64, TimeDelta: nfs3.Time{Nsec: 1}, Properties: nfs3.FSFHomogeneous | nfs3.FSFCanSetTime,
		}).Append(out), nil
	case nfs3.ProcPathconf:
		return (&nfs3.PathconfRes{LinkMax: 1, NameMax: 255, NoTrunc: true, CasePreserving: true}).Append(out), nil
	}
	return s.names(proc, d, out, block), nil
}

// set sets the attributes that the loads do.
func (s *disk) set(fd int, h nfs3.FH, attr *nfs3.Sattr) (err error) {
	if attr.Mode.Set {
		err = unix.Fchmod(fd, attr.Mode.Value)
	}
	if err == nil && attr.Size.Set {
		err = unix.Ftruncate(fd, int64(attr.Size.Value))
	}
	if err != nil || attr.Atime.How == nfs3.DontChange && attr.Mtime.How == nfs3.DontChange {
		return err
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, s.path(h), []unix.Timespec{timespec(attr.Atime), timespec(attr.Mtime)}, 0)
}

// timespec is what utimensat(2) takes.
func timespec(t nfs3.SetTime) unix.Timespec {
	switch t.How {
	case nfs3.SetToServerTime:
		return unix.Timespec{Nsec: unix.UTIME_NOW}
	case nfs3.SetToClientTime:
		return unix.Timespec{Sec: int64(t.Time.Sec), Nsec: int64(t.Time.Nsec)}
	}
	return unix.Timespec{Nsec: unix.UTIME_OMIT}
}

// in is the handle of a name in a directory.
func in(dir nfs3.FH, name []byte) nfs3.FH { return appendIn(nil, dir, name) }

func appendIn(b, dir nfs3.FH, name []byte) nfs3.FH {
	if string(dir) != "." {
		b = append(append(b, dir...), '/')
	}
	return append(b, name...)
}

// stale is the error of what has a handle and is not there any more.
func stale(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return unix.ESTALE
	}
	return err
}

func status(err error) nfs3.Status {
	switch {
	case err == nil:
		return nfs3.OK
	case errors.Is(err, unix.ENOENT):
		return nfs3.ErrNoEnt
	case errors.Is(err, unix.EEXIST):
		return nfs3.ErrExist
	case errors.Is(err, unix.EISDIR):
		return nfs3.ErrIsDir
	case errors.Is(err, unix.ENAMETOOLONG):
		return nfs3.ErrNameTooLong
	case errors.Is(err, unix.ENOTEMPTY):
		return nfs3.ErrNotEmpty
	case errors.Is(err, unix.ESTALE):
		return nfs3.ErrStale
	}
	return nfs3.ErrIO
}

func fattr(st *unix.Stat_t) nfs3.Fattr {
	return nfs3.Fattr{
		Type: fileType(st.Mode), Mode: st.Mode & 0o7777, Nlink: uint32(st.Nlink), UID: st.Uid, GID: st.Gid,
		Size: uint64(st.Size), Used: uint64(st.Blocks) * 512, FSID: 1, FileID: st.Ino,
		Atime: nfs3.Time{Sec: uint32(st.Atim.Sec), Nsec: uint32(st.Atim.Nsec)},
		Mtime: nfs3.Time{Sec: uint32(st.Mtim.Sec), Nsec: uint32(st.Mtim.Nsec)},
		Ctime: nfs3.Time{Sec: uint32(st.Ctim.Sec), Nsec: uint32(st.Ctim.Nsec)},
	}
}

// fileType knows what the loads make.
func fileType(mode uint32) nfs3.FType {
	if mode&unix.S_IFMT == unix.S_IFDIR {
		return nfs3.TypeDir
	}
	return nfs3.TypeReg
}
