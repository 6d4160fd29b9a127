package main

import (
	"bytes"
	"encoding/binary"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/xdr"
)

// names answers the calls of directories.
func (s *disk) names(proc uint32, d *xdr.Decoder, out, block []byte) []byte {
	var args nfs3.DirOpArgs
	switch proc {
	case nfs3.ProcLookup:
		args.Decode(d)
		object := in(args.Dir, args.Name)
		dir, _ := s.attr(args.Dir)
		var st unix.Stat_t
		fd, err := s.fd(args.Dir)
		if len(object) > nfs3.FHSize {
			err = unix.ENAMETOOLONG
		}
		if err == nil {
			err = unix.Fstatat(fd, string(args.Name), &st, unix.AT_SYMLINK_NOFOLLOW)
		}
		return (&nfs3.LookupRes{Status: status(err), Object: object, Attr: nfs3.PostOpAttr{Present: true, Attr: fattr(&st)}, DirAttr: dir}).Append(out)
	case nfs3.ProcCreate, nfs3.ProcMkdir:
		return s.make(proc, d, out)
	case nfs3.ProcRemove, nfs3.ProcRmdir:
		args.Decode(d)
		s.forget(in(args.Dir, args.Name))
		wcc, err := s.change(args.Dir, func(fd int) error {
			if proc == nfs3.ProcRmdir {
				return unix.Unlinkat(fd, string(args.Name), unix.AT_REMOVEDIR)
			}
			if s.counts {
				var st unix.Stat_t
				_ = unix.Fstatat(fd, string(args.Name), &st, unix.AT_SYMLINK_NOFOLLOW) // or the removal fails
			}
			return unix.Unlinkat(fd, string(args.Name), 0)
		})
		return (&nfs3.RemoveRes{Status: status(err), Wcc: wcc}).Append(out)
	case nfs3.ProcRename:
		var args nfs3.RenameArgs
		args.Decode(d)
		s.forget(in(args.From.Dir, args.From.Name))
		s.forget(in(args.To.Dir, args.To.Name))
		rename := func(from, to int) error {
			return unix.Renameat(from, string(args.From.Name), to, string(args.To.Name))
		}
		if bytes.Equal(args.From.Dir, args.To.Dir) {
			wcc, err := s.change(args.From.Dir, func(dir int) error { return rename(dir, dir) })
			return (&nfs3.RenameRes{Status: status(err), FromWcc: wcc, ToWcc: wcc}).Append(out)
		}
		var to nfs3.WccData
		from, err := s.change(args.From.Dir, func(fromDir int) (err error) {
			to, err = s.change(args.To.Dir, func(toDir int) error { return rename(fromDir, toDir) })
			return err
		})
		return (&nfs3.RenameRes{Status: status(err), FromWcc: from, ToWcc: to}).Append(out)
	case nfs3.ProcReaddir:
		var args nfs3.ReaddirArgs
		args.Decode(d)
		return s.list(args.Dir, args.Cookie, int(args.Count), false, out, block)
	case nfs3.ProcReaddirplus:
		var args nfs3.ReaddirplusArgs
		args.Decode(d)
		return s.list(args.Dir, args.Cookie, int(args.MaxCount), true, out, block)
	}
	// Most results are a status and absent attributes.
	return xdr.AppendUint64(xdr.AppendUint32(out, uint32(nfs3.ErrNotSupp)), 0)
}

