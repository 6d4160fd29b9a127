package nfs4

import "github.com/podnas/podnas/nfs/xdr"

func decodeLockType(d *xdr.Decoder) LockType {
	t := LockType(d.Uint32())
	if t < LockRead || t > LockWriteWait {
		d.Fail(xdr.ErrValue)
	}
	return t
}

// LockArgs is LOCK4args (locker4).
type LockArgs struct {
	Type           LockType
	Reclaim        bool
	Offset, Length uint64
	NewOwner       bool

	OpenSeqid   uint32 // if NewOwner, as the two that follow
	OpenStateid Stateid
	Owner       StateOwner
	LockStateid Stateid // if not NewOwner
	LockSeqid   uint32
}

// Append appends the arguments.
func (a *LockArgs) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(a.Type))
	b = xdr.AppendBool(b, a.Reclaim)
	b = xdr.AppendUint64(b, a.Offset)
	b = xdr.AppendUint64(b, a.Length)
	b = xdr.AppendBool(b, a.NewOwner)
	if !a.NewOwner {
		b = a.LockStateid.append(b)
		return xdr.AppendUint32(b, a.LockSeqid)
	}
	b = xdr.AppendUint32(b, a.OpenSeqid)
	b = a.OpenStateid.append(b)
	b = xdr.AppendUint32(b, a.LockSeqid)
	return a.Owner.append(b)
}

// Decode consumes the arguments.
func (a *LockArgs) Decode(d *xdr.Decoder) {
	*a = LockArgs{Type: decodeLockType(d)}
	a.Reclaim = d.Bool()
	a.Offset = d.Uint64()
	a.Length = d.Uint64()
	if a.NewOwner = d.Bool(); !a.NewOwner {
		a.LockStateid.decode(d)
		a.LockSeqid = d.Uint32()
		return
	}
	a.OpenSeqid = d.Uint32()
	a.OpenStateid.decode(d)
	a.LockSeqid = d.Uint32()
	a.Owner.decode(d)
}

// LockDenied is LOCK4denied: the lock that conflicts.
type LockDenied struct {
	Offset, Length uint64
	Type           LockType
	Owner          StateOwner
}

func (l *LockDenied) append(b []byte) []byte {
	b = xdr.AppendUint64(b, l.Offset)
	b = xdr.AppendUint64(b, l.Length)
	b = xdr.AppendUint32(b, uint32(l.Type))
	return l.Owner.append(b)
}

func (l *LockDenied) decode(d *xdr.Decoder) {
	l.Offset = d.Uint64()
	l.Length = d.Uint64()
	l.Type = decodeLockType(d)
	l.Owner.decode(d)
}

// LockRes is LOCK4res.
type LockRes struct {
	Status  Status
	Stateid Stateid    // if OK
	Denied  LockDenied // if ErrDenied
}

// Append appends the result.
func (r *LockRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	switch r.Status {
	case OK:
		b = r.Stateid.append(b)
	case ErrDenied:
		b = r.Denied.append(b)
	}
	return b
}

// Decode consumes the result.
func (r *LockRes) Decode(d *xdr.Decoder) {
	*r = LockRes{Status: Status(d.Uint32())}
	switch r.Status {
	case OK:
		r.Stateid.decode(d)
	case ErrDenied:
		r.Denied.decode(d)
	}
}

// LocktArgs is LOCKT4args.
type LocktArgs struct {
	Type           LockType
	Offset, Length uint64
	Owner          StateOwner
}

// Append appends the arguments.
func (a *LocktArgs) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(a.Type))
	b = xdr.AppendUint64(b, a.Offset)
	b = xdr.AppendUint64(b, a.Length)
	return a.Owner.append(b)
}

// Decode consumes the arguments.
func (a *LocktArgs) Decode(d *xdr.Decoder) {
	a.Type = decodeLockType(d)
	a.Offset = d.Uint64()
	a.Length = d.Uint64()
	a.Owner.decode(d)
}

// LocktRes is LOCKT4res.
type LocktRes struct {
	Status Status
	Denied LockDenied // if ErrDenied
}

// Append appends the result.
func (r *LocktRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == ErrDenied {
		b = r.Denied.append(b)
	}
	return b
}

// Decode consumes the result.
func (r *LocktRes) Decode(d *xdr.Decoder) {
	*r = LocktRes{Status: Status(d.Uint32())}
	if r.Status == ErrDenied {
		r.Denied.decode(d)
	}
}

// LockuArgs is LOCKU4args.
type LockuArgs struct {
	Type           LockType
	Seqid          uint32
	Stateid        Stateid
	Offset, Length uint64
}

// Append appends the arguments.
func (a *LockuArgs) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(a.Type))
	b = xdr.AppendUint32(b, a.Seqid)
	b = a.Stateid.append(b)
	b = xdr.AppendUint64(b, a.Offset)
	return xdr.AppendUint64(b, a.Length)
}

// Decode consumes the arguments.
func (a *LockuArgs) Decode(d *xdr.Decoder) {
	a.Type = decodeLockType(d)
	a.Seqid = d.Uint32()
	a.Stateid.decode(d)
	a.Offset = d.Uint64()
	a.Length = d.Uint64()
}

// LockuRes is LOCKU4res.
type LockuRes = StateidRes
