package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/nfs3"
	"github.com/podnas/podnas/server/xdr"
)

// disk serves a directory. A handle is a path in it, which is why there is nothing to
// look up, or to remember but the descriptors.
type disk struct {
	dir string
	fds sync.Map // int by path: open files
}

func (s *disk) root() nfs3.FH { return nfs3.FH("/") }

// waits: what has to be synced.
func (s *disk) waits(proc uint32, d xdr.Decoder) bool {
	if proc != nfs3.ProcWrite {
		return proc == nfs3.ProcCommit
	}
	var args nfs3.WriteArgs
	args.Decode(&d)
	return args.Stable != nfs3.Unstable
}

// fd is a descriptor of a file or directory.
func (s *disk) fd(path nfs3.FH) (int, error) {
	if fd, ok := s.fds.Load(string(path)); ok {
		return fd.(int), nil
	}
	fd, err := unix.Open(s.dir+string(path), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EISDIR) {
		fd, err = unix.Open(s.dir+string(path), unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return -1, err
	}
	if other, ok := s.fds.LoadOrStore(string(path), fd); ok {
		_ = unix.Close(fd)
		fd = other.(int)
	}
	return fd, nil
}

// forget closes the descriptor of what is no longer there.
func (s *disk) forget(path nfs3.FH) {
	if fd, ok := s.fds.LoadAndDelete(string(path)); ok {
		_ = unix.Close(fd.(int)) // nothing is lost with it that was not told
	}
}

// in is the path of a name in a directory.
func in(dir nfs3.FH, name []byte) nfs3.FH {
	if len(dir) == 1 {
		return append(nfs3.FH("/"), name...)
	}
	return append(append(bytes.Clone(dir), '/'), name...)
}

func (s *disk) answer(proc uint32, d *xdr.Decoder, out, block []byte) (results, data []byte) {
	switch proc {
	case nfs3.ProcGetattr:
		var args nfs3.GetattrArgs
		args.Decode(d)
		var st unix.Stat_t
		fd, err := s.fd(args.Object)
		if err == nil {
			err = unix.Fstat(fd, &st)
		}
		return (&nfs3.GetattrRes{Status: status(err), Attr: fattr(&st)}).Append(out), nil
	case nfs3.ProcSetattr:
		var args nfs3.SetattrArgs
		args.Decode(d)
		return (&nfs3.SetattrRes{Status: status(s.set(args.Object, &args.Attr))}).Append(out), nil
	case nfs3.ProcAccess:
		var args nfs3.AccessArgs
		args.Decode(d)
		return (&nfs3.AccessRes{Access: args.Access}).Append(out), nil
	case nfs3.ProcLookup:
		var args nfs3.LookupArgs
		args.Decode(d)
		attr, err := s.stat(args.Dir, args.Name)
		return (&nfs3.LookupRes{Status: status(err), Object: in(args.Dir, args.Name), Attr: attr}).Append(out), nil
	case nfs3.ProcRead:
		var args nfs3.ReadArgs
		args.Decode(d)
		n := 0
		fd, err := s.fd(args.File)
		if err == nil {
			n, err = unix.Pread(fd, block[:args.Count], int64(args.Offset))
		}
		if err != nil {
			return (&nfs3.ReadRes{Status: status(err)}).Append(out), nil
		}
		return readRes(&nfs3.ReadRes{Data: block[:n], EOF: n < int(args.Count)}, out)
	case nfs3.ProcWrite:
		var args nfs3.WriteArgs
		args.Decode(d)
		fd, err := s.fd(args.File)
		if err == nil {
			_, err = unix.Pwrite(fd, args.Data, int64(args.Offset))
		}
		if err == nil && args.Stable != nfs3.Unstable {
			err = unix.Fsync(fd)
		}
		return (&nfs3.WriteRes{Status: status(err), Count: args.Count, Committed: args.Stable}).Append(out), nil
	case nfs3.ProcCommit:
		var args nfs3.CommitArgs
		args.Decode(d)
		fd, err := s.fd(args.File)
		if err == nil {
			err = unix.Fsync(fd)
		}
		return (&nfs3.CommitRes{Status: status(err)}).Append(out), nil
	case nfs3.ProcFsinfo:
		return (&nfs3.FsinfoRes{RtMax: 1 << 20, WtMax: 1 << 20}).Append(out), nil
	case nfs3.ProcReaddirplus:
		return s.list(d, out, block), nil
	}
	return s.names(proc, d, out), nil
}

// names answers the calls that change a directory.
func (s *disk) names(proc uint32, d *xdr.Decoder, out []byte) []byte {
	var args nfs3.DirOpArgs
	if proc == nfs3.ProcRename {
		var args nfs3.RenameArgs
		args.Decode(d)
		from, err := s.fd(args.From.Dir)
		to, toErr := s.fd(args.To.Dir)
		if err = errors.Join(err, toErr); err == nil {
			err = unix.Renameat(from, string(args.From.Name), to, string(args.To.Name))
		}
		return (&nfs3.RenameRes{Status: status(err)}).Append(out)
	}
	args.Decode(d)
	dir, err := s.fd(args.Dir)
	if err != nil {
		return xdr.AppendUint32(out, uint32(status(err)))
	}
	name, path := string(args.Name), in(args.Dir, args.Name)
	switch proc {
	case nfs3.ProcCreate:
		var fd int
		if fd, err = unix.Openat(dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o644); err == nil {
			_ = unix.Close(fd) // nothing was written
		}
		return (&nfs3.CreateRes{Status: status(err), Object: path}).Append(out)
	case nfs3.ProcMkdir:
		return (&nfs3.MkdirRes{Status: status(unix.Mkdirat(dir, name, 0o755)), Object: path}).Append(out)
	case nfs3.ProcRemove:
		s.forget(path)
		return (&nfs3.RemoveRes{Status: status(unix.Unlinkat(dir, name, 0))}).Append(out)
	case nfs3.ProcRmdir:
		s.forget(path)
		return (&nfs3.RmdirRes{Status: status(unix.Unlinkat(dir, name, unix.AT_REMOVEDIR))}).Append(out)
	}
	return out
}

// stat is fstatat(2).
func (s *disk) stat(dir nfs3.FH, name []byte) (nfs3.PostOpAttr, error) {
	fd, err := s.fd(dir)
	if err != nil {
		return nfs3.PostOpAttr{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(fd, string(name), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nfs3.PostOpAttr{}, err
	}
	return nfs3.PostOpAttr{Present: true, Attr: fattr(&st)}, nil
}

// set sets the attributes that the loads do.
func (s *disk) set(path nfs3.FH, attr *nfs3.Sattr) error {
	fd, err := s.fd(path)
	if err == nil && attr.Mode.Set {
		err = unix.Fchmod(fd, attr.Mode.Value)
	}
	if err == nil && attr.Mtime.How == nfs3.SetToClientTime {
		now := unix.Timespec{Nsec: unix.UTIME_OMIT}
		to := unix.Timespec{Sec: int64(attr.Mtime.Time.Sec), Nsec: int64(attr.Mtime.Time.Nsec)}
		err = unix.UtimesNanoAt(unix.AT_FDCWD, s.dir+string(path), []unix.Timespec{now, to}, 0)
	}
	return err
}

// list answers READDIRPLUS.
func (s *disk) list(d *xdr.Decoder, out, block []byte) []byte {
	var args nfs3.ReaddirplusArgs
	args.Decode(d)
	limit := len(out) + int(args.MaxCount) - 8
	dir, err := os.Open(s.dir + string(args.Dir))
	if err != nil {
		return (&nfs3.ReaddirplusRes{Status: status(err)}).Append(out)
	}
	defer dir.Close()
	fd := int(dir.Fd())
	if _, err := unix.Seek(fd, int64(args.Cookie), 0); err != nil {
		return (&nfs3.ReaddirplusRes{Status: status(err)}).Append(out)
	}
	out = (&nfs3.ReaddirplusRes{}).Append(out)
	out = out[:len(out)-8] // the end of the list
	path := make(nfs3.FH, len(args.Dir), nfs3.FHSize)
	copy(path, args.Dir)
	var e nfs3.EntryPlus
	var stx unix.Statx_t
	for {
		n, err := unix.Getdents(fd, block[:args.MaxCount/5])
		if n <= 0 || err != nil {
			return xdr.AppendBool(xdr.AppendBool(out, false), err == nil)
		}
		for b := block[:n]; len(b) > 0; {
			// struct linux_dirent64, getdents64(2).
			before := len(out)
			size := binary.NativeEndian.Uint16(b[16:])
			name := b[19:size] // ends with 0
			e.Entry = nfs3.Entry{FileID: binary.NativeEndian.Uint64(b), Cookie: binary.NativeEndian.Uint64(b[8:]), Name: name[:bytes.IndexByte(name, 0)]}
			b = b[size:]
			// As fstatat(2), without a copy of the name.
			_, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(fd), uintptr(unsafe.Pointer(&name[0])), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, uintptr(unsafe.Pointer(&stx)), 0)
			if e.Attr, e.Object = (nfs3.PostOpAttr{}), nil; errno == 0 {
				path = append(append(path[:len(args.Dir)], '/'), e.Name...)
				e.Attr, e.Object = nfs3.PostOpAttr{Present: true, Attr: fattrOf(&stx)}, path
			}
			if out = e.Append(out); len(out) > limit {
				return xdr.AppendBool(xdr.AppendBool(out[:before], false), false)
			}
		}
	}
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
	}
	return nfs3.ErrIO
}

func fattr(st *unix.Stat_t) nfs3.Fattr {
	return nfs3.Fattr{
		Type: fileType(st.Mode), Mode: st.Mode & 0o7777, Nlink: 1, UID: st.Uid, GID: st.Gid,
		Size: uint64(st.Size), Used: uint64(st.Blocks) * 512, FileID: st.Ino,
		Atime: nfs3.Time{Sec: uint32(st.Atim.Sec), Nsec: uint32(st.Atim.Nsec)},
		Mtime: nfs3.Time{Sec: uint32(st.Mtim.Sec), Nsec: uint32(st.Mtim.Nsec)},
		Ctime: nfs3.Time{Sec: uint32(st.Ctim.Sec), Nsec: uint32(st.Ctim.Nsec)},
	}
}

func fattrOf(st *unix.Statx_t) nfs3.Fattr {
	return nfs3.Fattr{
		Type: fileType(uint32(st.Mode)), Mode: uint32(st.Mode) & 0o7777, Nlink: 1, UID: st.Uid, GID: st.Gid,
		Size: st.Size, Used: st.Blocks * 512, FileID: st.Ino,
		Atime: nfs3.Time{Sec: uint32(st.Atime.Sec), Nsec: st.Atime.Nsec},
		Mtime: nfs3.Time{Sec: uint32(st.Mtime.Sec), Nsec: st.Mtime.Nsec},
		Ctime: nfs3.Time{Sec: uint32(st.Ctime.Sec), Nsec: st.Ctime.Nsec},
	}
}

// fileType knows what the bench makes.
func fileType(mode uint32) nfs3.FType {
	if mode&unix.S_IFMT == unix.S_IFDIR {
		return nfs3.TypeDir
	}
	return nfs3.TypeReg
}
