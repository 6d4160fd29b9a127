package nfs4

import (
	"errors"
	"strings"
	"syscall"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/export"
)

// putrootfh: RFC 8881 section 18.21; PUTPUBFH, section 18.20, is the same.
func (c *compound) putrootfh() (result, error) {
	c.cur = object{node: c.pseudo().byPath("/")}
	c.stateid = nfs4.Stateid{}
	return nil, nil
}

func (c *compound) pseudo() pseudo {
	return pseudo{c.server.table, c.server.key, c.Call.Client}
}

// putfh: section 18.19.
func (c *compound) putfh() (result, error) {
	var args nfs4.PutfhArgs
	if args.Decode(&c.Call.Args); c.Call.Args.Err() != nil {
		return nil, c.Call.Args.Err()
	}
	volume, id, err := c.server.key.Parse(args.FH)
	if err != nil {
		return nil, err
	}
	c.stateid = nfs4.Stateid{}
	if volume == pseudoVolume {
		n := c.pseudo().byID(id)
		if n == nil {
			return nil, syscall.ESTALE
		}
		c.cur = object{node: n}
		return nil, nil
	}
	c.cur.set(args.FH)
	if c.nextOpens() {
		return nil, nil
	}
	_, err = c.attrFile(&c.cur)
	if err != nil && !errors.Is(err, errAsRoot) {
		c.cur = object{}
	}
	return nil, err
}

// nextOpens reports whether the operation after PUTFH opens the file in its own way, and
// meets what is wrong with the handle; or CLOSE, which needs no open file. Of a file that was
// saved that is also true of RENAME and LINK, after SAVEFH and another PUTFH.
func (c *compound) nextOpens() bool {
	if c.left == 0 {
		return false
	}
	var op nfs4.OpNum
	d := c.Call.Args
	op.Decode(&d)
	switch op {
	case nfs4.OpRead, nfs4.OpWrite, nfs4.OpCommit, nfs4.OpGetattr, nfs4.OpLookup, nfs4.OpCreate, nfs4.OpRemove, nfs4.OpOpen,
		nfs4.OpClose, nfs4.OpRename, nfs4.OpLink:
		return true
	case nfs4.OpSavefh:
		if op.Decode(&d); c.left < 3 || op != nfs4.OpPutfh {
			return false
		}
		var args nfs4.PutfhArgs
		args.Decode(&d)
		op.Decode(&d)
		return d.Err() == nil && (op == nfs4.OpRename || op == nfs4.OpLink)
	}
	return false
}

// getfh: section 18.8.
func (c *compound) getfh() (result, error) {
	res := &c.mem.handleRes
	switch {
	case c.cur.node != nil:
		*res = nfs4.GetfhRes{FH: c.pseudo().handle(c.cur.node.path)}
	case c.cur.isSet():
		*res = nfs4.GetfhRes{FH: c.cur.bytes()}
	default:
		return nil, statusError(nfs4.ErrNoFileHandle)
	}
	return res, nil
}

// savefh: section 18.28. The current stateid is saved with it.
func (c *compound) savefh() (result, error) {
	if !c.cur.isSet() {
		return nil, statusError(nfs4.ErrNoFileHandle)
	}
	c.saved, c.savedID = c.cur, c.stateid
	return nil, nil
}

// restorefh: section 18.27.
func (c *compound) restorefh() (result, error) {
	if !c.saved.isSet() {
		return nil, statusError(nfs4.ErrNoFileHandle)
	}
	c.cur, c.stateid = c.saved, c.savedID
	return nil, nil
}

// checkName tells what is wrong with a component: section 14.
func checkName(name []byte) error {
	switch {
	case len(name) == 0:
		return statusError(nfs4.ErrInval)
	case string(name) == "." || string(name) == "..":
		return statusError(nfs4.ErrBadName)
	case len(name) > nfs4.MaxName:
		return statusError(nfs4.ErrNameTooLong)
	case !export.ValidName(name):
		return statusError(nfs4.ErrBadChar)
	}
	return nil
}

// lookup: section 18.13.
func (c *compound) lookup() (result, error) {
	var args nfs4.LookupArgs
	if args.Decode(&c.Call.Args); c.Call.Args.Err() != nil {
		return nil, c.Call.Args.Err()
	}
	return nil, c.step(args.Name, func(o object) { c.cur, c.stateid = o, nfs4.Stateid{} })
}

