package nfs4

import "github.com/podnas/podnas/nfs/xdr"

// The operations of version 4.2 on ranges of a file: RFC 7862 section 15.

// RangeArgs is ALLOCATE4args, which DEALLOCATE has too.
type RangeArgs struct {
	Stateid Stateid
	Offset  uint64
	Length  uint64
}

// Append appends the arguments.
func (a *RangeArgs) Append(b []byte) []byte {
	b = a.Stateid.append(b)
	b = xdr.AppendUint64(b, a.Offset)
	return xdr.AppendUint64(b, a.Length)
}

// Decode consumes the arguments.
func (a *RangeArgs) Decode(d *xdr.Decoder) {
	a.Stateid.decode(d)
	a.Offset = d.Uint64()
	a.Length = d.Uint64()
}

// CloneArgs is CLONE4args. A Count of 0 is everything from SrcOffset on.
type CloneArgs struct {
	Src, Dst  Stateid
	SrcOffset uint64
	DstOffset uint64
	Count     uint64
}

// Append appends the arguments.
func (a *CloneArgs) Append(b []byte) []byte {
	b = a.Src.append(b)
	b = a.Dst.append(b)
	b = xdr.AppendUint64(b, a.SrcOffset)
	b = xdr.AppendUint64(b, a.DstOffset)
	return xdr.AppendUint64(b, a.Count)
}

// Decode consumes the arguments.
func (a *CloneArgs) Decode(d *xdr.Decoder) {
	a.Src.decode(d)
	a.Dst.decode(d)
	a.SrcOffset = d.Uint64()
	a.DstOffset = d.Uint64()
	a.Count = d.Uint64()
}

// NetLocType is netloc_type4: how a server is named.
type NetLocType uint32

// Values of NetLocType.
const (
	NetLocName    NetLocType = 1
	NetLocURL     NetLocType = 2
	NetLocAddress NetLocType = 3
)

// NetLoc is netloc4, a server. Name is its name or URL, or the address in the network NetID. Both alias
// the decoded record.
type NetLoc struct {
	Type  NetLocType
	NetID []byte // with NetLocAddress
	Name  []byte
}

func (l *NetLoc) append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(l.Type))
	if l.Type == NetLocAddress {
		b = xdr.AppendOpaque(b, l.NetID)
	}
	return xdr.AppendOpaque(b, l.Name)
}

func (l *NetLoc) decode(d *xdr.Decoder) {
	*l = NetLoc{Type: NetLocType(d.Uint32())}
	switch l.Type {
	case NetLocName, NetLocURL:
	case NetLocAddress:
		l.NetID = d.Opaque(MaxPath)
	default:
		d.Fail(xdr.ErrValue)
	}
	l.Name = d.Opaque(MaxPath)
}

// CopyArgs is COPY4args. A Count of 0 is everything from SrcOffset on.
type CopyArgs struct {
	Src, Dst    Stateid
	SrcOffset   uint64
	DstOffset   uint64
	Count       uint64
	Consecutive bool
	Synchronous bool
	Servers     []NetLoc // that have the source; none: this one
}

// Append appends the arguments.
func (a *CopyArgs) Append(b []byte) []byte {
	b = a.Src.append(b)
	b = a.Dst.append(b)
	b = xdr.AppendUint64(b, a.SrcOffset)
	b = xdr.AppendUint64(b, a.DstOffset)
	b = xdr.AppendUint64(b, a.Count)
	b = xdr.AppendBool(b, a.Consecutive)
	b = xdr.AppendBool(b, a.Synchronous)
	b = xdr.AppendUint32(b, uint32(len(a.Servers)))
	for i := range a.Servers {
		b = a.Servers[i].append(b)
	}
	return b
}

// Decode consumes the arguments.
func (a *CopyArgs) Decode(d *xdr.Decoder) {
	*a = CopyArgs{}
	a.Src.decode(d)
	a.Dst.decode(d)
	a.SrcOffset = d.Uint64()
	a.DstOffset = d.Uint64()
	a.Count = d.Uint64()
	a.Consecutive = d.Bool()
	a.Synchronous = d.Bool()
	for range d.Count(MaxServers, 8) {
		var l NetLoc
		if l.decode(d); d.Err() != nil {
			return
		}
		a.Servers = append(a.Servers, l)
	}
}

// CopyRes is COPY4res.
type CopyRes struct {
	Status      Status
	GoesOn      bool    // after the reply; if OK, as the four that follow
	Callback    Stateid // of the callback that tells its end, if it goes on
	Count       uint64
	Committed   StableHow
	Verf        Verifier
	Consecutive bool // if OK or ErrOffloadNoReqs, as the next
	Synchronous bool
}

// Append appends the result.
func (r *CopyRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = xdr.AppendBool(b, r.GoesOn) // the length of an array of at most one
		if r.GoesOn {
			b = r.Callback.append(b)
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
		if r.GoesOn = d.Bool(); r.GoesOn {
			r.Callback.decode(d)
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

// DataContent is data_content4. An unknown one is decoded, for a reply of ErrUnionNotSupp.
type DataContent uint32

// Values of DataContent.
const (
	ContentData DataContent = 0
	ContentHole DataContent = 1
)

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

// Decode consumes the arguments.
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

// The arguments and results of these have the same format as others.
type (
	AllocateArgs   = RangeArgs
	DeallocateArgs = RangeArgs

	AllocateRes   = StatusRes
	DeallocateRes = StatusRes
	CloneRes      = StatusRes
)
