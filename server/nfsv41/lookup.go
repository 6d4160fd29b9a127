package nfsv41

import (
	"syscall"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
)

// putrootfh: RFC 8881 section 18.21; PUTPUBFH, section 18.20, is the same.
func (c *compound) putrootfh() (result, error) {
	c.cur = object{node: c.server.pseudo.tree().root}
	c.stateid = nfs4.Stateid{}
	return nil, nil
}

// nodeHandle is the handle of a pseudo directory.
func (c *compound) nodeHandle(n *node) []byte { return c.server.key.Handle(pseudoVolume, n.id) }

// putfh: section 18.19.
func (c *compound) putfh() (result, error) {
	args := &c.mem.putfh
	if err := c.decode(args); err != nil {
		return nil, err
	}
	volume, id, err := c.server.key.Parse(args.FH)
	if err != nil {
		return nil, err
	}
	c.stateid = nfs4.Stateid{}
	if volume == pseudoVolume {
		n := c.server.pseudo.tree().find(id, c.rpc.Client)
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
	if _, err = c.attrFile(&c.cur); err != nil {
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
	d := c.rpc.Args
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
		*res = nfs4.GetfhRes{FH: c.nodeHandle(c.cur.node)}
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
	case !disk.ValidName(name):
		return statusError(nfs4.ErrBadChar)
	}
	return nil
}

// lookup: section 18.13.
func (c *compound) lookup() (result, error) {
	args := &c.mem.lookup
	if err := c.decode(args); err != nil {
		return nil, err
	}
	o, err := c.step(args.Name)
	if err != nil {
		return nil, err
	}
	c.cur, c.stateid = o, nfs4.Stateid{}
	return nil, nil
}

// step finds a name in the current directory.
func (c *compound) step(name []byte) (o object, err error) {
	dir, err := c.attrFile(&c.cur, inode.Recent)
	if err != nil {
		return o, err
	}
	if dir == nil {
		if err := checkName(name); err != nil {
			return o, err
		}
		return c.stepPseudo(c.cur.node, string(name))
	}
	switch {
	case dir.Attr.IsSymlink():
		return o, statusError(nfs4.ErrSymlink)
	case !dir.Attr.IsDir():
		return o, syscall.ENOTDIR
	}
	if err := checkName(name); err != nil {
		return o, err
	}
	if snapshots, err := c.Snapshots(dir, name); snapshots != nil || err != nil {
		return objectOf(snapshots), err
	}
	attr, handle, err := c.Lookup(dir, name, c.mem.handle[:0])
	if err != nil {
		return o, err
	}
	c.mem.found.volume = dir.Volume
	c.mem.found.change, c.mem.found.attr, handle, err = dir.ChangeOf(name, handle, attr)
	o.set(handle)
	o.found = err == nil
	return o, nil
}

// objectOf is the object of an open file, if there is one. It is a function of its own, because it allocates.
func objectOf(f *inode.File) (o object) {
	if f != nil {
		o.setFile(f)
	}
	return o
}

// stepPseudo finds a name in a pseudo directory.
func (c *compound) stepPseudo(n *node, name string) (o object, err error) {
	e := n.lookup(name, c.rpc.Client)
	switch {
	case e == nil:
		return o, syscall.ENOENT
	case e.volume == nil:
		return object{node: e.node}, nil
	}
	o.set(c.server.opener.Root(e.volume))
	return o, nil
}

// lookupp: section 18.14.
func (c *compound) lookupp() (result, error) {
	o, err := c.up()
	if err != nil {
		return nil, err
	}
	c.cur, c.stateid = o, nfs4.Stateid{}
	return nil, nil
}

// up finds the directory that the current one is in.
func (c *compound) up() (o object, err error) {
	dir, err := c.attrFile(&c.cur)
	switch {
	case err != nil:
		return o, err
	case dir == nil && c.cur.node.up == nil:
		return o, syscall.ENOENT
	case dir == nil:
		return object{node: c.cur.node.up}, nil
	case dir.Attr.IsSymlink():
		return o, statusError(nfs4.ErrSymlink)
	case !dir.Attr.IsDir():
		return o, syscall.ENOTDIR
	case dir.IsRoot() && dir.Volume.Of == nil:
		return c.above(dir.Volume)
	case !c.May(dir, inode.MayExec):
		return o, syscall.EACCES
	}
	up, err := c.Parent(dir)
	if err != nil {
		return o, err
	}
	o.setFile(up)
	return o, nil
}

// above is the pseudo directory that a volume is in.
func (c *compound) above(v *exports.Volume) (o object, err error) {
	if o.node = c.server.pseudo.tree().find(idOf(parent(v.Path)), c.rpc.Client); o.node == nil {
		return o, syscall.ESTALE
	}
	return o, nil
}

// flavors are how a client may say who it is: section 2.6.
func flavors() result {
	return &nfs4.SecinfoRes{Flavors: []nfs4.Secinfo{{Flavor: rpc.AuthSys}}}
}

// secinfo: section 18.29. There is no current file handle after it.
func (c *compound) secinfo(args *nfs4.SecinfoArgs) (result, error) {
	if _, err := c.step(args.Name); err != nil {
		return nil, err
	}
	c.cur, c.stateid = object{}, nfs4.Stateid{}
	return flavors(), nil
}

// secinfoNoName: section 18.45.
func (c *compound) secinfoNoName(args *nfs4.SecinfoNoNameArgs) (result, error) {
	switch args.Style {
	case nfs4.SecinfoCurrentFH:
		if !c.cur.isSet() {
			return nil, statusError(nfs4.ErrNoFileHandle)
		}
	case nfs4.SecinfoParent:
		if _, err := c.up(); err != nil {
			return nil, err
		}
	}
	c.cur, c.stateid = object{}, nfs4.Stateid{}
	return flavors(), nil
}
