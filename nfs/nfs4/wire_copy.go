package nfs4

import "github.com/podnas/podnas/nfs/xdr"

// AllocateArgs is ALLOCATE4args of RFC 7862, which DEALLOCATE has too.
type AllocateArgs struct {
	Stateid        Stateid
	Offset, Length uint64
}

// Append appends the arguments.
func (a *AllocateArgs) Append(b []byte) []byte {
	b = a.Stateid.append(b)
	b = xdr.AppendUint64(b, a.Offset)
	return xdr.AppendUint64(b, a.Length)
}

// Decode consumes the arguments.
func (a *AllocateArgs) Decode(d *xdr.Decoder) {
	a.Stateid.decode(d)
	a.Offset = d.Uint64()
	a.Length = d.Uint64()
}

// CloneArgs is CLONE4args. A Count of 0 is everything from SrcOffset on.
type CloneArgs struct {
	SrcStateid, DstStateid Stateid
	SrcOffset, DstOffset   uint64
	Count                  uint64
}

// Append appends the arguments.
func (a *CloneArgs) Append(b []byte) []byte {
	b = a.SrcStateid.append(b)
	b = a.DstStateid.append(b)
	b = xdr.AppendUint64(b, a.SrcOffset)
	b = xdr.AppendUint64(b, a.DstOffset)
	return xdr.AppendUint64(b, a.Count)
}

// Decode consumes the arguments.
func (a *CloneArgs) Decode(d *xdr.Decoder) {
	a.SrcStateid.decode(d)
	a.DstStateid.decode(d)
	a.SrcOffset = d.Uint64()
	a.DstOffset = d.Uint64()
	a.Count = d.Uint64()
}

// The arguments and results of these have the same format as others.
type (
	DeallocateArgs = AllocateArgs

	AllocateRes   = StatusRes
	DeallocateRes = StatusRes
	CloneRes      = StatusRes
)

// Netloc is netloc4: where another server is.
type Netloc struct {
	Type        NetlocType
	Name        []byte // or a URL
	NetID, Addr []byte // if NetlocAddr
}

func (l *Netloc) append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(l.Type))
	if l.Type == NetlocAddr {
		b = xdr.AppendOpaque(b, l.NetID)
		return xdr.AppendOpaque(b, l.Addr)
	}
	return xdr.AppendOpaque(b, l.Name)
}

func (l *Netloc) decode(d *xdr.Decoder) {
	l.Type = NetlocType(d.Uint32())
	switch l.Type {
	case NetlocName, NetlocURL:
		l.Name = d.Opaque(MaxPath)
	case NetlocAddr:
		l.NetID = d.Opaque(MaxPath)
		l.Addr = d.Opaque(MaxPath)
	default:
		d.Fail(xdr.ErrValue)
	}
}

// CopyArgs is COPY4args. Without Sources the saved file is of the same server.
type CopyArgs struct {
	CloneArgs
	Consecutive, Synchronous bool
	Sources                  []Netloc
}

// Append appends the arguments.
func (a *CopyArgs) Append(b []byte) []byte {
	b = a.CloneArgs.Append(b)
	b = xdr.AppendBool(b, a.Consecutive)
	b = xdr.AppendBool(b, a.Synchronous)
	b = xdr.AppendUint32(b, uint32(len(a.Sources)))
	for i := range a.Sources {
		b = a.Sources[i].append(b)
	}
	return b
}

// Decode consumes the arguments.
func (a *CopyArgs) Decode(d *xdr.Decoder) {
	*a = CopyArgs{}
	a.CloneArgs.Decode(d)
	a.Consecutive = d.Bool()
	a.Synchronous = d.Bool()
	if n := d.Count(MaxSources, 8); n > 0 {
		a.Sources = make([]Netloc, n)
	}
	for i := range a.Sources {
		a.Sources[i].decode(d)
	}
}

