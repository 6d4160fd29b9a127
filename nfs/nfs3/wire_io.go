package nfs3

import "github.com/podnas/podnas/nfs/xdr"

// ReadArgs is READ3args.
type ReadArgs struct {
	File   FH
	Offset uint64
	Count  uint32
}

// Append appends the arguments.
func (a *ReadArgs) Append(b []byte) []byte {
	b = a.File.append(b)
	b = xdr.AppendUint64(b, a.Offset)
	return xdr.AppendUint32(b, a.Count)
}

// Decode consumes the arguments.
func (a *ReadArgs) Decode(d *xdr.Decoder) {
	a.File = decodeFH(d)
	a.Offset = d.Uint64()
	a.Count = d.Uint32()
}

// ReadRes is READ3res. Data aliases the decoded record. Append ignores Count, and
// uses the length of Data.
type ReadRes struct {
	Status Status
	Attr   PostOpAttr
	Count  uint32 // if OK, as the three that follow
	EOF    bool
	Data   []byte
}

// Append appends the result.
func (r *ReadRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	b = r.Attr.append(b)
	if r.Status == OK {
		b = xdr.AppendUint32(b, uint32(len(r.Data)))
		b = xdr.AppendBool(b, r.EOF)
		b = xdr.AppendOpaque(b, r.Data)
	}
	return b
}

// Decode consumes the result.
func (r *ReadRes) Decode(d *xdr.Decoder) {
	*r = ReadRes{Status: Status(d.Uint32())}
	r.Attr.decode(d)
	if r.Status == OK {
		r.Count = d.Uint32()
		r.EOF = d.Bool()
		r.Data = d.Opaque(MaxData)
	}
}

// WriteArgs is WRITE3args. Data aliases the decoded record. Count should be its
// length, but a client may send another.
type WriteArgs struct {
	File   FH
	Offset uint64
	Count  uint32
	Stable StableHow
	Data   []byte
}

// Append appends the arguments.
func (a *WriteArgs) Append(b []byte) []byte {
	b = a.File.append(b)
	b = xdr.AppendUint64(b, a.Offset)
	b = xdr.AppendUint32(b, a.Count)
	b = xdr.AppendUint32(b, uint32(a.Stable))
	return xdr.AppendOpaque(b, a.Data)
}

// Decode consumes the arguments.
func (a *WriteArgs) Decode(d *xdr.Decoder) {
	a.File = decodeFH(d)
	a.Offset = d.Uint64()
	a.Count = d.Uint32()
	a.Stable = StableHow(d.Uint32())
	if a.Stable > FileSync {
		d.Fail(xdr.ErrValue)
	}
	a.Data = d.Opaque(MaxData)
}

// WriteRes is WRITE3res.
type WriteRes struct {
	Status    Status
	Wcc       WccData
	Count     uint32 // if OK, as the two that follow
	Committed StableHow
	Verf      [WriteVerfSize]byte
}

// Append appends the result.
func (r *WriteRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	b = r.Wcc.append(b)
	if r.Status == OK {
		b = xdr.AppendUint32(b, r.Count)
		b = xdr.AppendUint32(b, uint32(r.Committed))
		b = xdr.AppendFixed(b, r.Verf[:])
	}
	return b
}

// Decode consumes the result.
func (r *WriteRes) Decode(d *xdr.Decoder) {
	*r = WriteRes{Status: Status(d.Uint32())}
	r.Wcc.decode(d)
	if r.Status == OK {
		r.Count = d.Uint32()
		r.Committed = StableHow(d.Uint32())
		if r.Committed > FileSync {
			d.Fail(xdr.ErrValue)
		}
		r.Verf = decodeVerf(d)
	}
}

// CommitArgs is COMMIT3args. A Count of 0 is everything from Offset on.
type CommitArgs struct {
	File   FH
	Offset uint64
	Count  uint32
}

// Append appends the arguments.
func (a *CommitArgs) Append(b []byte) []byte {
	b = a.File.append(b)
	b = xdr.AppendUint64(b, a.Offset)
	return xdr.AppendUint32(b, a.Count)
}

// Decode consumes the arguments.
func (a *CommitArgs) Decode(d *xdr.Decoder) {
	a.File = decodeFH(d)
	a.Offset = d.Uint64()
	a.Count = d.Uint32()
}

// CommitRes is COMMIT3res.
type CommitRes struct {
	Status Status
	Wcc    WccData
	Verf   [WriteVerfSize]byte // if OK
}

// Append appends the result.
func (r *CommitRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	b = r.Wcc.append(b)
	if r.Status == OK {
		b = xdr.AppendFixed(b, r.Verf[:])
	}
	return b
}

// Decode consumes the result.
func (r *CommitRes) Decode(d *xdr.Decoder) {
	*r = CommitRes{Status: Status(d.Uint32())}
	r.Wcc.decode(d)
	if r.Status == OK {
		r.Verf = decodeVerf(d)
	}
}
