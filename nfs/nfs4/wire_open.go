package nfs4

import "github.com/podnas/podnas/nfs/xdr"

// OpenArgs is OPEN4args (openflag4, createhow4, open_claim4).
type OpenArgs struct {
	Seqid       uint32
	ShareAccess uint32
	ShareDeny   uint32
	Owner       StateOwner

	Create bool
	Mode   CreateMode // if Create, as the two that follow
	Verf   Verifier   // if Exclusive or ExclusiveAttrs
	Attr   Sattr      // if not Exclusive

	Claim           ClaimType
	Name            []byte         // if ClaimNull, ClaimDelegateCur or ClaimDelegatePrev
	DelegateType    DelegationType // if ClaimPrevious
	DelegateStateid Stateid        // if ClaimDelegateCur or ClaimDelegCurFH
}

// Append appends the arguments.
func (a *OpenArgs) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, a.Seqid)
	b = xdr.AppendUint32(b, a.ShareAccess)
	b = xdr.AppendUint32(b, a.ShareDeny)
	b = a.Owner.append(b)
	b = xdr.AppendBool(b, a.Create)
	if a.Create {
		b = a.appendHow(b)
	}
	return a.appendClaim(b)
}

func (a *OpenArgs) appendHow(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(a.Mode))
	if a.Mode == Exclusive || a.Mode == ExclusiveAttrs {
		b = xdr.AppendFixed(b, a.Verf[:])
	}
	if a.Mode != Exclusive {
		b = a.Attr.append(b)
	}
	return b
}

func (a *OpenArgs) appendClaim(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(a.Claim))
	switch a.Claim {
	case ClaimNull, ClaimDelegatePrev:
		b = xdr.AppendOpaque(b, a.Name)
	case ClaimPrevious:
		b = xdr.AppendUint32(b, uint32(a.DelegateType))
	case ClaimDelegateCur:
		b = a.DelegateStateid.append(b)
		b = xdr.AppendOpaque(b, a.Name)
	case ClaimDelegCurFH:
		b = a.DelegateStateid.append(b)
	}
	return b
}

// Decode consumes the arguments.
func (a *OpenArgs) Decode(d *xdr.Decoder) {
	*a = OpenArgs{Seqid: d.Uint32(), ShareAccess: d.Uint32(), ShareDeny: d.Uint32()}
	a.Owner.decode(d)
	if a.Create = d.Bool(); a.Create {
		a.decodeHow(d)
	}
	a.decodeClaim(d)
}

func (a *OpenArgs) decodeHow(d *xdr.Decoder) {
	a.Mode = CreateMode(d.Uint32())
	if a.Mode > ExclusiveAttrs {
		d.Fail(xdr.ErrValue)
	}
	if a.Mode == Exclusive || a.Mode == ExclusiveAttrs {
		a.Verf = decodeVerifier(d)
	}
	if a.Mode != Exclusive {
		a.Attr.decode(d)
	}
}

func (a *OpenArgs) decodeClaim(d *xdr.Decoder) {
	a.Claim = ClaimType(d.Uint32())
	switch a.Claim {
	case ClaimNull, ClaimDelegatePrev:
		a.Name = d.Opaque(MaxPath)
	case ClaimPrevious:
		a.DelegateType = decodeDelegationType(d)
	case ClaimDelegateCur:
		a.DelegateStateid.decode(d)
		a.Name = d.Opaque(MaxPath)
	case ClaimDelegCurFH:
		a.DelegateStateid.decode(d)
	case ClaimFH, ClaimDelegPrevFH:
	default:
		d.Fail(xdr.ErrValue)
	}
}

// OpenRes is OPEN4res.
type OpenRes struct {
	Status     Status
	Stateid    Stateid // if OK, as all that follow
	Change     ChangeInfo
	Flags      uint32
	AttrSet    Bitmap
	Delegation Delegation
}

// Append appends the result.
func (r *OpenRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = r.Stateid.append(b)
		b = r.Change.append(b)
		b = xdr.AppendUint32(b, r.Flags)
		b = r.AttrSet.append(b)
		b = r.Delegation.append(b)
	}
	return b
}

// Decode consumes the result.
func (r *OpenRes) Decode(d *xdr.Decoder) {
	*r = OpenRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.Stateid.decode(d)
		r.Change.decode(d)
		r.Flags = d.Uint32()
		r.AttrSet.decodeKnown(d)
		r.Delegation.decode(d)
	}
}

func decodeDelegationType(d *xdr.Decoder) DelegationType {
	t := DelegationType(d.Uint32())
	if t > DelegateNoneExt {
		d.Fail(xdr.ErrValue)
	}
	return t
}

// Delegation is open_delegation4.
type Delegation struct {
	Type DelegationType

	Stateid     Stateid // of DelegateRead and DelegateWrite, as the two that follow
	Recall      bool
	Permissions ACE
	Limit       SpaceLimit // of DelegateWrite

	Why WhyNone // of DelegateNoneExt
	// WillTell is whether the server pushes a delegation, for NoneContention, or
	// signals that one is available, for NoneResource.
	WillTell bool
}

