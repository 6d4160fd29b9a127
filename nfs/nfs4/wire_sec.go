package nfs4

import (
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

// CallbackSec is callback_sec_parms4: a credential for callbacks that a client accepts.
type CallbackSec struct {
	Flavor rpc.AuthFlavor
	Sys    rpc.SysCred // of AuthSys
	// Of AuthGSS (gss_cb_handles4).
	GSSService    uint32
	GSSFromServer []byte
	GSSFromClient []byte
}

func (s *CallbackSec) append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(s.Flavor))
	switch s.Flavor {
	case rpc.AuthSys:
		b = s.Sys.Append(b)
	case rpc.AuthGSS:
		b = xdr.AppendUint32(b, s.GSSService)
		b = xdr.AppendOpaque(b, s.GSSFromServer)
		b = xdr.AppendOpaque(b, s.GSSFromClient)
	}
	return b
}

func (s *CallbackSec) decode(d *xdr.Decoder) {
	s.Flavor = rpc.AuthFlavor(d.Uint32())
	switch s.Flavor {
	case rpc.AuthNone:
	case rpc.AuthSys:
		s.Sys.Decode(d)
	case rpc.AuthGSS:
		s.GSSService = d.Uint32()
		s.GSSFromServer = d.Opaque(OpaqueLimit)
		s.GSSFromClient = d.Opaque(OpaqueLimit)
	default:
		d.Fail(xdr.ErrValue)
	}
}

func appendSecParms(b []byte, parms []CallbackSec) []byte {
	b = xdr.AppendUint32(b, uint32(len(parms)))
	for i := range parms {
		b = parms[i].append(b)
	}
	return b
}

func decodeSecParms(d *xdr.Decoder) []CallbackSec {
	n := d.Count(MaxSecParms, 4)
	if n == 0 {
		return nil
	}
	parms := make([]CallbackSec, n)
	for i := range parms {
		parms[i].decode(d)
	}
	return parms
}

// Secinfo is secinfo4: a flavor that the server accepts.
type Secinfo struct {
	Flavor rpc.AuthFlavor
	// Of AuthGSS (rpcsec_gss_info).
	OID          []byte
	QOP, Service uint32
}

func (s *Secinfo) append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(s.Flavor))
	if s.Flavor == rpc.AuthGSS {
		b = xdr.AppendOpaque(b, s.OID)
		b = xdr.AppendUint32(b, s.QOP)
		b = xdr.AppendUint32(b, s.Service)
	}
	return b
}

func (s *Secinfo) decode(d *xdr.Decoder) {
	s.Flavor = rpc.AuthFlavor(d.Uint32())
	if s.Flavor == rpc.AuthGSS {
		s.OID = d.Opaque(OpaqueLimit)
		s.QOP = d.Uint32()
		s.Service = d.Uint32()
	}
}

// SecinfoArgs is SECINFO4args.
type SecinfoArgs = NameArgs

// SecinfoRes is SECINFO4res, which SECINFO_NO_NAME has too. The most wanted flavor is
// first.
type SecinfoRes struct {
	Status  Status
	Flavors []Secinfo // if OK
}

// Append appends the result.
func (r *SecinfoRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = xdr.AppendUint32(b, uint32(len(r.Flavors)))
		for i := range r.Flavors {
			b = r.Flavors[i].append(b)
		}
	}
	return b
}

// Decode consumes the result.
func (r *SecinfoRes) Decode(d *xdr.Decoder) {
	*r = SecinfoRes{Status: Status(d.Uint32())}
	if r.Status != OK {
		return
	}
	if n := d.Count(MaxSecParms, 4); n > 0 {
		r.Flavors = make([]Secinfo, n)
	}
	for i := range r.Flavors {
		r.Flavors[i].decode(d)
	}
}

// SecinfoNoNameArgs is SECINFO_NO_NAME4args.
type SecinfoNoNameArgs struct {
	Style SecinfoStyle
}

// Append appends the arguments.
func (a *SecinfoNoNameArgs) Append(b []byte) []byte {
	return xdr.AppendUint32(b, uint32(a.Style))
}

// Decode consumes the arguments.
func (a *SecinfoNoNameArgs) Decode(d *xdr.Decoder) {
	a.Style = SecinfoStyle(d.Uint32())
	if a.Style > SecinfoParent {
		d.Fail(xdr.ErrValue)
	}
}
