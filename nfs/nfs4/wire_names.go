package nfs4

import "github.com/podnas/podnas/nfs/xdr"

// PutfhArgs is PUTFH4args.
type PutfhArgs struct {
	FH FH
}

// Append appends the arguments.
func (a *PutfhArgs) Append(b []byte) []byte {
	return a.FH.append(b)
}

// Decode consumes the arguments.
func (a *PutfhArgs) Decode(d *xdr.Decoder) {
	a.FH = decodeFH(d)
}

// GetfhRes is GETFH4res.
type GetfhRes struct {
	Status Status
	FH     FH // if OK
}

// Append appends the result.
func (r *GetfhRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = r.FH.append(b)
	}
	return b
}

// Decode consumes the result.
func (r *GetfhRes) Decode(d *xdr.Decoder) {
	*r = GetfhRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.FH = decodeFH(d)
	}
}

// The arguments and results of these have the same format as others.
type (
	LookupArgs = NameArgs
	RemoveArgs = NameArgs
	LinkArgs   = NameArgs

	PutfhRes  = StatusRes
	LookupRes = StatusRes

	RemoveRes = ChangeRes
	LinkRes   = ChangeRes
)

// AccessArgs is ACCESS4args.
type AccessArgs struct {
	Access uint32
}

// Append appends the arguments.
func (a *AccessArgs) Append(b []byte) []byte {
	return xdr.AppendUint32(b, a.Access)
}

// Decode consumes the arguments.
func (a *AccessArgs) Decode(d *xdr.Decoder) {
	a.Access = d.Uint32()
}

// AccessRes is ACCESS4res: the bits that the server can tell of, and those that are
// granted.
type AccessRes struct {
	Status            Status
	Supported, Access uint32 // if OK
}

// Append appends the result.
func (r *AccessRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = xdr.AppendUint32(b, r.Supported)
		b = xdr.AppendUint32(b, r.Access)
	}
	return b
}

// Decode consumes the result.
func (r *AccessRes) Decode(d *xdr.Decoder) {
	*r = AccessRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.Supported = d.Uint32()
		r.Access = d.Uint32()
	}
}

// CreateArgs is CREATE4args (createtype4).
type CreateArgs struct {
	Type FType
	Link []byte   // of symbolic links
	Spec SpecData // of devices
	Name []byte
	Attr Sattr
}

// Append appends the arguments.
func (a *CreateArgs) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(a.Type))
	switch a.Type {
	case TypeLnk:
		b = xdr.AppendOpaque(b, a.Link)
	case TypeBlk, TypeChr:
		b = a.Spec.append(b)
	}
	b = xdr.AppendOpaque(b, a.Name)
	return a.Attr.append(b)
}

// Decode consumes the arguments. Any type is well-formed (the union's default arm is
// void); the reply to one that can't be created is ErrBadType.
func (a *CreateArgs) Decode(d *xdr.Decoder) {
	*a = CreateArgs{Type: FType(d.Uint32())}
	switch a.Type {
	case TypeLnk:
		a.Link = d.Opaque(MaxData)
	case TypeBlk, TypeChr:
		a.Spec = decodeSpecData(d)
	}
	a.Name = d.Opaque(MaxPath)
	a.Attr.decode(d)
}

// CreateRes is CREATE4res.
type CreateRes struct {
	Status  Status
	Change  ChangeInfo // if OK, as the next
	AttrSet Bitmap
}

// Append appends the result.
func (r *CreateRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = r.Change.append(b)
		b = r.AttrSet.append(b)
	}
	return b
}

// Decode consumes the result.
func (r *CreateRes) Decode(d *xdr.Decoder) {
	*r = CreateRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.Change.decode(d)
		r.AttrSet.decodeKnown(d)
	}
}

// RenameArgs is RENAME4args.
type RenameArgs struct {
	OldName, NewName []byte
}

// Append appends the arguments.
func (a *RenameArgs) Append(b []byte) []byte {
	b = xdr.AppendOpaque(b, a.OldName)
	return xdr.AppendOpaque(b, a.NewName)
}

// Decode consumes the arguments.
func (a *RenameArgs) Decode(d *xdr.Decoder) {
	a.OldName = d.Opaque(MaxPath)
	a.NewName = d.Opaque(MaxPath)
}

// RenameRes is RENAME4res.
type RenameRes struct {
	Status         Status
	Source, Target ChangeInfo // if OK
}

// Append appends the result.
func (r *RenameRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = r.Source.append(b)
		b = r.Target.append(b)
	}
	return b
}

// Decode consumes the result.
func (r *RenameRes) Decode(d *xdr.Decoder) {
	*r = RenameRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.Source.decode(d)
		r.Target.decode(d)
	}
}

// ReadlinkRes is READLINK4res.
type ReadlinkRes struct {
	Status Status
	Link   []byte // if OK
}

// Append appends the result.
func (r *ReadlinkRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = xdr.AppendOpaque(b, r.Link)
	}
	return b
}

// Decode consumes the result.
func (r *ReadlinkRes) Decode(d *xdr.Decoder) {
	*r = ReadlinkRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.Link = d.Opaque(MaxPath)
	}
}
