package nfs3

import "github.com/podnas/podnas/nfs/xdr"

// LookupArgs is LOOKUP3args.
type LookupArgs = DirOpArgs

// LookupRes is LOOKUP3res.
type LookupRes struct {
	Status  Status
	Object  FH         // if OK
	Attr    PostOpAttr // if OK
	DirAttr PostOpAttr
}

// Append appends the result.
func (r *LookupRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = r.Object.append(b)
		b = r.Attr.append(b)
	}
	return r.DirAttr.append(b)
}

// Decode consumes the result.
func (r *LookupRes) Decode(d *xdr.Decoder) {
	*r = LookupRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.Object = decodeFH(d)
		r.Attr.decode(d)
	}
	r.DirAttr.decode(d)
}

// AccessArgs is ACCESS3args.
type AccessArgs struct {
	Object FH
	Access uint32
}

// Append appends the arguments.
func (a *AccessArgs) Append(b []byte) []byte {
	b = a.Object.append(b)
	return xdr.AppendUint32(b, a.Access)
}

// Decode consumes the arguments.
func (a *AccessArgs) Decode(d *xdr.Decoder) {
	a.Object = decodeFH(d)
	a.Access = d.Uint32()
}

// AccessRes is ACCESS3res.
type AccessRes struct {
	Status Status
	Attr   PostOpAttr
	Access uint32 // if OK
}

// Append appends the result.
func (r *AccessRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	b = r.Attr.append(b)
	if r.Status == OK {
		b = xdr.AppendUint32(b, r.Access)
	}
	return b
}

// Decode consumes the result.
func (r *AccessRes) Decode(d *xdr.Decoder) {
	*r = AccessRes{Status: Status(d.Uint32())}
	r.Attr.decode(d)
	if r.Status == OK {
		r.Access = d.Uint32()
	}
}

// ReadlinkArgs is READLINK3args.
type ReadlinkArgs = HandleArgs

// ReadlinkRes is READLINK3res.
type ReadlinkRes struct {
	Status Status
	Attr   PostOpAttr
	Path   []byte // if OK
}

// Append appends the result.
func (r *ReadlinkRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	b = r.Attr.append(b)
	if r.Status == OK {
		b = xdr.AppendOpaque(b, r.Path)
	}
	return b
}

// Decode consumes the result.
func (r *ReadlinkRes) Decode(d *xdr.Decoder) {
	*r = ReadlinkRes{Status: Status(d.Uint32())}
	r.Attr.decode(d)
	if r.Status == OK {
		r.Path = d.Opaque(MaxPath)
	}
}
