package nfs3

import (
	"errors"
	"runtime"
	"syscall"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/vfs"
)

const (
	// listTail is the end of a list and eof, in bytes.
	listTail = 4 + 4
	// listMax is how much is listed at once, and listTime for how long at most, but for
	// what one system call takes: clients ask for 64 KiB, FSINFO's dtpref, and go on
	// where the list ends.
	listMax  = 256 << 10
	listTime = 100 * time.Millisecond
	// yieldEvery is after how many entries others have their turn, some 100 µs: a list
	// takes as long as a hundred small calls.
	yieldEvery = 32
	// entrySize is the most that an entry of READDIRPLUS takes, in bytes.
	entrySize = 4 + 8 + 4 + nfs3.MaxName + 1 + 8 + 4 + 84 + 4 + 4 + nfs3.FHSize
)

// The cookie verifier is always 0: a cookie is the kernel's own position, which
// stays right while the directory changes, and after a restart.

// listing appends the entries of a directory to a result, as many as fit.
type listing struct {
	b   []byte // the result so far
	max int    // how long it may become, with listTail
	// dirMax bounds what READDIRPLUS counts by dircount: names, ids and cookies.
	dirMax int
	eof    bool
}

// fill lists a directory from a cookie on. plus tells more of an entry, nil for
// READDIR. ErrTooSmall, as errTooSmall, if there is an entry and none fits.
func (l *listing) fill(dir *export.File, cookie uint64, plus func(*nfs3.EntryPlus)) error {
	// What was read and does not fit is read again by the next call. Of an entry,
	// READDIRPLUS tells about five times as much as getdents64(2).
	size := l.dirMax
	if plus != nil {
		size = min(size, (l.max-len(l.b))/5)
	}
	list, err := dir.List(cookie, min(size, 64<<10))
	if errors.Is(err, syscall.EINVAL) && cookie != 0 {
		return errBadCookie
	}
	if err != nil {
		return err
	}
	defer list.Close()
	var entry nfs3.EntryPlus // out of the loop: plus makes it escape
	began := time.Now()
	for n := 0; ; n++ {
		if n%yieldEvery == yieldEvery-1 {
			if time.Since(began) > listTime {
				return nil
			}
			runtime.Gosched()
		}
		e, ok, err := list.Next()
		if err != nil {
			return err
		}
		if !ok {
			l.eof = true
			return nil
		}
		entry = nfs3.EntryPlus{Entry: nfs3.Entry{FileID: e.Ino, Name: e.Name, Cookie: e.Cookie}}
		if string(e.Name) == ".." && dir.IsRoot() {
			entry.FileID = dir.Attr.Ino // clients must not learn what is above the volume
		}
		before := len(l.b)
		if plus == nil {
			l.b = entry.Entry.Append(l.b)
		} else {
			plus(&entry)
			l.b = entry.Append(l.b)
		}
		l.dirMax -= 8 + 4 + len(e.Name) + 8
		if len(l.b)+listTail > l.max || l.dirMax < 0 {
			l.b = l.b[:before]
			if n == 0 {
				return errTooSmall
			}
			return nil
		}
	}
}

// end closes the list.
func (l *listing) end() []byte {
	l.b = xdr.AppendBool(l.b, false) // no more entries
	return xdr.AppendBool(l.b, l.eof)
}

// encoded is a result that is encoded already.
type encoded []byte

func (e encoded) Append([]byte) []byte { return e }

// readdir: section 3.3.16.
func (s *service) readdir(c *oncrpc.Call) oncrpc.Answer {
	t := s.task(c)
	var args nfs3.ReaddirArgs
	if !decode(c, &args) {
		return t.badArgs()
	}
	return t.list(args.Dir, args.Cookie, args.Count, args.Count, nil)
}

// readdirplus: section 3.3.17.
func (s *service) readdirplus(c *oncrpc.Call) oncrpc.Answer {
	t := s.task(c)
	var args nfs3.ReaddirplusArgs
	if !decode(c, &args) {
		return t.badArgs()
	}
	var handle [nfs3.FHSize]byte
	return t.list(args.Dir, args.Cookie, args.DirCount, args.MaxCount, func(dir *export.File, e *nfs3.EntryPlus) {
		switch string(e.Name) {
		case ".":
			attr := vfs.AttrsOf(dir)
			e.Attr, e.Object = postOp(dir.Volume, &attr), dir.Handle()
		case "..": // LOOKUP says whether it is in the volume
		default:
			// What is gone, mounted over, or may not be looked at, has neither.
			if a, object, err := dir.Describe(e.Name, handle[:0]); err == nil {
				e.Attr, e.Object = nfs3.PostOpAttr{Present: true, Attr: fattr(dir.Volume, &a)}, object
				e.FileID = a.Ino
			}
		}
	})
}

func (t *task) list(handle nfs3.FH, cookie uint64, dirCount, maxCount uint32, plus func(*export.File, *nfs3.EntryPlus)) oncrpc.Answer {
	size := int(min(maxCount, listMax))
	if !t.Call.Reserve(size + entrySize) { // the entry that turns out to be too much
		return t.fail(rpc.SystemErr)
	}
	dir, err := t.Open(handle, export.UseAttr)
	if err != nil {
		return t.reply(&nfs3.ReaddirRes{Status: statusOf(err)})
	}
	return t.answerAsCaller(func(t *task) result {
		start := len(t.Call.Reply)
		res := nfs3.ReaddirRes{DirAttr: postOpOf(dir)}
		// The head, whose status is OK, and the two booleans of an empty list,
		// which go again.
		b := res.Append(t.Call.Reply)
		l := listing{b: b[:len(b)-listTail], max: start + size, dirMax: int(min(dirCount, listMax))}
		var describe func(*nfs3.EntryPlus)
		if plus != nil {
			describe = func(e *nfs3.EntryPlus) { plus(dir, e) }
		}
		if err := l.fill(dir, cookie, describe); err != nil {
			res.Status = statusOf(err)
			return &res
		}
		return encoded(l.end())
	})
}
