package nfsv41

import (
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/vfs"
)

// The memory of a reply is of the connection's share of the budget, however a COMPOUND is put together. Most of it is reserved before
// the first operation, where the call may wait for it. What that has not foreseen an operation takes for itself, if there is some, and
// fails with NFS4ERR_DELAY otherwise: one that has large results before it makes them (READ, READDIR, GETXATTR), one that changes
// something before it does so, and for all others, whose results are in memory of their own until then, append does it.

// errorSize is how much the result of an operation that has failed takes, in bytes: SETATTR's has an empty bitmap.
const errorSize = 4 + 4 + 4

// room makes room for a result of n bytes, and for the error of the operation after it. An operation that has begun can't wait for it.
func (c *compound) room(n int) error {
	if !c.rpc.TryReserve(n + errorSize) {
		return statusError(nfs4.ErrDelay)
	}
	return nil
}

// Sizes in bytes.
const (
	// opSize is the size of an operation's number, which its result begins with.
	opSize = 4
	// readHead is the size of READ's result before the data: the operation, status, eof
	// and length.
	readHead = opSize + 4 + 4 + 4
	// ioMax is the most that READ and WRITE move at once.
	ioMax = 1 << 20
	// attrsMax is the most that all attributes take.
	attrsMax = 1 << 10
	// listxattrsMax is the most that a result of LISTXATTRS takes: no file has names that take more.
	listxattrsMax = 2 * nfs4.MaxXattr
)

// space is where the data of a result will be, n bytes after the head of the result: less only if the largest reply has no more.
func (c *compound) space(head, n int) ([]byte, error) {
	const pad = 3
	if err := c.room(head + n + pad); err != nil {
		return nil, err
	}
	at := len(c.rpc.Reply) + head
	end := min(at+n, cap(c.rpc.Reply)-pad-errorSize)
	if end < at {
		return nil, statusError(nfs4.ErrRepTooBig)
	}
	return c.rpc.Reply[at:end:end], nil
}

// keep makes b the reply: it is the reply with one result more.
func (c *compound) keep(b []byte) error {
	had := len(c.rpc.Reply)
	if cap(b) == cap(c.rpc.Reply) { // there was room
		c.rpc.Reply = b
		if c.status != nfs4.OK || c.left == 0 {
			return nil
		}
		return c.room(0)
	}
	if err := c.room(len(b) - had); err != nil {
		return err
	}
	if len(b)+errorSize > cap(c.rpc.Reply) { // which is the largest
		return statusError(nfs4.ErrRepTooBig)
	}
	c.rpc.Reply = append(c.rpc.Reply, b[had:]...)
	return nil
}

// replySize is how much a COMPOUND's reply takes at most, in bytes.
//
// After an operation that is not among those of resultMax there is none that a client asks for much by in the same COMPOUND. If one
// does so even so, it gets room when it is under way, or not at all.
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
		if args.Request.Has(nfs4.AttrACL) {
			return attrsMax + nfs4.MaxAttrs
		}
		return attrsMax / 2
	case nfs4.OpReadlink:
		return small + nfs4.MaxPath
	case nfs4.OpGetxattr:
		var args nfs4.GetxattrArgs
		args.Decode(d)
		return small + nfs4.MaxXattr
	case nfs4.OpListxattrs:
		var args nfs4.ListxattrsArgs
		args.Decode(d)
		return small + int(min(args.MaxCount, listxattrsMax))
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
	default:
		d.Fail(xdr.ErrShort)
	}
	return small
}
