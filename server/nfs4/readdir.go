package nfs4

import (
	"errors"
	"runtime"
	"syscall"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/export"
)

const (
	// listMax is how much is listed at once, and listTime for how long at most.
	listMax  = 256 << 10
	listTime = 100 * time.Millisecond
	// yieldEvery is after how many entries others have their turn.
	yieldEvery = 32
	// listTail is the end of a list and eof, in bytes.
	listTail = 4 + 4
	// cookiesFrom is added to the kernel's positions: 0, 1 and 2 are reserved, section 18.23.
	cookiesFrom = 3
)

// The cookie verifier is always 0: a cookie is the kernel's own position, which
// stays right while the directory changes, and after a restart.

// encoded is a result that is encoded already.
type encoded struct{ res []byte }

func (e encoded) Append(b []byte) []byte { return append(b, e.res...) }

// readdir: RFC 8881 section 18.23.
func (c *compound) readdir() (result, error) {
	var args nfs4.ReaddirArgs
	if args.Decode(&c.Call.Args); c.Call.Args.Err() != nil {
		return nil, c.Call.Args.Err()
	}
	switch {
	case args.Cookie == 1, args.Cookie == 2:
		return nil, statusError(nfs4.ErrBadCookie)
	case !args.Request.And(c.server.sets.writeOnly).Empty():
		return nil, statusError(nfs4.ErrInval)
	}
	dir, err := c.attrFile(&c.cur)
	if err != nil {
		return nil, err
	}
	l := &lister{args: &args, max: int(min(args.MaxCount, listMax)), dirMax: int(min(args.DirCount, listMax))}
	if args.DirCount == 0 { // a hint that the client does not give
		l.dirMax = listMax
	}
	l.b = (&nfs4.ReaddirRes{}).AppendHead(nil)
	if len(l.b)+listTail > l.max {
		return nil, statusError(nfs4.ErrTooSmall)
	}
	if dir == nil {
		err = c.listPseudo(l)
	} else {
		if !dir.Attr.IsDir() {
			return nil, syscall.ENOTDIR
		}
		if err := c.asCaller(); err != nil {
			return nil, err
		}
		err = c.list(dir, l)
	}
	if err != nil {
		return nil, err
	}
	return encoded{(&nfs4.ReaddirRes{EOF: l.eof}).AppendTail(l.b)}, nil
}

// lister appends the entries of a directory to a result, as many as fit.
type lister struct {
	args   *nfs4.ReaddirArgs
	b      []byte // the result so far
	max    int    // how long it may become, with listTail
	dirMax int    // of names and cookies
	n      int    // entries
	eof    bool
	attrs  nfs4.Attrs
}

// add is false if the entry does not fit.
func (l *lister) add(cookie uint64, name []byte) (bool, error) {
	before := len(l.b)
	l.b = nfs4.AppendEntry(l.b, cookie, name, &l.attrs, l.args.Request)
	l.dirMax -= 8 + 4 + len(name) + 8
	if len(l.b)+listTail <= l.max && l.dirMax >= 0 {
		l.n++
		return true, nil
	}
	l.b = l.b[:before]
	if l.n == 0 {
		return false, statusError(nfs4.ErrTooSmall)
	}
	return false, nil
}

// list lists a directory of a volume. It has no "." and "..".
func (c *compound) list(dir *export.File, l *lister) error {
	at := l.args.Cookie
	if at != 0 {
		at -= cookiesFrom
	}
	list, err := dir.List(at, min(l.dirMax, 64<<10))
	if errors.Is(err, syscall.EINVAL) && at != 0 {
		return statusError(nfs4.ErrBadCookie)
	}
	if err != nil {
		return err
	}
	defer list.Close()
	var names owners
	var handle [export.HandleMax]byte
	began := time.Now()
	for n := 0; ; n++ {
		if n%yieldEvery == yieldEvery-1 {
			if time.Since(began) > listTime && l.n > 0 {
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
		if string(e.Name) == "." || string(e.Name) == ".." {
			continue
		}
		a, object, err := dir.Describe(e.Name, handle[:0])
		var change uint64
		if err == nil && l.args.Request.Has(nfs4.AttrChange) {
			change, a, err = dir.ChangeOf(e.Name, object, a)
		}
		switch {
		case errors.Is(err, syscall.ENOENT): // gone
			continue
		case err == nil:
			err = c.server.attrs(dir, &a, change, object, l.args.Request, &names, &l.attrs)
		}
		if err != nil { // what may not be looked at has no attributes: section 5.8.1.12
			if !l.args.Request.Has(nfs4.AttrRdattrError) {
				return err
			}
			l.attrs = nfs4.Attrs{Mask: nfs4.BitmapOf(nfs4.AttrRdattrError), RdattrError: statusOf(err)}
		}
		if fits, err := l.add(e.Cookie+cookiesFrom, e.Name); !fits {
			return err
		}
	}
}

// listPseudo lists a pseudo directory. What is a volume has its root's attributes.
func (c *compound) listPseudo(l *lister) error {
	n := c.cur.node
	var names owners
	for i, e := range n.entries {
		cookie := uint64(i) + cookiesFrom
		if cookie <= l.args.Cookie {
			continue
		}
		path := n.child(e.name)
		if e.volume == nil {
			next := c.pseudo().byPath(path)
			if next == nil {
				continue
			}
			c.server.pseudoAttrs(next, c.pseudo().handle(path), &l.attrs)
		} else if err := c.rootAttrs(e.volume, l, &names); err != nil {
			l.attrs = nfs4.Attrs{Mask: nfs4.BitmapOf(nfs4.AttrRdattrError), RdattrError: statusOf(err)}
		}
		if fits, err := l.add(cookie, []byte(e.name)); !fits {
			return err
		}
	}
	l.eof = true
	return nil
}

func (c *compound) rootAttrs(v *export.Volume, l *lister, names *owners) error {
	if !c.IsRoot() {
		return errAsRoot
	}
	handle, err := c.server.opener.Root(v)
	if err != nil {
		return err
	}
	f, err := c.Open(handle, export.UseAttr)
	if err != nil {
		return err
	}
	change, a, err := f.Change(f.Attr)
	if err != nil {
		return err
	}
	return c.server.attrs(f, &a, change, handle, l.args.Request, names, &l.attrs)
}
