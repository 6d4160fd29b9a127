package nfsv41

import (
	"cmp"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/xdr"
)

// operation does an operation, once and whole. It returns an error that becomes the status, and nil or
// what the result has besides. It runs on the goroutine that reads the connection, and may block only after
// vfs.Call.MayWait, which Call.Open calls itself unless it is inode.AtOnce.
type operation func(*compound) (result, error)

// with is an operation whose arguments are decoded first. Those that are most frequent have them in the
// memory of the compound.
func with[A any, D interface {
	*A
	Decode(*xdr.Decoder)
}](do func(*compound, D) (result, error)) operation {
	return func(c *compound) (result, error) {
		args := D(new(A))
		if err := c.decode(args); err != nil {
			return nil, err
		}
		return do(c, args)
	}
}

// listed is what is known of an operation.
type listed struct {
	since uint32    // the first minor version in which its number is legal; 0: in none
	do    operation // nil: it is NOTSUPP
}

// operations are all operations, by their numbers: version 4.1 ends with RECLAIM_COMPLETE, and 4.2 with those of
// RFC 8276.
type operations [nfs4.OpRemovexattr + 1]listed

func newOperations() operations {
	return operations{
		nfs4.OpAccess:             {1, (*compound).access},
		nfs4.OpClose:              {1, (*compound).closeOp},
		nfs4.OpCommit:             {1, with((*compound).commit)},
		nfs4.OpCreate:             {1, with((*compound).create)},
		nfs4.OpDelegpurge:         {1, with((*compound).delegpurge)},
		nfs4.OpDelegreturn:        {1, with((*compound).delegreturn)},
		nfs4.OpGetattr:            {1, (*compound).getattr},
		nfs4.OpGetfh:              {1, (*compound).getfh},
		nfs4.OpLink:               {1, with((*compound).link)},
		nfs4.OpLock:               {1, with((*compound).lock)},
		nfs4.OpLockt:              {1, with((*compound).lockt)},
		nfs4.OpLocku:              {1, with((*compound).locku)},
		nfs4.OpLookup:             {1, (*compound).lookup},
		nfs4.OpLookupp:            {1, (*compound).lookupp},
		nfs4.OpNverify:            {1, with((*compound).nverify)},
		nfs4.OpOpen:               {1, (*compound).openOp},
		nfs4.OpOpenattr:           {1, nil},
		nfs4.OpOpenConfirm:        {1, nil},
		nfs4.OpOpenDowngrade:      {1, with((*compound).openDowngrade)},
		nfs4.OpPutfh:              {1, (*compound).putfh},
		nfs4.OpPutpubfh:           {1, (*compound).putrootfh},
		nfs4.OpPutrootfh:          {1, (*compound).putrootfh},
		nfs4.OpRead:               {1, (*compound).read},
		nfs4.OpReaddir:            {1, with((*compound).readdir)},
		nfs4.OpReadlink:           {1, (*compound).readlink},
		nfs4.OpRemove:             {1, with((*compound).remove)},
		nfs4.OpRename:             {1, with((*compound).rename)},
		nfs4.OpRenew:              {1, nil},
		nfs4.OpRestorefh:          {1, (*compound).restorefh},
		nfs4.OpSavefh:             {1, (*compound).savefh},
		nfs4.OpSecinfo:            {1, with((*compound).secinfo)},
		nfs4.OpSetattr:            {1, with((*compound).setattr)},
		nfs4.OpSetclientid:        {1, nil},
		nfs4.OpSetclientidConfirm: {1, nil},
		nfs4.OpVerify:             {1, with((*compound).verify)},
		nfs4.OpWrite:              {1, (*compound).write},
		nfs4.OpReleaseLockowner:   {1, nil},
		nfs4.OpBackchannelCtl:     {1, with((*compound).backchannelCtl)},
		nfs4.OpBindConnToSession:  {1, with((*compound).bindConnToSession)},
		nfs4.OpExchangeID:         {1, with((*compound).exchangeID)},
		nfs4.OpCreateSession:      {1, with((*compound).createSession)},
		nfs4.OpDestroySession:     {1, with((*compound).destroySession)},
		nfs4.OpFreeStateid:        {1, with((*compound).freeStateid)},
		nfs4.OpGetDirDelegation:   {1, nil},
		nfs4.OpGetdeviceinfo:      {1, nil},
		nfs4.OpGetdevicelist:      {1, nil},
		nfs4.OpLayoutcommit:       {1, nil},
		nfs4.OpLayoutget:          {1, nil},
		nfs4.OpLayoutreturn:       {1, nil},
		nfs4.OpSecinfoNoName:      {1, with((*compound).secinfoNoName)},
		nfs4.OpSequence:           {1, (*compound).sequence},
		nfs4.OpSetSSV:             {1, nil},
		nfs4.OpTestStateid:        {1, with((*compound).testStateid)},
		nfs4.OpWantDelegation:     {1, nil},
		nfs4.OpDestroyClientID:    {1, with((*compound).destroyClientID)},
		nfs4.OpReclaimComplete:    {1, with((*compound).reclaimComplete)},
		nfs4.OpAllocate:           {2, with((*compound).allocate)},
		nfs4.OpCopy:               {2, with((*compound).copyOp)},
		nfs4.OpCopyNotify:         {2, nil},
		nfs4.OpDeallocate:         {2, with((*compound).deallocate)},
		nfs4.OpIOAdvise:           {2, nil},
		nfs4.OpLayouterror:        {2, nil},
		nfs4.OpLayoutstats:        {2, nil},
		nfs4.OpOffloadCancel:      {2, nil},
		nfs4.OpOffloadStatus:      {2, nil},
		nfs4.OpReadPlus:           {2, nil},
		nfs4.OpSeek:               {2, with((*compound).seek)},
		nfs4.OpWriteSame:          {2, nil},
		nfs4.OpClone:              {2, with((*compound).clone)},
		nfs4.OpGetxattr:           {2, with((*compound).getxattr)},
		nfs4.OpSetxattr:           {2, with((*compound).setxattr)},
		nfs4.OpListxattrs:         {2, with((*compound).listxattrs)},
		nfs4.OpRemovexattr:        {2, with((*compound).removexattr)},
	}
}

