package nfs4

import "github.com/podnas/podnas/nfs/xdr"

func decodeStableHow(d *xdr.Decoder) StableHow {
	s := StableHow(d.Uint32())
	if s > FileSync {
		d.Fail(xdr.ErrValue)
	}
	return s
}

// ReadArgs is READ4args.
type ReadArgs struct {
	Stateid Stateid
	Offset  uint64
	Count   uint32
}

// Append appends the arguments.
func (a *ReadArgs) Append(b []byte) []byte {
	b = a.Stateid.append(b)
	b = xdr.AppendUint64(b, a.Offset)
	return xdr.AppendUint32(b, a.Count)
}

// Decode consumes the arguments.
func (a *ReadArgs) Decode(d *xdr.Decoder) {
	a.Stateid.decode(d)
	a.Offset = d.Uint64()
	a.Count = d.Uint32()
}

// ReadRes is READ4res. Data aliases the decoded record.
type ReadRes struct {
	Status Status
	EOF    bool // if OK, as the next
	Data   []byte
}

// Append appends the result.
func (r *ReadRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = xdr.AppendBool(b, r.EOF)
		b = xdr.AppendOpaque(b, r.Data)
	}
	return b
}

// Decode consumes the result.
func (r *ReadRes) Decode(d *xdr.Decoder) {
	*r = ReadRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.EOF = d.Bool()
		r.Data = d.Opaque(MaxData)
	}
}

// WriteArgs is WRITE4args. Data aliases the decoded record.
type WriteArgs struct {
	Stateid Stateid
	Offset  uint64
	Stable  StableHow
	Data    []byte
}

// Append appends the arguments.
func (a *WriteArgs) Append(b []byte) []byte {
	b = a.Stateid.append(b)
	b = xdr.AppendUint64(b, a.Offset)
	b = xdr.AppendUint32(b, uint32(a.Stable))
	return xdr.AppendOpaque(b, a.Data)
}

// Decode consumes the arguments.
func (a *WriteArgs) Decode(d *xdr.Decoder) {
	a.Stateid.decode(d)
	a.Offset = d.Uint64()
	a.Stable = decodeStableHow(d)
	a.Data = d.Opaque(MaxData)
}

// WriteRes is WRITE4res.
type WriteRes struct {
	Status    Status
	Count     uint32 // if OK, as the two that follow
	Committed StableHow
	Verf      Verifier
}

// Append appends the result.
func (r *WriteRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
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
	if r.Status == OK {
		r.Count = d.Uint32()
		r.Committed = decodeStableHow(d)
		r.Verf = decodeVerifier(d)
	}
}

// CommitArgs is COMMIT4args. A Count of 0 is everything from Offset on.
type CommitArgs struct {
	Offset uint64
	Count  uint32
}

// Append appends the arguments.
func (a *CommitArgs) Append(b []byte) []byte {
	b = xdr.AppendUint64(b, a.Offset)
	return xdr.AppendUint32(b, a.Count)
}

// Decode consumes the arguments.
func (a *CommitArgs) Decode(d *xdr.Decoder) {
	a.Offset = d.Uint64()
	a.Count = d.Uint32()
}

// CommitRes is COMMIT4res.
type CommitRes struct {
	Status Status
	Verf   Verifier // if OK
}

// Append appends the result.
func (r *CommitRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = xdr.AppendFixed(b, r.Verf[:])
	}
	return b
}

// Decode consumes the result.
func (r *CommitRes) Decode(d *xdr.Decoder) {
	*r = CommitRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.Verf = decodeVerifier(d)
	}
}
