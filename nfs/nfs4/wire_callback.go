package nfs4

import "github.com/podnas/podnas/nfs/xdr"

// Append appends the operation's number, which precedes its arguments and its result.
func (op CBOpNum) Append(b []byte) []byte {
	return xdr.AppendUint32(b, uint32(op))
}

// Decode consumes the number. Any value is well-formed, as that of an OpNum.
func (op *CBOpNum) Decode(d *xdr.Decoder) {
	*op = CBOpNum(d.Uint32())
}

// CBCompoundArgs is the head of CB_COMPOUND4args; NumOps operations follow. Version 4.1
// doesn't use Ident.
type CBCompoundArgs struct {
	Tag          []byte
	MinorVersion uint32
	Ident        uint32
	NumOps       uint32
}

// Append appends the head.
func (a *CBCompoundArgs) Append(b []byte) []byte {
	b = xdr.AppendOpaque(b, a.Tag)
	b = xdr.AppendUint32(b, a.MinorVersion)
	b = xdr.AppendUint32(b, a.Ident)
	return xdr.AppendUint32(b, a.NumOps)
}

// Decode consumes the head.
func (a *CBCompoundArgs) Decode(d *xdr.Decoder) {
	a.Tag = d.Opaque(MaxTag)
	a.MinorVersion = d.Uint32()
	a.Ident = d.Uint32()
	a.NumOps = d.Uint32()
}

// ReferringCall is referring_call4.
type ReferringCall struct {
	SequenceID, SlotID uint32
}

// ReferringCallList is referring_call_list4: calls of a session whose replies the client
// must have before it acts on the callback.
type ReferringCallList struct {
	SessionID SessionID
	Calls     []ReferringCall
}

func (l *ReferringCallList) append(b []byte) []byte {
	b = xdr.AppendFixed(b, l.SessionID[:])
	b = xdr.AppendUint32(b, uint32(len(l.Calls)))
	for _, c := range l.Calls {
		b = xdr.AppendUint32(b, c.SequenceID)
		b = xdr.AppendUint32(b, c.SlotID)
	}
	return b
}

func (l *ReferringCallList) decode(d *xdr.Decoder) {
	l.SessionID = decodeSessionID(d)
	if n := d.Count(d.Len(), 8); n > 0 {
		l.Calls = make([]ReferringCall, n)
	}
	for i := range l.Calls {
		l.Calls[i] = ReferringCall{SequenceID: d.Uint32(), SlotID: d.Uint32()}
	}
}

// CBSequenceArgs is CB_SEQUENCE4args.
type CBSequenceArgs struct {
	SessionID      SessionID
	SequenceID     uint32
	SlotID         uint32
	HighestSlotID  uint32
	CacheThis      bool
	ReferringCalls []ReferringCallList
}

// Append appends the arguments.
func (a *CBSequenceArgs) Append(b []byte) []byte {
	b = xdr.AppendFixed(b, a.SessionID[:])
	b = xdr.AppendUint32(b, a.SequenceID)
	b = xdr.AppendUint32(b, a.SlotID)
	b = xdr.AppendUint32(b, a.HighestSlotID)
	b = xdr.AppendBool(b, a.CacheThis)
	b = xdr.AppendUint32(b, uint32(len(a.ReferringCalls)))
	for i := range a.ReferringCalls {
		b = a.ReferringCalls[i].append(b)
	}
	return b
}

// Decode consumes the arguments.
func (a *CBSequenceArgs) Decode(d *xdr.Decoder) {
	*a = CBSequenceArgs{SessionID: decodeSessionID(d)}
	a.SequenceID = d.Uint32()
	a.SlotID = d.Uint32()
	a.HighestSlotID = d.Uint32()
	a.CacheThis = d.Bool()
	if n := d.Count(d.Len(), SessionIDSize+4); n > 0 {
		a.ReferringCalls = make([]ReferringCallList, n)
	}
	for i := range a.ReferringCalls {
		a.ReferringCalls[i].decode(d)
	}
}

// CBSequenceRes is CB_SEQUENCE4res.
type CBSequenceRes struct {
	Status              Status
	SessionID           SessionID // if OK, as all that follow
	SequenceID          uint32
	SlotID              uint32
	HighestSlotID       uint32
	TargetHighestSlotID uint32
}

// Append appends the result.
func (r *CBSequenceRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = xdr.AppendFixed(b, r.SessionID[:])
		b = xdr.AppendUint32(b, r.SequenceID)
		b = xdr.AppendUint32(b, r.SlotID)
		b = xdr.AppendUint32(b, r.HighestSlotID)
		b = xdr.AppendUint32(b, r.TargetHighestSlotID)
	}
	return b
}

// Decode consumes the result.
func (r *CBSequenceRes) Decode(d *xdr.Decoder) {
	*r = CBSequenceRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.SessionID = decodeSessionID(d)
		r.SequenceID = d.Uint32()
		r.SlotID = d.Uint32()
		r.HighestSlotID = d.Uint32()
		r.TargetHighestSlotID = d.Uint32()
	}
}

// CBNotifyLockArgs is CB_NOTIFY_LOCK4args.
type CBNotifyLockArgs struct {
	FH    FH
	Owner StateOwner
}

// Append appends the arguments.
func (a *CBNotifyLockArgs) Append(b []byte) []byte {
	b = a.FH.append(b)
	return a.Owner.append(b)
}

// Decode consumes the arguments.
func (a *CBNotifyLockArgs) Decode(d *xdr.Decoder) {
	a.FH = decodeFH(d)
	a.Owner.decode(d)
}

// CBRecallArgs is CB_RECALL4args.
type CBRecallArgs struct {
	Stateid  Stateid
	Truncate bool
	FH       FH
}

// Append appends the arguments.
func (a *CBRecallArgs) Append(b []byte) []byte {
	b = a.Stateid.append(b)
	b = xdr.AppendBool(b, a.Truncate)
	return a.FH.append(b)
}

// Decode consumes the arguments.
func (a *CBRecallArgs) Decode(d *xdr.Decoder) {
	a.Stateid.decode(d)
	a.Truncate = d.Bool()
	a.FH = decodeFH(d)
}

// The results of these have the same format as others.
type (
	CBCompoundRes   = CompoundRes
	CBNotifyLockRes = StatusRes
)
