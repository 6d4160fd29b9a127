package nfsv41

import (
	"errors"
	"math"
	"syscall"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/vfs"
)

const (
	// cookiesFrom is added to the kernel's positions: 0, 1 and 2 are reserved, section 18.23.
	cookiesFrom = 3
	// statusSize is how much a result has before what maxcount bounds, READDIR4resok.
	statusSize = 4
)

// cookieOf is the cookie of a position in a directory. The largest are not raised: ext4 and btrfs
// have 2^63-1 for the end, and no position just before it, and a client's programs go back to where
// they were with cookies as signed numbers, lseek(2).
func cookieOf(at uint64) uint64 {
	if at > math.MaxInt64-cookiesFrom {
		return at
	}
	return at + cookiesFrom
}

// positionOf is the position of a cookie that is not 0.
func positionOf(cookie uint64) uint64 {
	if cookie > math.MaxInt64-cookiesFrom {
		return cookie
	}
	return cookie - cookiesFrom
}

// encoded is a result that is encoded already.
type encoded struct{ res []byte }

func (e encoded) Append(b []byte) []byte { return append(b, e.res...) }

// readdir: RFC 8881 section 18.23.
func (c *compound) readdir(args *nfs4.ReaddirArgs) (result, error) {
	switch {
	case args.Cookie == 1, args.Cookie == 2:
		return nil, statusError(nfs4.ErrBadCookie)
	case args.Cookie != 0 && args.CookieVerf != nfs4.Verifier{}: // it was never given out: see vfs.Listing
		return nil, statusError(nfs4.ErrNotSame)
	case !args.Request.And(c.sets().writeOnly).Empty():
		return nil, statusError(nfs4.ErrInval)
	}
	dir, err := c.attrFile(&c.cur)
	if err != nil {
		return nil, err
	}
	asked := statusSize + int(min(args.MaxCount, vfs.ListMax))
	l := &lister{args: args, Listing: vfs.Listing{Max: min(asked, c.sessionRoom(opSize)), DirMax: int(min(args.DirCount, vfs.ListMax))}}
	if args.DirCount == 0 { // a hint that the client does not give
		l.DirMax = vfs.ListMax
	}
	space, err := c.space(opSize, l.Max+attrsMax) // the entry that turns out to be too much
	if err != nil {
		return nil, err
	}
	l.Max = min(l.Max, cap(space))
	l.Bytes = (&nfs4.ReaddirRes{}).AppendHead(space[:0])
	switch {
	case len(l.Bytes)+vfs.ListTail > l.Max:
		err = vfs.ErrTooSmall
	case dir == nil:
		err = c.listPseudo(l)
	case !dir.Attr.IsDir():
		err = syscall.ENOTDIR
	default:
		err = c.list(dir, l)
	}
	if errors.Is(err, vfs.ErrTooSmall) && l.Max < asked { // it is the reply that is too small
		err = statusError(nfs4.ErrRepTooBig)
	}
	if err != nil {
		return nil, err
	}
	return encoded{(&nfs4.ReaddirRes{EOF: l.EOF}).AppendTail(l.Bytes)}, nil
}

// lister appends entries to a result.
type lister struct {
	vfs.Listing
	args  *nfs4.ReaddirArgs
	attrs nfs4.Attrs // of the next entry
}

// add is false if the entry does not fit.
func (l *lister) add(cookie uint64, name []byte) (bool, error) {
	return l.Add(nfs4.AppendEntry(l.Bytes, cookie, name, &l.attrs, l.args.Request), name)
}

// list lists a directory of a volume. It has no "." and "..".
func (c *compound) list(dir *inode.File, l *lister) error {
	at := l.args.Cookie
	if at != 0 {
		at = positionOf(at)
	}
	size := l.DirMax
	if !l.args.Request.Empty() {
		// What was read and does not fit is read again by the next call. Of an entry, the
		// attributes that Linux asks for take six times as much as getdents64(2) tells.
		size = min(size, (l.Max-len(l.Bytes))/6)
	}
	var names owners
	var handle [locate.HandleMax]byte
	return c.List(dir, &l.Listing, at, size, func(e inode.Entry) (more bool, err error) {
		if string(e.Name) == "." || string(e.Name) == ".." {
			return true, nil
		}
		if l.args.Request.Empty() { // a name takes no right to search the directory
			return l.add(cookieOf(e.Cookie), e.Name)
		}
		a, object, err := e.Describe(handle[:0])
		var change uint64
		if err == nil && l.args.Request.Has(nfs4.AttrChange) {
			change, a, object, err = dir.ChangeOf(e.Name, object, a)
		}
		switch {
		case errors.Is(err, syscall.ENOENT): // gone
			return true, nil
		case err == nil:
			err = c.attrs(dir.Volume, &a, change, object, l.args.Request, &names, &l.attrs)
			if err == nil && l.attrs.Mask.And(l.args.Request).Has(nfs4.AttrACL) {
				l.attrs.ACL, err = c.entryACL(dir, e.Name)
			}
		}
		if err != nil { // what may not be looked at has no attributes: section 5.8.1.12
			if !l.args.Request.Has(nfs4.AttrRdattrError) {
				return false, err
			}
			l.attrs = nfs4.Attrs{Mask: nfs4.BitmapOf(nfs4.AttrRdattrError), RdattrError: statusOf(err)}
		}
		return l.add(cookieOf(e.Cookie), e.Name)
	})
}

// listPseudo lists a pseudo directory. What is a volume has its root's attributes.
func (c *compound) listPseudo(l *lister) error {
	var names owners
	last := ""
	for _, e := range c.cur.node.after(l.args.Cookie) {
		if e.name == last || !e.isSeen(c.rpc.Client) {
			continue
		}
		last = e.name
		if e.volume == nil {
			c.pseudoAttrs(e.node, &l.attrs)
		} else if err := c.Shortly(func() error { return c.rootAttrs(e.volume, l, &names) }); err != nil {
			l.attrs = nfs4.Attrs{Mask: nfs4.BitmapOf(nfs4.AttrRdattrError), RdattrError: statusOf(err)}
		}
		if fits, err := l.add(e.cookie, []byte(e.name)); !fits {
			return err
		}
	}
	l.EOF = true
	return nil
}

func (c *compound) rootAttrs(v *exports.Volume, l *lister, names *owners) error {
	handle := c.server.opener.Root(v)
	f, err := c.Open(handle, inode.UseAttr)
	if err != nil {
		return err
	}
	change, a, err := f.Change(f.Attr)
	if err != nil {
		return err
	}
	if l.args.Request.Has(nfs4.AttrACL) {
		if l.attrs.ACL, err = c.fileACL(f); err != nil {
			return err
		}
	}
	a.Birth = f.Birth()
	return c.attrs(f.Volume, &a, change, handle, l.args.Request, names, &l.attrs)
}

// entryACL is fileACL of a name in a directory. No client asks for that in a listing.
func (c *compound) entryACL(dir *inode.File, name []byte) ([]nfs4.ACE, error) {
	f, err := dir.Lookup(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return c.fileACL(f)
}