// make answers CREATE and MKDIR.
func (s *disk) make(proc uint32, d *xdr.Decoder, out []byte) []byte {
	var args nfs3.CreateArgs
	if proc == nfs3.ProcCreate {
		args.Decode(d)
	} else {
		var m nfs3.MkdirArgs
		m.Decode(d)
		args.Where, args.Attr = m.Where, m.Attr
	}
	object := in(args.Where.Dir, args.Where.Name)
	if len(object) > nfs3.FHSize {
		return (&nfs3.CreateRes{Status: nfs3.ErrNameTooLong}).Append(out)
	}
	name, mode := string(args.Where.Name), args.Attr.Mode.Value
	var st unix.Stat_t
	wcc, err := s.change(args.Where.Dir, func(dir int) error {
		if proc == nfs3.ProcMkdir {
			if err := unix.Mkdirat(dir, name, mode); err != nil {
				return err
			}
			return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		}
		flags := unix.O_CREAT | unix.O_RDWR | unix.O_CLOEXEC
		if args.Mode != nfs3.Unchecked {
			flags |= unix.O_EXCL
		}
		fd, err := unix.Openat(dir, name, flags, mode)
		if err != nil {
			return err
		}
		if s.counts {
			s.forget(object)
			s.fds.Store(string(object), fd)
		} else {
			defer unix.Close(fd) // nothing was written
		}
		// What is made needs a handle that outlives a rename, though here it gets another.
		if _, _, err := unix.NameToHandleAt(fd, "", unix.AT_EMPTY_PATH); err != nil {
			return err
		}
		return unix.Fstat(fd, &st)
	})
	return (&nfs3.CreateRes{
		Status: status(err), Object: object,
		Attr: nfs3.PostOpAttr{Present: true, Attr: fattr(&st)}, DirWcc: wcc,
	}).Append(out)
}

// list answers READDIR, and READDIRPLUS, within limit bytes.
func (s *disk) list(h nfs3.FH, cookie uint64, limit int, plus bool, out, block []byte) []byte {
	end := len(out) + limit - 8
	dir, err := os.Open(s.path(h))
	if err != nil {
		return (&nfs3.ReaddirRes{Status: status(stale(err))}).Append(out)
	}
	defer dir.Close()
	fd := int(dir.Fd())
	if _, err := unix.Seek(fd, int64(cookie), 0); err != nil {
		return (&nfs3.ReaddirRes{Status: status(err)}).Append(out)
	}
	attr, _ := s.attr(h)
	out = (&nfs3.ReaddirRes{DirAttr: attr}).Append(out)
	out = out[:len(out)-8] // the end of the list
	var path nfs3.FH
	var e nfs3.EntryPlus
	var stx unix.Statx_t
	for {
		n, err := unix.Getdents(fd, block[:max(limit/5, 1<<10)])
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
			if !plus {
				out = e.Entry.Append(out)
			} else {
				e.Attr, e.Object = nfs3.PostOpAttr{}, nil
				// As fstatat(2), without a copy of the name.
				_, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(fd), uintptr(unsafe.Pointer(&name[0])), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, uintptr(unsafe.Pointer(&stx)), 0)
				if errno == 0 && string(e.Name) != "." && string(e.Name) != ".." {
					path = appendIn(path[:0], h, e.Name)
					if e.Attr = (nfs3.PostOpAttr{Present: true, Attr: fattrOf(&stx)}); len(path) <= nfs3.FHSize {
						e.Object = path
					}
				}
				out = e.Append(out)
			}
			if len(out) > end {
				return xdr.AppendBool(xdr.AppendBool(out[:before], false), false)
			}
		}
	}
}

func fattrOf(st *unix.Statx_t) nfs3.Fattr {
	return nfs3.Fattr{
		Type: fileType(uint32(st.Mode)), Mode: uint32(st.Mode) & 0o7777, Nlink: st.Nlink, UID: st.Uid, GID: st.Gid,
		Size: st.Size, Used: st.Blocks * 512, FSID: 1, FileID: st.Ino,
		Atime: nfs3.Time{Sec: uint32(st.Atime.Sec), Nsec: st.Atime.Nsec},
		Mtime: nfs3.Time{Sec: uint32(st.Mtime.Sec), Nsec: st.Mtime.Nsec},
		Ctime: nfs3.Time{Sec: uint32(st.Ctime.Sec), Nsec: st.Ctime.Nsec},
	}
}