func (l *Delegation) append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(l.Type))
	switch l.Type {
	case DelegateRead, DelegateWrite:
		b = l.Stateid.append(b)
		b = xdr.AppendBool(b, l.Recall)
		if l.Type == DelegateWrite {
			b = l.Limit.append(b)
		}
		b = l.Permissions.append(b)
	case DelegateNoneExt:
		b = xdr.AppendUint32(b, uint32(l.Why))
		if l.Why == NoneContention || l.Why == NoneResource {
			b = xdr.AppendBool(b, l.WillTell)
		}
	}
	return b
}

func (l *Delegation) decode(d *xdr.Decoder) {
	*l = Delegation{Type: decodeDelegationType(d)}
	switch l.Type {
	case DelegateRead, DelegateWrite:
		l.Stateid.decode(d)
		l.Recall = d.Bool()
		if l.Type == DelegateWrite {
			l.Limit.decode(d)
		}
		l.Permissions.decode(d)
	case DelegateNoneExt:
		l.Why = WhyNone(d.Uint32())
		if l.Why > NoneIsDir {
			d.Fail(xdr.ErrValue)
		}
		if l.Why == NoneContention || l.Why == NoneResource {
			l.WillTell = d.Bool()
		}
	}
}

// SpaceLimit is nfs_space_limit4.
type SpaceLimit struct {
	By                LimitBy
	FileSize          uint64 // if LimitSize
	Blocks, BlockSize uint32 // if LimitBlocks
}

func (l *SpaceLimit) append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(l.By))
	if l.By == LimitSize {
		return xdr.AppendUint64(b, l.FileSize)
	}
	b = xdr.AppendUint32(b, l.Blocks)
	return xdr.AppendUint32(b, l.BlockSize)
}

func (l *SpaceLimit) decode(d *xdr.Decoder) {
	l.By = LimitBy(d.Uint32())
	switch l.By {
	case LimitSize:
		l.FileSize = d.Uint64()
	case LimitBlocks:
		l.Blocks = d.Uint32()
		l.BlockSize = d.Uint32()
	default:
		d.Fail(xdr.ErrValue)
	}
}

// OpenDowngradeArgs is OPEN_DOWNGRADE4args.
type OpenDowngradeArgs struct {
	Stateid     Stateid
	Seqid       uint32
	ShareAccess uint32
	ShareDeny   uint32
}

// Append appends the arguments.
func (a *OpenDowngradeArgs) Append(b []byte) []byte {
	b = a.Stateid.append(b)
	b = xdr.AppendUint32(b, a.Seqid)
	b = xdr.AppendUint32(b, a.ShareAccess)
	return xdr.AppendUint32(b, a.ShareDeny)
}

// Decode consumes the arguments.
func (a *OpenDowngradeArgs) Decode(d *xdr.Decoder) {
	a.Stateid.decode(d)
	a.Seqid = d.Uint32()
	a.ShareAccess = d.Uint32()
	a.ShareDeny = d.Uint32()
}

// CloseArgs is CLOSE4args.
type CloseArgs struct {
	Seqid   uint32
	Stateid Stateid
}

// Append appends the arguments.
func (a *CloseArgs) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, a.Seqid)
	return a.Stateid.append(b)
}

// Decode consumes the arguments.
func (a *CloseArgs) Decode(d *xdr.Decoder) {
	a.Seqid = d.Uint32()
	a.Stateid.decode(d)
}

// The arguments and results of these have the same format as others.
type (
	DelegreturnArgs = StateidArgs
	DelegpurgeArgs  = ClientIDArgs
	FreeStateidArgs = StateidArgs

	CloseRes = StateidRes
)

// TestStateidArgs is TEST_STATEID4args.
type TestStateidArgs struct {
	Stateids []Stateid
}

// Append appends the arguments.
func (a *TestStateidArgs) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(len(a.Stateids)))
	for i := range a.Stateids {
		b = a.Stateids[i].append(b)
	}
	return b
}

// Decode consumes the arguments.
func (a *TestStateidArgs) Decode(d *xdr.Decoder) {
	*a = TestStateidArgs{}
	if n := d.Count(d.Len(), 4+OtherSize); n > 0 {
		a.Stateids = make([]Stateid, n)
	}
	for i := range a.Stateids {
		a.Stateids[i].decode(d)
	}
}

// TestStateidRes is TEST_STATEID4res: a status for each stateid.
type TestStateidRes struct {
	Status   Status
	Statuses []Status // if OK
}

// Append appends the result.
func (r *TestStateidRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = xdr.AppendUint32(b, uint32(len(r.Statuses)))
		for _, s := range r.Statuses {
			b = xdr.AppendUint32(b, uint32(s))
		}
	}
	return b
}

// Decode consumes the result.
func (r *TestStateidRes) Decode(d *xdr.Decoder) {
	*r = TestStateidRes{Status: Status(d.Uint32())}
	if r.Status != OK {
		return
	}
	if n := d.Count(d.Len(), 4); n > 0 {
		r.Statuses = make([]Status, n)
	}
	for i := range r.Statuses {
		r.Statuses[i] = Status(d.Uint32())
	}
}
