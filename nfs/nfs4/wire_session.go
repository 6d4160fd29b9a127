package nfs4

import "github.com/podnas/podnas/nfs/xdr"

// SessionID is sessionid4.
type SessionID [SessionIDSize]byte

func decodeSessionID(d *xdr.Decoder) (id SessionID) {
	copy(id[:], d.Fixed(len(id)))
	return id
}

// SequenceArgs is SEQUENCE4args.
type SequenceArgs struct {
	SessionID     SessionID
	SequenceID    uint32
	SlotID        uint32
	HighestSlotID uint32
	CacheThis     bool
}

// Append appends the arguments.
func (a *SequenceArgs) Append(b []byte) []byte {
	b = xdr.AppendFixed(b, a.SessionID[:])
	b = xdr.AppendUint32(b, a.SequenceID)
	b = xdr.AppendUint32(b, a.SlotID)
	b = xdr.AppendUint32(b, a.HighestSlotID)
	return xdr.AppendBool(b, a.CacheThis)
}

// Decode consumes the arguments.
func (a *SequenceArgs) Decode(d *xdr.Decoder) {
	a.SessionID = decodeSessionID(d)
	a.SequenceID = d.Uint32()
	a.SlotID = d.Uint32()
	a.HighestSlotID = d.Uint32()
	a.CacheThis = d.Bool()
}

// SequenceRes is SEQUENCE4res.
type SequenceRes struct {
	Status              Status
	SessionID           SessionID // if OK, as all that follow
	SequenceID          uint32
	SlotID              uint32
	HighestSlotID       uint32
	TargetHighestSlotID uint32
	StatusFlags         uint32
}

// Append appends the result.
func (r *SequenceRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = xdr.AppendFixed(b, r.SessionID[:])
		b = xdr.AppendUint32(b, r.SequenceID)
		b = xdr.AppendUint32(b, r.SlotID)
		b = xdr.AppendUint32(b, r.HighestSlotID)
		b = xdr.AppendUint32(b, r.TargetHighestSlotID)
		b = xdr.AppendUint32(b, r.StatusFlags)
	}
	return b
}

// Decode consumes the result.
func (r *SequenceRes) Decode(d *xdr.Decoder) {
	*r = SequenceRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.SessionID = decodeSessionID(d)
		r.SequenceID = d.Uint32()
		r.SlotID = d.Uint32()
		r.HighestSlotID = d.Uint32()
		r.TargetHighestSlotID = d.Uint32()
		r.StatusFlags = d.Uint32()
	}
}

// ChannelAttrs is channel_attrs4: the limits of a session's channel.
type ChannelAttrs struct {
	HeaderPadSize         uint32
	MaxRequestSize        uint32
	MaxResponseSize       uint32
	MaxResponseSizeCached uint32
	MaxOperations         uint32
	MaxRequests           uint32
	// RDMA is whether there is an RDMAIRD, which is for RDMA alone.
	RDMA    bool
	RDMAIRD uint32
}

func (c *ChannelAttrs) append(b []byte) []byte {
	b = xdr.AppendUint32(b, c.HeaderPadSize)
	b = xdr.AppendUint32(b, c.MaxRequestSize)
	b = xdr.AppendUint32(b, c.MaxResponseSize)
	b = xdr.AppendUint32(b, c.MaxResponseSizeCached)
	b = xdr.AppendUint32(b, c.MaxOperations)
	b = xdr.AppendUint32(b, c.MaxRequests)
	// An array of at most one element is encoded as an optional value is.
	b = xdr.AppendBool(b, c.RDMA)
	if c.RDMA {
		b = xdr.AppendUint32(b, c.RDMAIRD)
	}
	return b
}

func (c *ChannelAttrs) decode(d *xdr.Decoder) {
	*c = ChannelAttrs{
		HeaderPadSize: d.Uint32(), MaxRequestSize: d.Uint32(),
		MaxResponseSize: d.Uint32(), MaxResponseSizeCached: d.Uint32(),
		MaxOperations: d.Uint32(), MaxRequests: d.Uint32(),
	}
	if c.RDMA = d.Bool(); c.RDMA {
		c.RDMAIRD = d.Uint32()
	}
}

// CreateSessionArgs is CREATE_SESSION4args.
type CreateSessionArgs struct {
	ClientID   uint64
	SequenceID uint32
	Flags      uint32
	Fore, Back ChannelAttrs
	CBProgram  uint32
	SecParms   []CallbackSec
}

// Append appends the arguments.
func (a *CreateSessionArgs) Append(b []byte) []byte {
	b = xdr.AppendUint64(b, a.ClientID)
	b = xdr.AppendUint32(b, a.SequenceID)
	b = xdr.AppendUint32(b, a.Flags)
	b = a.Fore.append(b)
	b = a.Back.append(b)
	b = xdr.AppendUint32(b, a.CBProgram)
	return appendSecParms(b, a.SecParms)
}