// step finds a name in the current directory.
func (c *compound) step(name []byte, found func(object)) error {
	dir, err := c.lookFile(&c.cur)
	if err != nil {
		return err
	}
	if dir == nil {
		if err := checkName(name); err != nil {
			return err
		}
		return c.stepPseudo(c.cur.node, string(name), found)
	}
	switch {
	case dir.Attr.IsSymlink():
		return statusError(nfs4.ErrSymlink)
	case !dir.Attr.IsDir():
		return syscall.ENOTDIR
	}
	if err := checkName(name); err != nil {
		return err
	}
	attr, handle, done, err := c.Lookup(dir, name, c.mem.handle[:0])
	if !done {
		return errAsCaller
	}
	if err != nil {
		return err
	}
	c.mem.found.volume = dir.Volume
	c.mem.found.change, c.mem.found.attr, handle, err = dir.ChangeOf(name, handle, attr)
	var o object
	o.set(handle)
	o.found = err == nil
	found(o)
	return nil
}

// stepPseudo finds a name in a pseudo directory.
func (c *compound) stepPseudo(n *node, name string, found func(object)) error {
	e, ok := n.lookup(name)
	switch {
	case !ok:
		return syscall.ENOENT
	case e.volume == nil:
		next := c.pseudo().byPath(n.child(name))
		if next == nil { // its last volume has just gone
			return syscall.ENOENT
		}
		found(object{node: next})
		return nil
	}
	return c.enter(e.volume, found)
}

// enter finds a volume's root.
func (c *compound) enter(v *export.Volume, found func(object)) error {
	handle, err := c.server.opener.Root(v)
	if err != nil {
		return statusError(nfs4.ErrServerFault)
	}
	var o object
	o.set(handle)
	found(o)
	return nil
}

// lookupp: section 18.14.
func (c *compound) lookupp() (result, error) {
	return nil, c.up(func(o object) { c.cur, c.stateid = o, nfs4.Stateid{} })
}

// up finds the directory that the current one is in.
func (c *compound) up(found func(object)) error {
	dir, err := c.attrFile(&c.cur)
	switch {
	case err != nil:
		return err
	case dir == nil && c.cur.node.path == "/":
		return syscall.ENOENT
	case dir == nil:
		return c.pseudoAt(parent(c.cur.node.path), found)
	case dir.Attr.IsSymlink():
		return statusError(nfs4.ErrSymlink)
	case !dir.Attr.IsDir():
		return syscall.ENOTDIR
	case dir.IsRoot():
		return c.pseudoAt(parent("/"+strings.Trim(dir.Volume.Path, "/")), found)
	}
	if !c.may {
		may, known := c.May(dir, export.MayExec)
		switch {
		case !known:
			return errAsCaller
		case !may:
			return syscall.EACCES
		}
		c.may = true
	}
	if !c.IsRoot() {
		return errAsRoot // what is above may be closed to the caller
	}
	up, err := c.Parent(dir)
	if err != nil {
		return err
	}
	var o object
	o.setFile(up)
	found(o)
	return nil
}

func (c *compound) pseudoAt(path string, found func(object)) error {
	n := c.pseudo().byPath(path)
	if n == nil {
		return syscall.ESTALE
	}
	found(object{node: n})
	return nil
}

// flavors are how a client may say who it is: section 2.6.
func flavors() result {
	return &nfs4.SecinfoRes{Flavors: []nfs4.Secinfo{{Flavor: rpc.AuthSys}}}
}

// secinfo: section 18.29. There is no current file handle after it.
func (c *compound) secinfo() (result, error) {
	var args nfs4.SecinfoArgs
	if args.Decode(&c.Call.Args); c.Call.Args.Err() != nil {
		return nil, c.Call.Args.Err()
	}
	if err := c.step(args.Name, func(object) {}); err != nil {
		return nil, err
	}
	c.cur, c.stateid = object{}, nfs4.Stateid{}
	return flavors(), nil
}

// secinfoNoName: section 18.45.
func (c *compound) secinfoNoName() (result, error) {
	var args nfs4.SecinfoNoNameArgs
	if args.Decode(&c.Call.Args); c.Call.Args.Err() != nil {
		return nil, c.Call.Args.Err()
	}
	switch args.Style {
	case nfs4.SecinfoCurrentFH:
		if !c.cur.isSet() {
			return nil, statusError(nfs4.ErrNoFileHandle)
		}
	case nfs4.SecinfoParent:
		if err := c.up(func(object) {}); err != nil {
			return nil, err
		}
	}
	c.cur, c.stateid = object{}, nfs4.Stateid{}
	return flavors(), nil
}
