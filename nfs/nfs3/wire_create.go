package nfs3

import "github.com/podnas/podnas/nfs/xdr"

// CreateArgs is CREATE3args (createhow3).
type CreateArgs struct {
	Where DirOpArgs
	Mode  CreateMode
	Attr  Sattr                // if Unchecked or Guarded
	Verf  [CreateVerfSize]byte // if Exclusive
}

// Append appends the arguments.
func (a *CreateArgs) Append(b []byte) []byte {
	b = a.Where.Append(b)
	b = xdr.AppendUint32(b, uint32(a.Mode))
	if a.Mode == Exclusive {
		return xdr.AppendFixed(b, a.Verf[:])
	}
	return a.Attr.append(b)
}

// Decode consumes the arguments.
func (a *CreateArgs) Decode(d *xdr.Decoder) {
	*a = CreateArgs{}
	a.Where.Decode(d)
	a.Mode = CreateMode(d.Uint32())
	switch a.Mode {
	case Unchecked, Guarded:
		a.Attr.decode(d)
	case Exclusive:
		a.Verf = decodeVerf(d)
	default:
		d.Fail(xdr.ErrValue)
	}
}

// CreateRes is CREATE3res, and the result of MKDIR, SYMLINK and MKNOD, which have
// the same format.
type CreateRes struct {
	Status Status
	Object FH         // if OK; nil: not in the reply
	Attr   PostOpAttr // if OK
	DirWcc WccData
}

// Append appends the result.
func (r *CreateRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = appendPostOpFH(b, r.Object)
		b = r.Attr.append(b)
	}
	return r.DirWcc.append(b)
}

// Decode consumes the result.
func (r *CreateRes) Decode(d *xdr.Decoder) {
	*r = CreateRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.Object = decodePostOpFH(d)
		r.Attr.decode(d)
	}
	r.DirWcc.decode(d)
}

// MkdirArgs is MKDIR3args.
type MkdirArgs struct {
	Where DirOpArgs
	Attr  Sattr
}

// Append appends the arguments.
func (a *MkdirArgs) Append(b []byte) []byte {
	b = a.Where.Append(b)
	return a.Attr.append(b)
}

// Decode consumes the arguments.
func (a *MkdirArgs) Decode(d *xdr.Decoder) {
	a.Where.Decode(d)
	a.Attr.decode(d)
}

// MkdirRes is MKDIR3res.
type MkdirRes = CreateRes

// SymlinkArgs is SYMLINK3args (symlinkdata3).
type SymlinkArgs struct {
	Where DirOpArgs
	Attr  Sattr
	Path  []byte
}

// Append appends the arguments.
func (a *SymlinkArgs) Append(b []byte) []byte {
	b = a.Where.Append(b)
	b = a.Attr.append(b)
	return xdr.AppendOpaque(b, a.Path)
}

// Decode consumes the arguments.
func (a *SymlinkArgs) Decode(d *xdr.Decoder) {
	a.Where.Decode(d)
	a.Attr.decode(d)
	a.Path = d.Opaque(MaxData)
}

// SymlinkRes is SYMLINK3res.
type SymlinkRes = CreateRes

// MknodArgs is MKNOD3args (mknoddata3).
type MknodArgs struct {
	Where DirOpArgs
	Type  FType
	Attr  Sattr    // of devices, sockets and fifos
	Spec  SpecData // of devices
}

// Append appends the arguments.
func (a *MknodArgs) Append(b []byte) []byte {
	b = a.Where.Append(b)
	b = xdr.AppendUint32(b, uint32(a.Type))
	switch a.Type {
	case TypeChr, TypeBlk:
		b = a.Attr.append(b)
		b = a.Spec.append(b)
	case TypeSock, TypeFIFO:
		b = a.Attr.append(b)
	}
	return b
}

// Decode consumes the arguments. Any other type is well-formed (the union's
// default arm is void); the reply to it is ErrBadType.
func (a *MknodArgs) Decode(d *xdr.Decoder) {
	*a = MknodArgs{}
	a.Where.Decode(d)
	a.Type = FType(d.Uint32())
	switch a.Type {
	case TypeChr, TypeBlk:
		a.Attr.decode(d)
		a.Spec = decodeSpecData(d)
	case TypeSock, TypeFIFO:
		a.Attr.decode(d)
	}
}

// MknodRes is MKNOD3res.
type MknodRes = CreateRes
