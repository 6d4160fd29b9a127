package nfsv3

import (
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/vfs"
)

// statusSize is how much a result has before what count and maxcount bound, READDIR3resok.
const statusSize = 4

// entrySize is the most that an entry of READDIRPLUS takes, in bytes.
const entrySize = 4 + 8 + 4 + nfs3.MaxName + 1 + 8 + 4 + 84 + 4 + 4 + nfs3.FHSize

// fill lists a directory from a cookie on. plus adds to an entry what READDIRPLUS has of it, nil for
// READDIR.
func (t *task) fill(l *vfs.Listing, dir *inode.File, cookie uint64, plus func(*inode.File, inode.Entry, *nfs3.EntryPlus)) error {
	// What was read and does not fit is read again by the next call. Of an entry,
	// READDIRPLUS tells about five times as much as getdents64(2).
	size := l.DirMax
	if plus != nil {
		size = min(size, (l.Max-len(l.Bytes))/5)
	}
	var entry nfs3.EntryPlus // out of the function: plus makes it escape
	return t.List(dir, l, cookie, size, func(e inode.Entry) (more bool, err error) {
		entry = nfs3.EntryPlus{Entry: nfs3.Entry{FileID: e.Ino, Name: e.Name, Cookie: e.Cookie}}
		if string(e.Name) == ".." && dir.IsRoot() {
			entry.FileID = dir.Attr.Ino // clients must not learn what is above the volume
		}
		if plus == nil {
			return l.Add(entry.Entry.Append(l.Bytes), e.Name)
		}
		plus(dir, e, &entry)
		return l.Add(entry.Append(l.Bytes), e.Name)
	})
}

// encoded is a result that is encoded already.
type encoded []byte

func (e encoded) Append([]byte) []byte { return e }

// readdir: section 3.3.16.
func (t *task) readdir(args *nfs3.ReaddirArgs) (result, rpc.AcceptStat) {
	return t.list(args.Dir, args.Cookie, args.CookieVerf, args.Count, args.Count, nil)
}

// readdirplus: section 3.3.17.
func (t *task) readdirplus(args *nfs3.ReaddirplusArgs) (result, rpc.AcceptStat) {
	var handle [nfs3.FHSize]byte
	return t.list(args.Dir, args.Cookie, args.CookieVerf, args.DirCount, args.MaxCount, func(dir *inode.File, entry inode.Entry, e *nfs3.EntryPlus) {
		switch string(e.Name) {
		case ".":
			attr := vfs.AttrsOf(dir)
			e.Attr, e.Object = postOp(dir.Volume, &attr), dir.Handle()
		case "..": // LOOKUP says whether it is in the volume
		default:
			// What is gone, mounted over, or may not be looked at, has neither.
			if a, object, err := entry.Describe(handle[:0]); err == nil {
				e.Attr, e.Object = nfs3.PostOpAttr{Present: true, Attr: fattr(dir.Volume, &a)}, object
				e.FileID = a.Ino
			}
		}
	})
}

func (t *task) list(handle nfs3.FH, cookie uint64, verf [nfs3.CookieVerfSize]byte, dirCount, maxCount uint32, plus func(*inode.File, inode.Entry, *nfs3.EntryPlus)) (result, rpc.AcceptStat) {
	size := int(min(maxCount, vfs.ListMax))
	if !t.rpc.Reserve(statusSize + size + entrySize) { // the entry that turns out to be too much
		return nil, rpc.SystemErr
	}
	dir, err := t.Open(handle, inode.UseAttr)
	if err == nil && cookie != 0 && verf != [nfs3.CookieVerfSize]byte{} { // it was never given out: see vfs.Listing
		err = vfs.ErrBadCookie
	}
	if err != nil {
		return &nfs3.ReaddirRes{Status: t.statusOf(err)}, rpc.Success
	}
	start := len(t.rpc.Reply)
	res := nfs3.ReaddirRes{DirAttr: postOpOf(dir)}
	// The head, whose status is OK, and the two booleans of an empty list,
	// which go again.
	b := res.Append(t.rpc.Reply)
	l := &vfs.Listing{Bytes: b[:len(b)-vfs.ListTail], Max: start + statusSize + size, DirMax: int(min(dirCount, vfs.ListMax))}
	if err := t.fill(l, dir, cookie, plus); err != nil {
		res.Status = t.statusOf(err)
		return &res, rpc.Success
	}
	return encoded(xdr.AppendBool(xdr.AppendBool(l.Bytes, false), l.EOF)), rpc.Success // no more entries
}
