package nfs4

import "github.com/podnas/podnas/nfs/xdr"

// The arguments and results of these have the same format as others (RFC 8276).
type (
	GetxattrArgs    = NameArgs
	RemovexattrArgs = NameArgs

	SetxattrRes    = ChangeRes
	RemovexattrRes = ChangeRes
)

// GetxattrRes is GETXATTR4res.
type GetxattrRes struct {
	Status Status
	Value  []byte // if OK
}

// Append appends the result.
func (r *GetxattrRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = xdr.AppendOpaque(b, r.Value)
	}
	return b
}

// Decode consumes the result.
func (r *GetxattrRes) Decode(d *xdr.Decoder) {
	*r = GetxattrRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.Value = d.Opaque(MaxData)
	}
}

// SetxattrArgs is SETXATTR4args.
type SetxattrArgs struct {
	Option SetxattrOption
	Name   []byte
	Value  []byte
}

// Append appends the arguments.
func (a *SetxattrArgs) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(a.Option))
	b = xdr.AppendOpaque(b, a.Name)
	return xdr.AppendOpaque(b, a.Value)
}

// Decode consumes the arguments. A value that is longer than Linux's XATTR_SIZE_MAX is
// decoded, up to MaxData, for a reply of ErrXattr2Big.
func (a *SetxattrArgs) Decode(d *xdr.Decoder) {
	a.Option = SetxattrOption(d.Uint32())
	if a.Option > XattrReplace {
		d.Fail(xdr.ErrValue)
	}
	a.Name = d.Opaque(MaxPath)
	a.Value = d.Opaque(MaxData)
}

// ListxattrsArgs is LISTXATTRS4args.
type ListxattrsArgs struct {
	Cookie   uint64
	MaxCount uint32
}

// Append appends the arguments.
func (a *ListxattrsArgs) Append(b []byte) []byte {
	b = xdr.AppendUint64(b, a.Cookie)
	return xdr.AppendUint32(b, a.MaxCount)
}

// Decode consumes the arguments.
func (a *ListxattrsArgs) Decode(d *xdr.Decoder) {
	a.Cookie = d.Uint64()
	a.MaxCount = d.Uint32()
}

// ListxattrsRes is LISTXATTRS4res.
type ListxattrsRes struct {
	Status Status
	Cookie uint64 // if OK, as the two that follow
	Names  [][]byte
	EOF    bool
}

// Append appends the result.
func (r *ListxattrsRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status != OK {
		return b
	}
	b = xdr.AppendUint64(b, r.Cookie)
	b = xdr.AppendUint32(b, uint32(len(r.Names)))
	for _, name := range r.Names {
		b = xdr.AppendOpaque(b, name)
	}
	return xdr.AppendBool(b, r.EOF)
}

// Decode consumes the result.
func (r *ListxattrsRes) Decode(d *xdr.Decoder) {
	*r = ListxattrsRes{Status: Status(d.Uint32())}
	if r.Status != OK {
		return
	}
	r.Cookie = d.Uint64()
	if n := d.Count(d.Len(), 4); n > 0 {
		r.Names = make([][]byte, n)
	}
	for i := range r.Names {
		r.Names[i] = d.Opaque(MaxPath)
	}
	r.EOF = d.Bool()
}
