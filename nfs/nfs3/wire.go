package nfs3

import "github.com/podnas/podnas/nfs/xdr"

// FH is nfs_fh3, a file handle of at most FHSize bytes. In a post_op_fh3, which may
// lack the handle, it is then nil.
type FH []byte

func (fh FH) append(b []byte) []byte {
	return xdr.AppendOpaque(b, fh)
}

func decodeFH(d *xdr.Decoder) FH {
	return d.Opaque(FHSize)
}

// appendPostOpFH appends a post_op_fh3.
func appendPostOpFH(b []byte, fh FH) []byte {
	b = xdr.AppendBool(b, fh != nil)
	if fh != nil {
		b = fh.append(b)
	}
	return b
}

func decodePostOpFH(d *xdr.Decoder) FH {
	if !d.Bool() {
		return nil
	}
	return decodeFH(d)
}

// DirOpArgs is diropargs3: a name in a directory.
type DirOpArgs struct {
	Dir  FH
	Name []byte
}

// Append appends the arguments.
func (a *DirOpArgs) Append(b []byte) []byte {
	b = a.Dir.append(b)
	return xdr.AppendOpaque(b, a.Name)
}

// Decode consumes the arguments.
func (a *DirOpArgs) Decode(d *xdr.Decoder) {
	a.Dir = decodeFH(d)
	a.Name = d.Opaque(MaxPath)
}

// HandleArgs are the arguments of a procedure that takes only a handle.
type HandleArgs struct {
	Object FH
}

// Append appends the arguments.
func (a *HandleArgs) Append(b []byte) []byte {
	return a.Object.append(b)
}

// Decode consumes the arguments.
func (a *HandleArgs) Decode(d *xdr.Decoder) {
	a.Object = decodeFH(d)
}

// WccRes is the result of a procedure that returns a status and, whatever the
// status, one object's WccData: SETATTR, REMOVE, RMDIR.
type WccRes struct {
	Status Status
	Wcc    WccData
}

// Append appends the result.
func (r *WccRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	return r.Wcc.append(b)
}

// Decode consumes the result.
func (r *WccRes) Decode(d *xdr.Decoder) {
	r.Status = Status(d.Uint32())
	r.Wcc.decode(d)
}

// decodeVerf copies an 8-byte verifier, which unlike handles and data is small enough
// not to alias the record.
func decodeVerf(d *xdr.Decoder) (v [8]byte) {
	copy(v[:], d.Fixed(len(v)))
	return v
}