// CopyRes is COPY4res (write_response4, copy_requirements4).
type CopyRes struct {
	Status Status

	Asynchronous bool    // if OK, as the four that follow
	CallbackID   Stateid // if Asynchronous
	Count        uint64
	Committed    StableHow
	Verf         Verifier

	// If OK or ErrOffloadNoReqs.
	Consecutive, Synchronous bool
}

// Append appends the result.
func (r *CopyRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = xdr.AppendBool(b, r.Asynchronous)
		if r.Asynchronous {
			b = r.CallbackID.append(b)
		}
		b = xdr.AppendUint64(b, r.Count)
		b = xdr.AppendUint32(b, uint32(r.Committed))
		b = xdr.AppendFixed(b, r.Verf[:])
	}
	if r.Status == OK || r.Status == ErrOffloadNoReqs {
		b = xdr.AppendBool(b, r.Consecutive)
		b = xdr.AppendBool(b, r.Synchronous)
	}
	return b
}

// Decode consumes the result.
func (r *CopyRes) Decode(d *xdr.Decoder) {
	*r = CopyRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		if r.Asynchronous = d.Bool(); r.Asynchronous {
			r.CallbackID.decode(d)
		}
		r.Count = d.Uint64()
		r.Committed = decodeStableHow(d)
		r.Verf = decodeVerifier(d)
	}
	if r.Status == OK || r.Status == ErrOffloadNoReqs {
		r.Consecutive = d.Bool()
		r.Synchronous = d.Bool()
	}
}

// SeekArgs is SEEK4args.
type SeekArgs struct {
	Stateid Stateid
	Offset  uint64
	What    DataContent
}

// Append appends the arguments.
func (a *SeekArgs) Append(b []byte) []byte {
	b = a.Stateid.append(b)
	b = xdr.AppendUint64(b, a.Offset)
	return xdr.AppendUint32(b, uint32(a.What))
}

// Decode consumes the arguments. Any What is well-formed: the reply to an unknown one is
// ErrUnionNotSupp.
func (a *SeekArgs) Decode(d *xdr.Decoder) {
	a.Stateid.decode(d)
	a.Offset = d.Uint64()
	a.What = DataContent(d.Uint32())
}

// SeekRes is SEEK4res.
type SeekRes struct {
	Status Status
	EOF    bool // if OK, as the next
	Offset uint64
}

// Append appends the result.
func (r *SeekRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = xdr.AppendBool(b, r.EOF)
		b = xdr.AppendUint64(b, r.Offset)
	}
	return b
}

// Decode consumes the result.
func (r *SeekRes) Decode(d *xdr.Decoder) {
	*r = SeekRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.EOF = d.Bool()
		r.Offset = d.Uint64()
	}
}

// IOAdviseArgs is IO_ADVISE4args. Hints is a set of the Advise values.
type IOAdviseArgs struct {
	Stateid       Stateid
	Offset, Count uint64
	Hints         Bitmap
}

// Append appends the arguments.
func (a *IOAdviseArgs) Append(b []byte) []byte {
	b = a.Stateid.append(b)
	b = xdr.AppendUint64(b, a.Offset)
	b = xdr.AppendUint64(b, a.Count)
	return a.Hints.append(b)
}

// Decode consumes the arguments.
func (a *IOAdviseArgs) Decode(d *xdr.Decoder) {
	a.Stateid.decode(d)
	a.Offset = d.Uint64()
	a.Count = d.Uint64()
	a.Hints.decodeKnown(d)
}

// IOAdviseRes is IO_ADVISE4res: the hints that the server follows.
type IOAdviseRes struct {
	Status Status
	Hints  Bitmap // if OK
}

// Append appends the result.
func (r *IOAdviseRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = r.Hints.append(b)
	}
	return b
}

// Decode consumes the result.
func (r *IOAdviseRes) Decode(d *xdr.Decoder) {
	*r = IOAdviseRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.Hints.decodeKnown(d)
	}
}
