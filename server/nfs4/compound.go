package nfs4

import (
	"errors"
	"unicode/utf8"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/vfs"
)

// compound is a COMPOUND under way. It is the Call's State, and used again with it.
type compound struct {
	vfs.Task

	server *Server
	left   uint32 // operations that were not begun
	done   uint32 // results in the reply
	head   int    // where the reply has its status
	tag    []byte // of the call
	status nfs4.Status

	op     nfs4.OpNum  // the one under way
	args   xdr.Decoder // its arguments, from where it is done again on another goroutine
	result result      // to be appended, when all is synced
	synced func()      // completes the result then
	may    bool        // its caller has the right to it: it goes on as root, which can't tell

	cur, saved       object
	stateid, savedID nfs4.Stateid // the current one, and what SAVEFH has saved

	on   sequenced    // if it began with SEQUENCE
	io   *export.File // of a READ, WRITE or COMMIT under way
	open opening      // of an OPEN under way
	mem  memory
}

// memory is for the arguments and results of what is called most, which thus allocate
// nothing.
type memory struct {
	sequence    nfs4.SequenceArgs
	sequenceRes nfs4.SequenceRes

	read    nfs4.ReadArgs
	readRes nfs4.ReadRes

	write    nfs4.WriteArgs
	writeRes nfs4.WriteRes

	handle    [2 * export.HandleMax]byte // of LOOKUP; for ChangeOf, too
	found     found                      // by LOOKUP
	handleRes nfs4.GetfhRes

	accessRes nfs4.AccessRes
	attrRes   nfs4.GetattrRes
	owners    owners
	status    nfs4.StatusRes // of all that answer nothing else
}

// found has the attributes of what LOOKUP has found.
type found struct {
	volume *export.Volume
	attr   export.Attr
	change uint64
}

// result is what an operation answers after its status.
type result interface{ Append([]byte) []byte }

// Reasons why an operation must be done again, from its start, on another goroutine.
var (
	errAsCaller = errors.New("takes a goroutine that acts as the caller")
	errAsRoot   = errors.New("takes a goroutine that is root")
)

// compound answers a COMPOUND: RFC 8881 section 16.2.
func (s *Server) compound(call *oncrpc.Call) oncrpc.Answer {
	c, ok := call.State.(*compound)
	if !ok {
		c = &compound{}
		call.State = c
	}
	*c = compound{server: s}
	c.Begin(s.files, call, c)
	c.WantChange, c.SharesChecked = true, true
	var args nfs4.CompoundArgs
	if args.Decode(&call.Args); call.Args.Err() != nil {
		c.Free()
		return oncrpc.Done(rpc.GarbageArgs)
	}
	long := len(args.Tag) > nfs4.MaxTag
	if long {
		args.Tag = nil
	}
	if !call.Reserve(replySize(&args, call.Args)) {
		c.Free()
		return oncrpc.Done(rpc.SystemErr)
	}
	c.left, c.tag, c.head = args.NumOps, args.Tag, len(call.Reply)
	switch {
	case args.MinorVersion != 1:
		c.status, c.left = nfs4.ErrMinorVersMismatch, 0
	case long, !utf8.Valid(args.Tag): // XDR has no limit for it, section 16.2.3; and section 14.5
		c.status, c.left = nfs4.ErrInval, 0
	}
	res := nfs4.CompoundRes{Tag: args.Tag}
	call.Reply = res.Append(call.Reply)
	return c.Answer()
}

// Step does an operation, and appends the result of the one before.
func (c *compound) Step() vfs.Next {
	if c.result != nil { // and all is synced
		c.append()
	}
	if !c.begin() {
		return c.end()
	}
	return c.perform()
}

// begin takes the next operation from the call. It is false at the end.
func (c *compound) begin() bool {
	switch {
	case c.op != 0:
		return true // again
	case c.status != nfs4.OK, c.left == 0, c.on.replayed:
		return false
	}
	c.left--
	c.op.Decode(&c.Call.Args)
	if c.Call.Args.Err() != nil {
		c.op = 0
		c.status = nfs4.ErrBadXDR
		return false
	}
	c.args = c.Call.Args
	return true
}

// perform does the operation that was begun.
func (c *compound) perform() vfs.Next {
	c.Call.Args = c.args
	var res result
	do, err := c.operation()
	if err == nil {
		res, err = do(c)
	}
	if !looks(c.op) && !c.open.looked || errors.Is(err, errAsCaller) || errors.Is(err, errAsRoot) { // which may take a while
		for _, o := range [...]*object{&c.cur, &c.saved, &c.open.object} {
			o.fresh, o.found = false, false
		}
	}
	switch {
	case errors.Is(err, errAsCaller):
		return vfs.AsCaller
	case errors.Is(err, errAsRoot):
		return vfs.AsRoot
	case c.Call.Args.Err() != nil:
		res, err = nil, statusError(nfs4.ErrBadXDR)
	}
	c.status = statusOf(err)
	if c.result = res; res == nil {
		c.result = c.bare()
	}
	return vfs.AfterSync
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
func (c *compound) append() {
	if err := c.SyncErr(); err != nil && c.status == nfs4.OK {
		c.status = statusOf(err)
		c.result = c.bare()
	} else if c.synced != nil {
		c.synced()
	}
	if !c.on.replayed { // else the reply is complete
		before := len(c.Call.Reply)
		c.Call.Reply = c.result.Append(c.op.Append(c.Call.Reply))
		// An error can be long, too: LOCK's says whose lock is in the way.
		if err := c.fits(0); err != nil && c.op != nfs4.OpSequence && (c.status == nfs4.OK || c.op == nfs4.OpLock || c.op == nfs4.OpLockt) {
			c.status = statusOf(err)
			c.Call.Reply = c.bare().Append(c.op.Append(c.Call.Reply[:before]))
		}
	}
	c.done++
	c.op, c.result, c.synced, c.may, c.io, c.open = 0, nil, nil, false, nil, opening{}
}

// end completes the reply.
func (c *compound) end() vfs.Next {
	if c.on.replayed {
		return vfs.End
	}
	res := nfs4.CompoundRes{Status: c.status, Tag: c.tag, NumOps: c.done}
	res.Patch(c.Call.Reply, c.head)
	c.on.end(c.Call.Reply[c.head:])
	return vfs.End
}

// Free forgets the call. If it was not done to its end, it was not answered either.
func (c *compound) Free() {
	c.on.end(nil)
	*c = compound{}
}

// Ended is called when the call is answered.
func (c *compound) Ended(rpc.AcceptStat, []byte) {}

// Drop reports whether the call may be forgotten, as its client has gone: if it has a slot,
// the client asks for the reply on another connection.
func (c *compound) Drop() bool { return c.on.slot == nil }