// of finds an operation. It returns nil if its number is not legal in a minor version.
func (o *operations) of(op nfs4.OpNum, minor uint32) *listed {
	if op >= nfs4.OpNum(len(o)) || o[op].since == 0 || o[op].since > minor {
		return nil
	}
	return &o[op]
}

// changes reports whether an operation is not done if there might be no room for its result,
// which takes at most changedMax bytes. The others find out when they have their result.
func changes(op nfs4.OpNum) bool {
	switch op {
	case nfs4.OpClose, nfs4.OpCreate, nfs4.OpLink, nfs4.OpLock, nfs4.OpLocku, nfs4.OpOpen, nfs4.OpOpenDowngrade, nfs4.OpRemove,
		nfs4.OpRename, nfs4.OpSetattr, nfs4.OpWrite, nfs4.OpFreeStateid, nfs4.OpReclaimComplete,
		nfs4.OpAllocate, nfs4.OpClone, nfs4.OpCopy, nfs4.OpDeallocate, nfs4.OpSetxattr, nfs4.OpRemovexattr:
		return true
	}
	return false
}

const changedMax = 96

// looks reports whether an operation changes nothing, and the attributes that it has seen are
// right in the operation after it: PUTFH, ACCESS, GETATTR look once at the file, as ACCESS of
// version 3 does.
func looks(op nfs4.OpNum) bool {
	switch op {
	case nfs4.OpPutfh, nfs4.OpLookup, nfs4.OpGetfh, nfs4.OpAccess, nfs4.OpGetattr:
		return true
	}
	return false
}

// operation finds the operation that was begun, if it may stand where it does: RFC 8881
// section 2.10.6.4 and the operations' own.
func (c *compound) operation() (operation, error) {
	listed := c.server.operations.of(c.op, c.minor)
	if listed == nil {
		c.op = nfs4.OpIllegal
	}
	switch {
	case c.on.retry:
		return nil, statusError(nfs4.ErrRetryUncachedRep)
	case listed == nil:
		return nil, statusError(nfs4.ErrOpIllegal)
	}
	first, only := c.done == 0, c.done == 0 && c.left == 0
	switch c.op {
	case nfs4.OpSequence:
		if !first {
			return nil, statusError(nfs4.ErrSequencePos)
		}
	case nfs4.OpBindConnToSession:
		if !only {
			return nil, statusError(nfs4.ErrNotOnlyOp)
		}
	case nfs4.OpExchangeID, nfs4.OpCreateSession, nfs4.OpDestroySession, nfs4.OpDestroyClientID:
		if first && !only {
			return nil, statusError(nfs4.ErrNotOnlyOp)
		}
	default:
		if c.on.slot == nil {
			return nil, statusError(nfs4.ErrOpNotInSession)
		}
	}
	if changes(c.op) {
		if err := cmp.Or(c.fits(changedMax), c.room(changedMax)); err != nil {
			return nil, err
		}
	}
	if listed.do == nil {
		return nil, statusError(nfs4.ErrNotSupp)
	}
	return listed.do, nil
}
