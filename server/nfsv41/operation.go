package nfsv41

import (
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/vfs"
)

// operation does an operation, once and whole. It returns an error that becomes the status, and nil or
// what the result has besides.
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

// operations are those that are served. What RFC 8881 knows besides is NOTSUPP.
type operations [nfs4.OpReclaimComplete + 1]operation

func newOperations() operations {
	return operations{
		nfs4.OpAccess:            (*compound).access,
		nfs4.OpClose:             (*compound).closeOp,
		nfs4.OpCommit:            with((*compound).commit),
		nfs4.OpCreate:            with((*compound).create),
		nfs4.OpDelegpurge:        with((*compound).delegpurge),
		nfs4.OpDelegreturn:       with((*compound).delegreturn),
		nfs4.OpGetattr:           (*compound).getattr,
		nfs4.OpGetfh:             (*compound).getfh,
		nfs4.OpLink:              with((*compound).link),
		nfs4.OpLock:              with((*compound).lock),
		nfs4.OpLockt:             with((*compound).lockt),
		nfs4.OpLocku:             with((*compound).locku),
		nfs4.OpLookup:            (*compound).lookup,
		nfs4.OpLookupp:           (*compound).lookupp,
		nfs4.OpNverify:           with((*compound).nverify),
		nfs4.OpOpen:              (*compound).openOp,
		nfs4.OpOpenDowngrade:     with((*compound).openDowngrade),
		nfs4.OpPutfh:             (*compound).putfh,
		nfs4.OpPutpubfh:          (*compound).putrootfh,
		nfs4.OpPutrootfh:         (*compound).putrootfh,
		nfs4.OpRead:              (*compound).read,
		nfs4.OpReaddir:           with((*compound).readdir),
		nfs4.OpReadlink:          (*compound).readlink,
		nfs4.OpRemove:            with((*compound).remove),
		nfs4.OpRename:            with((*compound).rename),
		nfs4.OpRestorefh:         (*compound).restorefh,
		nfs4.OpSavefh:            (*compound).savefh,
		nfs4.OpSecinfo:           with((*compound).secinfo),
		nfs4.OpSecinfoNoName:     with((*compound).secinfoNoName),
		nfs4.OpSetattr:           with((*compound).setattr),
		nfs4.OpVerify:            with((*compound).verify),
		nfs4.OpWrite:             (*compound).write,
		nfs4.OpBackchannelCtl:    with((*compound).backchannelCtl),
		nfs4.OpBindConnToSession: with((*compound).bindConnToSession),
		nfs4.OpExchangeID:        with((*compound).exchangeID),
		nfs4.OpCreateSession:     with((*compound).createSession),
		nfs4.OpDestroySession:    with((*compound).destroySession),
		nfs4.OpFreeStateid:       with((*compound).freeStateid),
		nfs4.OpSequence:          (*compound).sequence,
		nfs4.OpTestStateid:       with((*compound).testStateid),
		nfs4.OpDestroyClientID:   with((*compound).destroyClientID),
		nfs4.OpReclaimComplete:   with((*compound).reclaimComplete),
	}
}

// changes reports whether an operation is not done if there might be no room for its result,
// which takes at most changedMax bytes. The others find out when they have their result.
func changes(op nfs4.OpNum) bool {
	switch op {
	case nfs4.OpClose, nfs4.OpCreate, nfs4.OpLink, nfs4.OpLock, nfs4.OpLocku, nfs4.OpOpen, nfs4.OpOpenDowngrade, nfs4.OpRemove,
		nfs4.OpRename, nfs4.OpSetattr, nfs4.OpWrite, nfs4.OpFreeStateid, nfs4.OpReclaimComplete:
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
	legal := c.op >= nfs4.OpAccess && c.op <= nfs4.OpReclaimComplete
	if !legal {
		c.op = nfs4.OpIllegal
	}
	switch {
	case c.on.retry:
		return nil, statusError(nfs4.ErrRetryUncachedRep)
	case !legal:
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
		if err := c.fits(changedMax); err != nil {
			return nil, err
		}
	}
	do := c.server.operations[c.op]
	if do == nil {
		return nil, statusError(nfs4.ErrNotSupp)
	}
	return do, nil
}

// replySize is how much a COMPOUND's reply takes at most, in bytes.
func replySize(head *nfs4.CompoundArgs, d xdr.Decoder) int {
	size := 4 + 4 + len(head.Tag) + 4 + 4
	for n := head.NumOps; n > 0; n-- {
		var op nfs4.OpNum
		if op.Decode(&d); d.Err() != nil {
			break
		}
		size += resultMax(op, &d)
	}
	return size
}

// resultMax is how much the result of an operation takes at most, in bytes. It consumes the
// arguments.
func resultMax(op nfs4.OpNum, d *xdr.Decoder) int {
	const small = 64
	switch op {
	case nfs4.OpRead:
		var args nfs4.ReadArgs
		args.Decode(d)
		return readHead + int(min(args.Count, ioMax)) + 3
	case nfs4.OpReaddir:
		var args nfs4.ReaddirArgs
		args.Decode(d)
		return small + int(min(args.MaxCount, vfs.ListMax)) + attrsMax
	case nfs4.OpGetattr:
		var args nfs4.GetattrArgs
		args.Decode(d)
		return attrsMax / 2
	case nfs4.OpReadlink:
		return small + nfs4.MaxPath
	case nfs4.OpSequence:
		var args nfs4.SequenceArgs
		args.Decode(d)
	case nfs4.OpPutfh:
		var args nfs4.PutfhArgs
		args.Decode(d)
	case nfs4.OpLookup:
		var args nfs4.LookupArgs
		args.Decode(d)
	case nfs4.OpAccess:
		var args nfs4.AccessArgs
		args.Decode(d)
	case nfs4.OpPutrootfh, nfs4.OpSavefh, nfs4.OpRestorefh, nfs4.OpLookupp:
	case nfs4.OpGetfh:
		return small + nfs4.FHSize
	default: // no COMPOUND asks for much after it
		d.Fail(xdr.ErrShort)
	}
	return small
}
