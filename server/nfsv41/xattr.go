package nfsv41

import (
	"errors"
	"syscall"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/vfs"
)

// Extended attributes: RFC 8276. The replies of those that change something are kept, as that of WRITE.

// accessOfXattrs are the bits of ACCESS for them.
const accessOfXattrs = nfs4.AccessXARead | nfs4.AccessXAWrite | nfs4.AccessXAList

// xattrError has the statuses that only these operations have.
func xattrError(err error) error {
	switch {
	case errors.Is(err, syscall.ENODATA):
		return statusError(nfs4.ErrNoXattr)
	case errors.Is(err, syscall.E2BIG):
		return statusError(nfs4.ErrXattr2Big)
	}
	return err
}

// getxattr: section 8.4.1.
func (c *compound) getxattr(args *nfs4.GetxattrArgs) (result, error) {
	f, err := c.attrFile(&c.cur)
	switch {
	case err != nil:
		return nil, err
	case f == nil:
		return nil, statusError(nfs4.ErrNoXattr)
	}
	p, err := c.space(opSize+nfs4.GetxattrHead, nfs4.MaxXattr)
	switch {
	case err != nil:
		return nil, err
	case len(p) < nfs4.MaxXattr:
		return nil, statusError(nfs4.ErrRepTooBig)
	}
	n, err := c.GetXattr(f, args.Name, p)
	if err != nil {
		return nil, xattrError(err)
	}
	return &nfs4.GetxattrRes{Value: p[:n]}, nil
}

// setxattr: section 8.4.2.
func (c *compound) setxattr(args *nfs4.SetxattrArgs) (result, error) {
	var flags int
	switch args.Option {
	case nfs4.SetxattrEither:
	case nfs4.SetxattrCreate:
		flags = inode.XattrCreate
	case nfs4.SetxattrReplace:
		flags = inode.XattrReplace
	default:
		return nil, statusError(nfs4.ErrInval)
	}
	return c.changeXattr(func(f *inode.File) (vfs.FileChange, error) { return c.SetXattr(f, args.Name, args.Value, flags) })
}

// removexattr: section 8.4.4.
func (c *compound) removexattr(args *nfs4.RemovexattrArgs) (result, error) {
	return c.changeXattr(func(f *inode.File) (vfs.FileChange, error) { return c.RemoveXattr(f, args.Name) })
}

func (c *compound) changeXattr(do func(*inode.File) (vfs.FileChange, error)) (result, error) {
	f, err := c.attrFile(&c.cur)
	switch {
	case err != nil:
		return nil, err
	case f == nil:
		return nil, exports.ErrReadOnly
	}
	c.on.wrote = true
	change, err := do(f)
	if err != nil {
		return nil, xattrError(err)
	}
	return &nfs4.SetxattrRes{Change: nfs4.ChangeInfo{Atomic: change.Atomic, Before: change.Before, After: change.After}}, nil
}

// listxattrs: section 8.4.3. A cookie is the number of names before.
func (c *compound) listxattrs(args *nfs4.ListxattrsArgs) (result, error) {
	f, err := c.attrFile(&c.cur)
	var names []string
	if err == nil && f != nil {
		names, err = c.ListXattrs(f)
	}
	switch {
	case err != nil:
		return nil, xattrError(err)
	case args.MaxCount < nfs4.ListxattrsFixed:
		return nil, vfs.ErrTooSmall
	case args.Cookie > uint64(len(names)):
		return nil, vfs.ErrBadCookie
	}
	res := &nfs4.ListxattrsRes{Cookie: args.Cookie}
	asked := int(min(args.MaxCount, listxattrsMax))
	most := min(asked, c.sessionRoom(opSize+statusSize))
	left := most - nfs4.ListxattrsFixed
	for _, name := range names[args.Cookie:] {
		left -= 4 + len(name) + xdr.Pad(len(name))
		if left < 0 {
			break
		}
		res.Names = append(res.Names, []byte(name))
	}
	res.Cookie += uint64(len(res.Names))
	res.EOF = res.Cookie == uint64(len(names))
	switch {
	case len(res.Names) > 0, res.EOF:
		return res, nil
	case most < asked: // it is the reply that is too small
		return nil, statusError(nfs4.ErrRepTooBig)
	}
	return nil, vfs.ErrTooSmall // a client would ask for ever
}
