package nfsv41

import (
	"errors"
	"unicode/utf8"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/vfs"
)

// Minor versions of the protocol that are served: RFC 8881 and RFC 7862.
const (
	firstMinor = 1
	lastMinor  = 2
)

// result is what an operation answers after its status.
type result interface{ Append([]byte) []byte }

// compound is a COMPOUND under way. It is the Call's State, and used again with it.
type compound struct {
	vfs.Call

	server *Server
	rpc    *oncrpc.Call
	minor  uint32 // version
	left   uint32 // operations that were not begun
	done   uint32 // results in the reply
	head   int    // where the reply has its status
	status nfs4.Status

	op nfs4.OpNum // the one under way

	// An operation may use what one before has read of the current file, as long as nothing can have changed it since:
	// object.attrsCurrent and object.found say so, and perform ends it by these two.
	onlyLooks bool // op changes nothing, so the attributes that it reads are right for the operation after it
	looksLast bool // op has looked at the current file after all that it has changed

	cur, saved       object
	stateid, savedID nfs4.Stateid // the current one, and what SAVEFH has saved

	on   sequenced // if it began with SEQUENCE
	mem  memory
	open *openMemory // nil until it is needed first
}

// memory is for the arguments and results of what is called most, which thus allocate
// nothing.
type memory struct {
	access  nfs4.AccessArgs
	close   nfs4.CloseArgs
	getattr nfs4.GetattrArgs
	lookup  nfs4.LookupArgs
	putfh   nfs4.PutfhArgs

	sequence    nfs4.SequenceArgs
	sequenceRes nfs4.SequenceRes

	read    nfs4.ReadArgs
	readRes nfs4.ReadRes

	write    nfs4.WriteArgs
	writeRes nfs4.WriteRes

	handle    [2 * locate.HandleMax]byte // of LOOKUP; for ChangeOf, too
	found     found                      // by LOOKUP
	handleRes nfs4.GetfhRes

	accessRes nfs4.AccessRes
	attrRes   nfs4.GetattrRes
	owners    owners
	status    nfs4.StatusRes // of all that answer nothing else
}

// found has the attributes of what LOOKUP has found.
type found struct {
	volume *exports.Volume
	attr   disk.Attr
	change uint64
}

// compound answers a COMPOUND: RFC 8881 section 16.2.
func (s *Server) compound(call *oncrpc.Call) rpc.AcceptStat {
	c, ok := call.State.(*compound)
	if !ok {
		c = &compound{}
		call.State = c
	}
	c.server, c.rpc = s, call
	c.WantChange, c.SharesChecked = true, true
	c.Begin(s.files, call, vfs.Caller{Client: call.Client, UID: call.Cred.UID, GID: call.Cred.GID, Groups: call.Cred.Groups()}, &call.Served)
	defer c.forget()
	return c.answer()
}

// forget ends the call: what stays with it must not refer to the buffers of arguments and results. If it
// was not done to its end, as after a panic, its slot has no reply.
func (c *compound) forget() {
	c.on.end(nil)
	c.End()
	*c = compound{open: c.open}
}

// answer does the operations one after the other, until one fails, and appends their results.
func (c *compound) answer() rpc.AcceptStat {
	call := c.rpc
	var args nfs4.CompoundArgs
	if args.Decode(&call.Args); call.Args.Err() != nil {
		return rpc.GarbageArgs
	}
	long := len(args.Tag) > nfs4.MaxTag
	if long {
		args.Tag = nil
	}
	room := call.Reserve(replySize(&args, call.Args))
	c.left, c.head, c.minor = args.NumOps, len(call.Reply), args.MinorVersion
	switch {
	case args.MinorVersion < firstMinor, args.MinorVersion > lastMinor:
		c.status = nfs4.ErrMinorVersMismatch
	case long, !utf8.Valid(args.Tag): // XDR has no limit for it, section 16.2.3; and section 14.5
		c.status = nfs4.ErrInval
	}
	res := nfs4.CompoundRes{Tag: args.Tag}
	call.Reply = res.Append(call.Reply)
	for c.status == nfs4.OK && c.left > 0 {
		c.left--
		if c.op.Decode(&call.Args); call.Args.Err() != nil {
			c.status = nfs4.ErrBadXDR
			break
		}
		result := c.perform(room)
		if c.on.replayed { // the reply is complete
			return rpc.Success
		}
		c.append(result)
	}
	res.Status, res.NumOps = c.status, c.done
	res.Patch(call.Reply, c.head)
	c.on.end(call.Reply[c.head:])
	return rpc.Success
}

// perform does the operation that was decoded. What it has changed is synced when it returns. Without room for the reply it fails.
func (c *compound) perform(room bool) result {
	if !room {
		c.status = nfs4.ErrDelay
		return c.bare()
	}
	c.onlyLooks, c.looksLast = looks(c.op), false
	var res result
	do, err := c.operation()
	if err == nil {
		res, err = do(c)
	}
	if !c.onlyLooks {
		c.cur.attrsCurrent, c.cur.found = c.cur.attrsCurrent && c.looksLast, false
		c.saved.attrsCurrent, c.saved.found = false, false
		c.Forget()
	}
	if errors.Is(err, exports.ErrReadOnly) { // the reply waits for nothing
		c.rpc.Sure = true
	}
	if c.status = statusOf(err); res == nil {
		res = c.bare()
	}
	return res
}

// decode decodes the arguments of the operation.
func (c *compound) decode(args interface{ Decode(*xdr.Decoder) }) error {
	if args.Decode(&c.rpc.Args); c.rpc.Args.Err() != nil {
		return statusError(nfs4.ErrBadXDR)
	}
	return nil
}

// bare is a result that has nothing but the status.
func (c *compound) bare() result {
	if c.op == nfs4.OpSetattr { // it says what was set, whatever its status
		return &nfs4.SetattrRes{Status: c.status}
	}
	c.mem.status.Status = c.status
	return &c.mem.status
}

// append puts the result of the operation into the reply.
func (c *compound) append(res result) {
	before := len(c.rpc.Reply)
	b := res.Append(c.op.Append(c.rpc.Reply))
	err := c.keep(b)
	// An error can be long, too: LOCK's says whose lock is in the way.
	if err == nil && c.op != nfs4.OpSequence && (c.status == nfs4.OK || c.op == nfs4.OpLock || c.op == nfs4.OpLockt) {
		err = c.fits(0)
	}
	if err != nil {
		c.status = statusOf(err)
		c.rpc.Reply = c.bare().Append(c.op.Append(c.rpc.Reply[:before]))
	}
	c.done++
}

// Ended is called when the call is answered.
func (c *compound) Ended(rpc.AcceptStat, []byte) {}

// Drop reports whether the call may be forgotten, as its client has gone: if it has a slot,
// the client asks for the reply on another connection.
func (c *compound) Drop() bool { return c.on.slot == nil }
