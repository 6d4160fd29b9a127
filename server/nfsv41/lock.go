package nfsv41

import (
	"syscall"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// denied is what LOCK and LOCKT tell of the lock in the way.
func deniedOf(d *state.Denied) nfs4.LockDenied {
	kind := nfs4.LockRead
	if d.Write {
		kind = nfs4.LockWrite
	}
	return nfs4.LockDenied{Offset: d.Offset, Length: d.Length, Type: kind, Owner: nfs4.StateOwner{ClientID: d.ClientID, Owner: []byte(d.Owner)}}
}

// regularFile is the current file, which must be a regular one.
func (c *compound) regularFile() (state.FileKey, error) {
	f, err := c.attrFile(&c.cur)
	switch {
	case err != nil:
		return state.FileKey{}, err
	case f == nil || f.Attr.IsDir():
		return state.FileKey{}, syscall.EISDIR
	case f.Attr.IsSymlink():
		return state.FileKey{}, statusError(nfs4.ErrSymlink)
	case !f.Attr.IsRegular():
		return state.FileKey{}, statusError(nfs4.ErrWrongType)
	}
	return c.server.keyOf(c.cur.bytes())
}

// lock: RFC 8881 section 18.10.
func (c *compound) lock(args *nfs4.LockArgs) (result, error) {
	key, err := c.regularFile()
	if err != nil {
		return nil, err
	}
	given := args.LockStateid
	if args.NewOwner {
		given = args.OpenStateid
	}
	id, err := c.stateidOf(given)
	if err != nil {
		return nil, err
	}
	got, in, status := c.server.state.Lock(c.on.client(), state.LockArgs{
		Stateid: id, NewOwner: args.NewOwner, Owner: args.Owner.Owner, File: key,
		Write:  args.Type == nfs4.LockWrite || args.Type == nfs4.LockWriteWait,
		Wait:   args.Type == nfs4.LockReadWait || args.Type == nfs4.LockWriteWait,
		Offset: args.Offset, Length: args.Length, Reclaim: args.Reclaim,
	})
	switch status {
	case nfs4.OK:
		c.stateid = got
		return &nfs4.LockRes{Stateid: c.stateid}, nil
	case nfs4.ErrDenied:
		return &nfs4.LockRes{Status: nfs4.ErrDenied, Denied: deniedOf(&in)}, errorOf(status)
	}
	return nil, errorOf(status)
}

// lockt: section 18.11.
func (c *compound) lockt(args *nfs4.LocktArgs) (result, error) {
	key, err := c.regularFile()
	if err != nil {
		return nil, err
	}
	if f := c.cur.file; !c.Owns(f) && !c.May(f, inode.MayRead) && !c.May(f, inode.MayWrite) {
		return nil, syscall.EACCES // who has locked what is not for everybody
	}
	write := args.Type == nfs4.LockWrite || args.Type == nfs4.LockWriteWait
	in, status := c.server.state.TestLock(c.on.client(), args.Owner.Owner, key, write, args.Offset, args.Length)
	if status == nfs4.ErrDenied {
		return &nfs4.LocktRes{Status: nfs4.ErrDenied, Denied: deniedOf(&in)}, errorOf(status)
	}
	return nil, errorOf(status)
}

// locku: section 18.12.
func (c *compound) locku(args *nfs4.LockuArgs) (result, error) {
	return c.ofOpen(args.Stateid, (*compound).stateidOf, func(id nfs4.Stateid, key state.FileKey) (nfs4.Stateid, nfs4.Status) {
		return c.server.state.Unlock(c.on.client(), id, key, args.Offset, args.Length)
	})
}
