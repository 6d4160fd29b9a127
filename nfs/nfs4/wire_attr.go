package nfs4

import "github.com/podnas/podnas/nfs/xdr"

// FSID is fsid4.
type FSID struct {
	Major, Minor uint64
}

func (f FSID) append(b []byte) []byte {
	b = xdr.AppendUint64(b, f.Major)
	return xdr.AppendUint64(b, f.Minor)
}

func decodeFSID(d *xdr.Decoder) FSID {
	return FSID{Major: d.Uint64(), Minor: d.Uint64()}
}

// SpecData is specdata4: a device's major and minor number.
type SpecData struct {
	Major, Minor uint32
}

func (s SpecData) append(b []byte) []byte {
	b = xdr.AppendUint32(b, s.Major)
	return xdr.AppendUint32(b, s.Minor)
}

func decodeSpecData(d *xdr.Decoder) SpecData {
	return SpecData{Major: d.Uint32(), Minor: d.Uint32()}
}

// Fattr is fattr4 as it is on the wire. Vals aliases the decoded record.
type Fattr struct {
	Mask   Bitmap
	Others bool // there are bits that Mask has no room for
	Vals   []byte
}

// Attrs decodes the attributes, as Attrs.Decode does.
func (f *Fattr) Attrs() (Attrs, error) {
	var a Attrs
	err := a.decodeValues(f)
	return a, err
}

func (f *Fattr) append(b []byte) []byte {
	b = f.Mask.append(b)
	return xdr.AppendOpaque(b, f.Vals)
}

func (f *Fattr) decode(d *xdr.Decoder) {
	f.Mask, f.Others = decodeBitmap(d)
	f.Vals = d.Opaque(MaxAttrs)
}

// GetattrArgs is GETATTR4args.
type GetattrArgs struct {
	Request Bitmap
}

// Append appends the arguments.
func (a *GetattrArgs) Append(b []byte) []byte {
	return a.Request.append(b)
}

// Decode consumes the arguments.
func (a *GetattrArgs) Decode(d *xdr.Decoder) {
	a.Request.decodeKnown(d)
}

// GetattrRes is GETATTR4res.
type GetattrRes struct {
	Status Status
	Attr   Attrs // if OK
}

// Append appends the result, with all attributes that are given.
func (r *GetattrRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = r.Attr.Append(b, r.Attr.Mask)
	}
	return b
}

// Decode consumes the result.
func (r *GetattrRes) Decode(d *xdr.Decoder) {
	*r = GetattrRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.Attr.Decode(d)
	}
}

// SetattrArgs is SETATTR4args.
type SetattrArgs struct {
	Stateid Stateid
	Attr    Sattr
}

// Append appends the arguments.
func (a *SetattrArgs) Append(b []byte) []byte {
	b = a.Stateid.append(b)
	return a.Attr.append(b)
}

// Decode consumes the arguments.
func (a *SetattrArgs) Decode(d *xdr.Decoder) {
	a.Stateid.decode(d)
	a.Attr.decode(d)
}

// SetattrRes is SETATTR4res. AttrSet is what was set, whatever the status.
type SetattrRes struct {
	Status  Status
	AttrSet Bitmap
}

// Append appends the result.
func (r *SetattrRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	return r.AttrSet.append(b)
}

// Decode consumes the result.
func (r *SetattrRes) Decode(d *xdr.Decoder) {
	r.Status = Status(d.Uint32())
	r.AttrSet.decodeKnown(d)
}

// VerifyArgs is VERIFY4args, which NVERIFY has too. The file's own attributes are
// encoded to be compared with Attr.
type VerifyArgs struct {
	Attr Fattr
}

// Append appends the arguments.
func (a *VerifyArgs) Append(b []byte) []byte {
	return a.Attr.append(b)
}

// Decode consumes the arguments.
func (a *VerifyArgs) Decode(d *xdr.Decoder) {
	a.Attr.decode(d)
}
