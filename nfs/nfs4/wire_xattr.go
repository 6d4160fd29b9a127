package nfs4

import "github.com/podnas/podnas/nfs/xdr"

// The operations on extended attributes: RFC 8276 section 8.4. Names have no "user." in front.

const (
	// MaxXattr is the largest value, as Linux has it. A larger one is decoded, up to MaxData, for a reply of
	// ErrXattr2Big.
	MaxXattr = 64 << 10
	// MaxXattrs is how many names a file may have: Linux lists at most 64 KiB of them, each with "user." and a zero byte.
	MaxXattrs = 64 << 10 / len("user.n\x00")
)

// GetxattrRes is GETXATTR4res. Value aliases the decoded record.
type GetxattrRes struct {
	Status Status
	Value  []byte // if OK
}

// GetxattrHead is the size of GETXATTR's result before the value: status and length.
const GetxattrHead = 4 + 4

// Append appends the result. A value that is already in place, GetxattrHead bytes on, is not copied.
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

// SetxattrOption is setxattr_option4. An unknown one is decoded, for a reply of ErrInval.
type SetxattrOption uint32

// Values of SetxattrOption.
const (
	SetxattrEither  SetxattrOption = 0
	SetxattrCreate  SetxattrOption = 1 // it must not be there
	SetxattrReplace SetxattrOption = 2 // it must be there
)

// SetxattrArgs is SETXATTR4args. Name and Value alias the decoded record.
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

// Decode consumes the arguments.
func (a *SetxattrArgs) Decode(d *xdr.Decoder) {
	a.Option = SetxattrOption(d.Uint32())
	a.Name = d.Opaque(MaxPath)
	a.Value = d.Opaque(MaxData)
}

// ListxattrsArgs is LISTXATTRS4args. A Cookie of 0 is for the first name; MaxCount is the most bytes of the
// result after its status.
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

// ListxattrsRes is LISTXATTRS4res. The names alias the decoded record.
type ListxattrsRes struct {
	Status Status
	Cookie uint64 // for the names after these; if OK, as the next two
	Names  [][]byte
	EOF    bool
}

// ListxattrsFixed is the size of a result after its status, without names, as MaxCount counts.
const ListxattrsFixed = 8 + 4 + 4

// Append appends the result.
func (r *ListxattrsRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = xdr.AppendUint64(b, r.Cookie)
		b = xdr.AppendUint32(b, uint32(len(r.Names)))
		for _, name := range r.Names {
			b = xdr.AppendOpaque(b, name)
		}
		b = xdr.AppendBool(b, r.EOF)
	}
	return b
}

// Decode consumes the result.
func (r *ListxattrsRes) Decode(d *xdr.Decoder) {
	*r = ListxattrsRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.Cookie = d.Uint64()
		if n := d.Count(MaxXattrs, 4); n > 0 {
			r.Names = make([][]byte, n)
		}
		for i := range r.Names {
			r.Names[i] = d.Opaque(MaxPath)
		}
		r.EOF = d.Bool()
	}
}

// The arguments and results of these have the same format as others.
type (
	GetxattrArgs    = NameArgs
	RemovexattrArgs = NameArgs

	SetxattrRes    = ChangeRes
	RemovexattrRes = ChangeRes
)