// Decode consumes the arguments.
func (a *CreateSessionArgs) Decode(d *xdr.Decoder) {
	a.ClientID = d.Uint64()
	a.SequenceID = d.Uint32()
	a.Flags = d.Uint32()
	a.Fore.decode(d)
	a.Back.decode(d)
	a.CBProgram = d.Uint32()
	a.SecParms = decodeSecParms(d)
}

// CreateSessionRes is CREATE_SESSION4res.
type CreateSessionRes struct {
	Status     Status
	SessionID  SessionID // if OK, as all that follow
	SequenceID uint32
	Flags      uint32
	Fore, Back ChannelAttrs
}

// Append appends the result.
func (r *CreateSessionRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = xdr.AppendFixed(b, r.SessionID[:])
		b = xdr.AppendUint32(b, r.SequenceID)
		b = xdr.AppendUint32(b, r.Flags)
		b = r.Fore.append(b)
		b = r.Back.append(b)
	}
	return b
}

// Decode consumes the result.
func (r *CreateSessionRes) Decode(d *xdr.Decoder) {
	*r = CreateSessionRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.SessionID = decodeSessionID(d)
		r.SequenceID = d.Uint32()
		r.Flags = d.Uint32()
		r.Fore.decode(d)
		r.Back.decode(d)
	}
}

// DestroySessionArgs is DESTROY_SESSION4args.
type DestroySessionArgs struct {
	SessionID SessionID
}

// Append appends the arguments.
func (a *DestroySessionArgs) Append(b []byte) []byte {
	return xdr.AppendFixed(b, a.SessionID[:])
}

// Decode consumes the arguments.
func (a *DestroySessionArgs) Decode(d *xdr.Decoder) {
	a.SessionID = decodeSessionID(d)
}

// BindConnToSessionArgs is BIND_CONN_TO_SESSION4args.
type BindConnToSessionArgs struct {
	SessionID SessionID
	Dir       ConnDir
	RDMA      bool
}

// Append appends the arguments.
func (a *BindConnToSessionArgs) Append(b []byte) []byte {
	b = xdr.AppendFixed(b, a.SessionID[:])
	b = xdr.AppendUint32(b, uint32(a.Dir))
	return xdr.AppendBool(b, a.RDMA)
}

// Decode consumes the arguments.
func (a *BindConnToSessionArgs) Decode(d *xdr.Decoder) {
	a.SessionID = decodeSessionID(d)
	a.Dir = ConnDir(d.Uint32())
	switch a.Dir {
	case ConnFore, ConnBack, ConnForeOrBoth, ConnBackOrBoth:
	default:
		d.Fail(xdr.ErrValue)
	}
	a.RDMA = d.Bool()
}

// BindConnToSessionRes is BIND_CONN_TO_SESSION4res.
type BindConnToSessionRes struct {
	Status    Status
	SessionID SessionID // if OK, as the two that follow
	Dir       ConnDir
	RDMA      bool
}

// Append appends the result.
func (r *BindConnToSessionRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = xdr.AppendFixed(b, r.SessionID[:])
		b = xdr.AppendUint32(b, uint32(r.Dir))
		b = xdr.AppendBool(b, r.RDMA)
	}
	return b
}

// Decode consumes the result.
func (r *BindConnToSessionRes) Decode(d *xdr.Decoder) {
	*r = BindConnToSessionRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.SessionID = decodeSessionID(d)
		r.Dir = ConnDir(d.Uint32())
		if r.Dir < ConnFore || r.Dir > ConnBoth {
			d.Fail(xdr.ErrValue)
		}
		r.RDMA = d.Bool()
	}
}

// BackchannelCtlArgs is BACKCHANNEL_CTL4args.
type BackchannelCtlArgs struct {
	CBProgram uint32
	SecParms  []CallbackSec
}

// Append appends the arguments.
func (a *BackchannelCtlArgs) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, a.CBProgram)
	return appendSecParms(b, a.SecParms)
}

// Decode consumes the arguments.
func (a *BackchannelCtlArgs) Decode(d *xdr.Decoder) {
	a.CBProgram = d.Uint32()
	a.SecParms = decodeSecParms(d)
}

// ReclaimCompleteArgs is RECLAIM_COMPLETE4args.
type ReclaimCompleteArgs struct {
	OneFS bool
}

// Append appends the arguments.
func (a *ReclaimCompleteArgs) Append(b []byte) []byte {
	return xdr.AppendBool(b, a.OneFS)
}

// Decode consumes the arguments.
func (a *ReclaimCompleteArgs) Decode(d *xdr.Decoder) {
	a.OneFS = d.Bool()
}

// DestroyClientIDArgs is DESTROY_CLIENTID4args.
type DestroyClientIDArgs = ClientIDArgs
