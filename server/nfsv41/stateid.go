package nfsv41

import (
	"syscall"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// stateidOf is a stateid, with the current one for what stands for it: section 16.2.3.1.2. Its seqid is
// zero then, section 8.2.3, which stands for the latest one: an operation between may have raised it.
func (c *compound) stateidOf(id nfs4.Stateid) (nfs4.Stateid, error) {
	sid, err := c.exactStateidOf(id)
	// Only one that was made for a client may lose its seqid: the invalid one, which CLOSE returns, would become
	// the anonymous one.
	if err == nil && id == nfs4.CurrentStateid() && sid != nfs4.InvalidStateid() {
		sid.Seqid = 0
	}
	return sid, err
}

// exactStateidOf is stateidOf for CLOSE and OPEN_DOWNGRADE, for which section 8.2.3 leaves the seqid of the
// current stateid as it is.
func (c *compound) exactStateidOf(id nfs4.Stateid) (nfs4.Stateid, error) {
	if id == nfs4.CurrentStateid() {
		if c.stateid == (nfs4.Stateid{}) {
			return nfs4.Stateid{}, statusError(nfs4.ErrBadStateid)
		}
		id = c.stateid
	}
	return id, nil
}

// ofOpen does something to an open of the current file, or to its locks, with the stateid that of makes of id.
func (c *compound) ofOpen(id nfs4.Stateid, of func(*compound, nfs4.Stateid) (nfs4.Stateid, error), do func(nfs4.Stateid, state.FileKey) (nfs4.Stateid, nfs4.Status)) (result, error) {
	switch {
	case !c.cur.isSet():
		return nil, statusError(nfs4.ErrNoFileHandle)
	case c.cur.node != nil:
		return nil, statusError(nfs4.ErrBadStateid)
	}
	sid, err := of(c, id)
	if err != nil {
		return nil, err
	}
	key, err := c.currentKey()
	if err != nil {
		return nil, err
	}
	v, ok := c.server.table.ByID(key.Volume) // which PUTFH has not looked for
	switch {
	case !ok:
		return nil, syscall.ESTALE
	case !v.Allows(c.rpc.Client.Addr()), !v.AllowsPort(c.rpc.Client):
		return nil, syscall.EACCES
	}
	c.rpc.Served.Volume = &v.Served
	next, status := do(sid, key)
	if status != nfs4.OK {
		return nil, errorOf(status)
	}
	c.stateid = next
	return &nfs4.StateidRes{Stateid: c.stateid}, nil
}

// currentKey is how state knows the current file.
func (c *compound) currentKey() (state.FileKey, error) {
	if f := c.cur.file; f != nil { // as after an OPEN in the same call
		return key(f.Volume.ID, f.ID), nil
	}
	return c.server.keyOf(c.cur.bytes())
}

// closeOp: section 18.2.
func (c *compound) closeOp() (result, error) {
	args := &c.mem.close
	if err := c.decode(args); err != nil {
		return nil, err
	}
	if c.cur.n > 0 { // of a removed file it may free what that takes on the disk
		if err := c.MayWait(c.cur.bytes()); err != nil {
			return nil, err
		}
	}
	return c.ofOpen(args.Stateid, (*compound).exactStateidOf, func(id nfs4.Stateid, key state.FileKey) (nfs4.Stateid, nfs4.Status) {
		return nfs4.InvalidStateid(), c.server.state.Close(c.on.client(), id, key)
	})
}

// openDowngrade: section 18.18.
func (c *compound) openDowngrade(args *nfs4.OpenDowngradeArgs) (result, error) {
	access, deny, err := shares(args.ShareAccess, args.ShareDeny)
	if err != nil {
		return nil, err
	}
	return c.ofOpen(args.Stateid, (*compound).exactStateidOf, func(id nfs4.Stateid, key state.FileKey) (nfs4.Stateid, nfs4.Status) {
		return c.server.state.Downgrade(c.on.client(), id, key, access, deny)
	})
}

// freeStateid: section 18.38.
func (c *compound) freeStateid(args *nfs4.FreeStateidArgs) (result, error) {
	id, err := c.stateidOf(args.Stateid)
	if err != nil {
		return nil, err
	}
	return nil, errorOf(c.server.state.FreeStateid(c.on.client(), id))
}

// testStateid: section 18.48.
func (c *compound) testStateid(args *nfs4.TestStateidArgs) (result, error) {
	res := &nfs4.TestStateidRes{}
	for _, id := range args.Stateids {
		res.Statuses = append(res.Statuses, c.server.state.TestStateid(c.on.client(), id))
	}
	return res, nil
}

// delegreturn: section 18.6. No stateid is of a delegation.
func (c *compound) delegreturn(*nfs4.DelegreturnArgs) (result, error) {
	if !c.cur.isSet() {
		return nil, statusError(nfs4.ErrNoFileHandle)
	}
	return nil, statusError(nfs4.ErrBadStateid)
}

// delegpurge: section 18.5.
func (c *compound) delegpurge(*nfs4.DelegpurgeArgs) (result, error) {
	return nil, statusError(nfs4.ErrNotSupp)
}

// shares are what an OPEN shares and denies.
func shares(shareAccess, shareDeny uint32) (access, deny state.Access, err error) {
	const wants = nfs4.WantDelegMask | nfs4.WantSignalDelegWhenRescAvail | nfs4.WantPushDelegWhenUncontended
	share := shareAccess &^ wants
	if share == 0 || share > nfs4.ShareAccessBoth || shareDeny > nfs4.ShareDenyBoth {
		return 0, 0, statusError(nfs4.ErrInval)
	}
	return state.Access(share), state.Access(shareDeny), nil
}
