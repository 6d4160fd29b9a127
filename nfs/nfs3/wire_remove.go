package nfs3

import "github.com/podnas/podnas/nfs/xdr"

// RemoveArgs is REMOVE3args, and RMDIR3args.
type RemoveArgs = DirOpArgs

// RemoveRes is REMOVE3res, RmdirRes RMDIR3res. Their Wcc is the directory's.
type (
	RemoveRes = WccRes
	RmdirRes  = WccRes
)

// RenameArgs is RENAME3args.
type RenameArgs struct {
	From, To DirOpArgs
}

// Append appends the arguments.
func (a *RenameArgs) Append(b []byte) []byte {
	b = a.From.Append(b)
	return a.To.Append(b)
}

// Decode consumes the arguments.
func (a *RenameArgs) Decode(d *xdr.Decoder) {
	a.From.Decode(d)
	a.To.Decode(d)
}

// RenameRes is RENAME3res.
type RenameRes struct {
	Status         Status
	FromWcc, ToWcc WccData
}

// Append appends the result.
func (r *RenameRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	b = r.FromWcc.append(b)
	return r.ToWcc.append(b)
}

// Decode consumes the result.
func (r *RenameRes) Decode(d *xdr.Decoder) {
	r.Status = Status(d.Uint32())
	r.FromWcc.decode(d)
	r.ToWcc.decode(d)
}

// LinkArgs is LINK3args: Link is the new name of File.
type LinkArgs struct {
	File FH
	Link DirOpArgs
}

// Append appends the arguments.
func (a *LinkArgs) Append(b []byte) []byte {
	b = a.File.append(b)
	return a.Link.Append(b)
}

// Decode consumes the arguments.
func (a *LinkArgs) Decode(d *xdr.Decoder) {
	a.File = decodeFH(d)
	a.Link.Decode(d)
}

// LinkRes is LINK3res.
type LinkRes struct {
	Status  Status
	Attr    PostOpAttr
	LinkWcc WccData // of the directory of the name
}

// Append appends the result.
func (r *LinkRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	b = r.Attr.append(b)
	return r.LinkWcc.append(b)
}

// Decode consumes the result.
func (r *LinkRes) Decode(d *xdr.Decoder) {
	r.Status = Status(d.Uint32())
	r.Attr.decode(d)
	r.LinkWcc.decode(d)
}
