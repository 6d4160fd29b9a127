package nfsv41

import (
	"hash/crc32"
	"math"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// sequenced is what SEQUENCE has begun.
type sequenced struct {
	slot     *state.Slot
	cache    bool
	wrote    bool // the reply is kept, asked for or not: see write
	replayed bool // the reply is that of the first time
	retry    bool // the reply of the first time was not kept
}

// client is who has called.
func (s *sequenced) client() *state.Client { return s.slot.Client() }

// end ends the use of the slot, whose reply may be asked for again.
func (s *sequenced) end(results []byte) {
	if s.slot != nil {
		s.slot.Done(results, (s.cache || s.wrote) && results != nil)
		s.slot = nil
	}
}

// errorOf is the error for what state says.
func errorOf(s nfs4.Status) error {
	if s == nfs4.OK {
		return nil
	}
	return statusError(s)
}

// principal is who sent the call.
func (c *compound) principal() state.Principal {
	return state.Principal{Flavor: uint32(c.rpc.Header.Cred.Flavor), UID: c.rpc.Cred.UID}
}

// digestOf is how much of a call tells it from another one, in bytes: section 2.10.6.1.3.1
// leaves it to the server. The next process must get the same.
const digestOf = 512

// digest is of what follows SEQUENCE. That is not the same when Linux sends a call again: sa_highest_slotid
// says what slots it uses then.
func (c *compound) digest() uint64 {
	left := c.rpc.Args
	rest := left.Rest()
	args := crc32.Checksum(rest[:min(len(rest), digestOf)], c.server.crc)
	cred := crc32.Checksum(c.rpc.Header.Cred.Body, c.server.crc)
	return uint64(args)<<32 | uint64(cred^uint32(len(rest)))
}

// sequence: RFC 8881 section 18.46.
func (c *compound) sequence() (result, error) {
	args := &c.mem.sequence
	if err := c.decode(args); err != nil {
		return nil, err
	}
	res, err := c.server.state.Sequence(state.SequenceArgs{
		Session: state.SessionID(args.SessionID), Slot: args.SlotID, Seq: args.SequenceID, HighestSlot: args.HighestSlotID,
		Digest: c.digest(), Ops: c.left + 1, Size: uint32(c.rpc.Size()), Conn: c.rpc.Conn(),
		Reply: uint32(c.size(sequenceBytes)), Cache: args.CacheThis,
	})
	switch {
	case err == nfs4.ErrRetryUncachedRep && c.left > 0:
		c.on.retry = true
	case err != nfs4.OK && err != nfs4.ErrRetryUncachedRep:
		return nil, errorOf(err)
	case res.Reply != nil:
		if err := c.room(len(res.Reply)); err != nil {
			return nil, err
		}
		c.rpc.Reply = append(c.rpc.Reply[:c.head], res.Reply...)
		c.on.replayed = true
		return nil, nil
	}
	if c.on.slot, c.on.cache = res.Slot, args.CacheThis; c.on.slot != nil {
		c.rpc.Tell(c)
	}
	c.mem.sequenceRes = nfs4.SequenceRes{
		SessionID: args.SessionID, SequenceID: args.SequenceID, SlotID: args.SlotID,
		HighestSlotID: res.HighestSlot, TargetHighestSlotID: res.TargetHighestSlot, StatusFlags: res.Status,
	}
	return &c.mem.sequenceRes, nil
}

// sequenceBytes is how much the result of SEQUENCE takes.
const sequenceBytes = 4 + 4 + len(nfs4.SessionID{}) + 5*4

// size is how long the reply is with so many bytes more, and with the error of the operation after
// it.
func (c *compound) size(more int) int {
	const header = 24 // of a reply of RPC, which counts
	const status = 4 + 4
	if c.left > 0 {
		more += status
	}
	return header + len(c.rpc.Reply) - c.head + more
}

// fits returns an error if the reply, with so many bytes more, is larger than the session
// may have it, or than it may cache: section 2.10.6.4.
func (c *compound) fits(more int) error {
	if c.on.slot == nil {
		return nil
	}
	size := c.size(more)
	switch fore := c.on.slot.Fore(); {
	case size > int(fore.MaxResponse):
		return statusError(nfs4.ErrRepTooBig)
	case c.on.cache && size > int(fore.MaxResponseCached):
		return statusError(nfs4.ErrRepTooBigToCache)
	}
	return nil
}

// admit refuses a client that may use no volume: there is nothing for it here, and it could bother other clients. RFC 8881
// section 15.2 has no error for that; of this one mount(8) says that access is denied.
func (c *compound) admit() error {
	if !c.server.table.Admits(c.rpc.Client) {
		return statusError(nfs4.ErrAccess)
	}
	return nil
}

// sessionRoom is how much data a result can have after its head, such that the reply is no larger than the session may have it.
func (c *compound) sessionRoom(head int) int {
	if c.on.slot == nil {
		return math.MaxInt32
	}
	const alignment = 4
	return max(0, int(c.on.slot.Fore().MaxResponse)-c.size(head)) / alignment * alignment
}

// exchangeID: section 18.35.
func (c *compound) exchangeID(args *nfs4.ExchangeIDArgs) (result, error) {
	if err := c.admit(); err != nil {
		return nil, err
	}
	known := uint32(nfs4.ExchangeSuppMovedRefer | nfs4.ExchangeSuppMovedMigr | nfs4.ExchangeBindPrincStateid | nfs4.ExchangeMaskPNFS | nfs4.ExchangeUpdConfirmedRecA)
	if c.minor >= 2 {
		known |= nfs4.ExchangeSuppFenceOps
	}
	switch {
	case args.Flags&^known != 0:
		return nil, statusError(nfs4.ErrInval)
	case args.StateProtect.How == nfs4.ProtectSSV:
		return nil, statusError(nfs4.ErrEncrAlgUnsupp)
	case args.StateProtect.How != nfs4.ProtectNone: // takes RPCSEC_GSS
		return nil, statusError(nfs4.ErrInval)
	}
	res, err := c.server.state.ExchangeID(state.ExchangeIDArgs{
		Owner: args.OwnerID, Verifier: args.Verf, Principal: c.principal(), Minor: c.minor,
		Update: args.Flags&nfs4.ExchangeUpdConfirmedRecA != 0, Conn: c.rpc.Conn(),
	})
	if err != nfs4.OK {
		return nil, errorOf(err)
	}
	flags := uint32(nfs4.ExchangeUseNonPNFS)
	if res.Confirmed {
		flags |= nfs4.ExchangeConfirmedR
	}
	id := c.server.identity
	return &nfs4.ExchangeIDRes{ClientID: res.ClientID, SequenceID: res.Seq, Flags: flags, MajorID: id, Scope: id}, nil
}

func channelOf(a *nfs4.ChannelAttrs) state.Channel {
	return state.Channel{MaxRequest: a.MaxRequestSize, MaxResponse: a.MaxResponseSize, MaxResponseCached: a.MaxResponseSizeCached, MaxOps: a.MaxOperations, MaxSlots: a.MaxRequests}
}

func attrsOf(c *state.Channel) nfs4.ChannelAttrs {
	return nfs4.ChannelAttrs{MaxRequestSize: c.MaxRequest, MaxResponseSize: c.MaxResponse, MaxResponseSizeCached: c.MaxResponseCached, MaxOperations: c.MaxOps, MaxRequests: c.MaxSlots}
}

// createSession: section 18.36.
func (c *compound) createSession(args *nfs4.CreateSessionArgs) (result, error) {
	if err := c.admit(); err != nil {
		return nil, err
	}
	const known = nfs4.SessionPersist | nfs4.SessionConnBackChan | nfs4.SessionConnRDMA
	if args.Flags&^known != 0 {
		return nil, statusError(nfs4.ErrInval)
	}
	create := state.CreateSessionArgs{
		ClientID: args.ClientID, Seq: args.SequenceID, Principal: c.principal(),
		Fore: channelOf(&args.Fore), Back: channelOf(&args.Back), Conn: c.rpc.Conn(),
	}
	if back := newBackChannel(c.minor, args.CBProgram, args.SecParms); back != nil {
		create.Callback, create.BackChannel = back, args.Flags&nfs4.SessionConnBackChan != 0
	}
	res, err := c.server.state.CreateSession(create)
	if err != nfs4.OK {
		return nil, errorOf(err)
	}
	reply := &nfs4.CreateSessionRes{
		SessionID: nfs4.SessionID(res.ID), SequenceID: res.Seq, Fore: attrsOf(&res.Fore), Back: attrsOf(&res.Back),
	}
	if res.BackChannel {
		reply.Flags = nfs4.SessionConnBackChan
		c.server.callableAgain(args.ClientID)
	}
	return reply, nil
}

// destroySession: section 18.37.
func (c *compound) destroySession(args *nfs4.DestroySessionArgs) (result, error) {
	id := state.SessionID(args.SessionID)
	if c.on.slot != nil && c.on.slot.SessionID() == id && c.left > 0 {
		return nil, statusError(nfs4.ErrNotOnlyOp) // it must be the last then
	}
	return nil, errorOf(c.server.state.DestroySession(id, c.rpc.Conn(), c.on.slot))
}

// destroyClientID: section 18.50.
func (c *compound) destroyClientID(args *nfs4.DestroyClientIDArgs) (result, error) {
	return nil, errorOf(c.server.state.DestroyClientID(args.ClientID, c.principal(), c.rpc.Conn()))
}

// bindConnToSession: section 18.34.
func (c *compound) bindConnToSession(args *nfs4.BindConnToSessionArgs) (result, error) {
	want := state.Direction(args.Dir) & (state.Fore | state.Back) // as the client asks for, or would also have
	dir, client, err := c.server.state.BindConn(state.SessionID(args.SessionID), c.rpc.Conn(), want)
	if err != nfs4.OK {
		return nil, errorOf(err)
	}
	if dir&state.Back != 0 {
		c.server.callableAgain(client)
	}
	return &nfs4.BindConnToSessionRes{SessionID: args.SessionID, Dir: nfs4.ConnDir(dir)}, nil
}

// backchannelCtl: section 18.33.
func (c *compound) backchannelCtl(args *nfs4.BackchannelCtlArgs) (result, error) {
	cred, ok := callbackCred(args.SecParms)
	if back, has := c.on.slot.Callback().(*backChannel); ok && has {
		back.set(args.CBProgram, cred)
		return nil, nil
	}
	return nil, statusError(nfs4.ErrNoEnt) // no credential that can be used: section 18.33.3
}

// reclaimComplete: section 18.51.
func (c *compound) reclaimComplete(args *nfs4.ReclaimCompleteArgs) (result, error) {
	if args.OneFS && !c.cur.isSet() {
		return nil, statusError(nfs4.ErrNoFileHandle)
	}
	return nil, errorOf(c.server.state.ReclaimComplete(c.on.client(), args.OneFS))
}
