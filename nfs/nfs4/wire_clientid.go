package nfs4

import "github.com/podnas/podnas/nfs/xdr"

// ImplID is nfs_impl_id4: what software the peer is, for logs.
type ImplID struct {
	Domain, Name []byte
	Date         Time
}

func (i *ImplID) append(b []byte) []byte {
	b = xdr.AppendOpaque(b, i.Domain)
	b = xdr.AppendOpaque(b, i.Name)
	return i.Date.append(b)
}

func (i *ImplID) decode(d *xdr.Decoder) {
	i.Domain = d.Opaque(OpaqueLimit)
	i.Name = d.Opaque(OpaqueLimit)
	i.Date = decodeTime(d)
}

// StateProtect is state_protect4_a and state_protect4_r: how a client's state is
// protected from others.
type StateProtect struct {
	How ProtectHow
	// MustEnforce and MustAllow are sets of OpNum. If not ProtectNone.
	MustEnforce, MustAllow Bitmap
}

// append appends no parameters of ProtectSSV: nobody here asks for it.
func (p *StateProtect) append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(p.How))
	if p.How != ProtectNone {
		b = p.MustEnforce.append(b)
		b = p.MustAllow.append(b)
	}
	if p.How == ProtectSSV {
		b = append(b, make([]byte, 4*4)...)
	}
	return b
}

// decode consumes a client's wish. The parameters of ProtectSSV are skipped: the server
// refuses it.
func (p *StateProtect) decode(d *xdr.Decoder) {
	*p = StateProtect{How: ProtectHow(d.Uint32())}
	if p.How > ProtectSSV {
		d.Fail(xdr.ErrValue)
	}
	if p.How != ProtectNone {
		p.MustEnforce.decodeKnown(d)
		p.MustAllow.decodeKnown(d)
	}
	if p.How == ProtectSSV {
		for range 2 { // the hash and the encryption algorithms
			for range d.Count(d.Len(), 4) {
				d.Opaque(OpaqueLimit)
			}
		}
		d.Uint64() // window, and number of handles
	}
}

// ExchangeIDArgs is EXCHANGE_ID4args.
type ExchangeIDArgs struct {
	Verf         Verifier // of client_owner4, as the next
	OwnerID      []byte
	Flags        uint32
	StateProtect StateProtect
	HasImpl      bool
	Impl         ImplID // if HasImpl
}

// Append appends the arguments.
func (a *ExchangeIDArgs) Append(b []byte) []byte {
	b = xdr.AppendFixed(b, a.Verf[:])
	b = xdr.AppendOpaque(b, a.OwnerID)
	b = xdr.AppendUint32(b, a.Flags)
	b = a.StateProtect.append(b)
	b = xdr.AppendBool(b, a.HasImpl)
	if a.HasImpl {
		b = a.Impl.append(b)
	}
	return b
}

// Decode consumes the arguments.
func (a *ExchangeIDArgs) Decode(d *xdr.Decoder) {
	*a = ExchangeIDArgs{Verf: decodeVerifier(d)}
	a.OwnerID = d.Opaque(OpaqueLimit)
	a.Flags = d.Uint32()
	a.StateProtect.decode(d)
	if a.HasImpl = d.Bool(); a.HasImpl {
		a.Impl.decode(d)
	}
}

// ExchangeIDRes is EXCHANGE_ID4res.
type ExchangeIDRes struct {
	Status       Status
	ClientID     uint64 // if OK, as all that follow
	SequenceID   uint32
	Flags        uint32
	StateProtect StateProtect // never ProtectSSV
	MinorID      uint64       // of server_owner4, as the next
	MajorID      []byte
	Scope        []byte
	HasImpl      bool
	Impl         ImplID // if HasImpl
}

// Append appends the result.
func (r *ExchangeIDRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status != OK {
		return b
	}
	b = xdr.AppendUint64(b, r.ClientID)
	b = xdr.AppendUint32(b, r.SequenceID)
	b = xdr.AppendUint32(b, r.Flags)
	b = r.StateProtect.append(b)
	b = xdr.AppendUint64(b, r.MinorID)
	b = xdr.AppendOpaque(b, r.MajorID)
	b = xdr.AppendOpaque(b, r.Scope)
	b = xdr.AppendBool(b, r.HasImpl)
	if r.HasImpl {
		b = r.Impl.append(b)
	}
	return b
}

// Decode consumes the result.
func (r *ExchangeIDRes) Decode(d *xdr.Decoder) {
	*r = ExchangeIDRes{Status: Status(d.Uint32())}
	if r.Status != OK {
		return
	}
	r.ClientID = d.Uint64()
	r.SequenceID = d.Uint32()
	r.Flags = d.Uint32()
	r.StateProtect.decode(d)
	if r.StateProtect.How == ProtectSSV {
		d.Fail(xdr.ErrValue) // of another format than the client's wish
	}
	r.MinorID = d.Uint64()
	r.MajorID = d.Opaque(OpaqueLimit)
	r.Scope = d.Opaque(OpaqueLimit)
	if r.HasImpl = d.Bool(); r.HasImpl {
		r.Impl.decode(d)
	}
}
