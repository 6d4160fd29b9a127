package rpc

import "github.com/podnas/podnas/nfs/xdr"

// AuthFlavor is auth_flavor of RFC 5531 section 8.2.
type AuthFlavor uint32

// The flavors of section 8.2 for a server of AUTH_SYS.
const (
	AuthNone  AuthFlavor = 0
	AuthSys   AuthFlavor = 1
	AuthShort AuthFlavor = 2
	AuthDH    AuthFlavor = 3
	AuthGSS   AuthFlavor = 6
)

// Limits of section 8.2 and appendix A.
const (
	MaxAuthBody    = 400
	MaxMachineName = 255
	MaxGroups      = 16
)

// Auth is opaque_auth: a credential or a verifier. The body aliases the record
// it was decoded from.
type Auth struct {
	Flavor AuthFlavor
	Body   []byte
}

// Append appends the credential or verifier.
func (a *Auth) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(a.Flavor))
	return xdr.AppendOpaque(b, a.Body)
}

// Decode consumes a credential or verifier.
func (a *Auth) Decode(d *xdr.Decoder) {
	a.Flavor = AuthFlavor(d.Uint32())
	a.Body = d.Opaque(MaxAuthBody)
}

// SysCred is the body of an AUTH_SYS credential (appendix A, authsys_parms).
type SysCred struct {
	Stamp       uint32
	MachineName []byte
	UID, GID    uint32
	groups      [MaxGroups]uint32
	ngroups     int
}

// Groups returns the supplementary groups. They alias c.
func (c *SysCred) Groups() []uint32 {
	return c.groups[:c.ngroups]
}

// SetGroups sets the supplementary groups. It drops those beyond MaxGroups, as
// clients do.
func (c *SysCred) SetGroups(gids ...uint32) {
	c.ngroups = copy(c.groups[:], gids)
}

// Append appends the credential's body, without flavor and length.
func (c *SysCred) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, c.Stamp)
	b = xdr.AppendOpaque(b, c.MachineName)
	b = xdr.AppendUint32(b, c.UID)
	b = xdr.AppendUint32(b, c.GID)
	b = xdr.AppendUint32(b, uint32(c.ngroups))
	for _, gid := range c.Groups() {
		b = xdr.AppendUint32(b, gid)
	}
	return b
}

// Decode consumes the credential's body. The machine name aliases the record.
func (c *SysCred) Decode(d *xdr.Decoder) {
	c.Stamp = d.Uint32()
	c.MachineName = d.Opaque(MaxMachineName)
	c.UID = d.Uint32()
	c.GID = d.Uint32()
	c.ngroups = d.Count(MaxGroups, 4)
	for i := range c.ngroups {
		c.groups[i] = d.Uint32()
	}
}

// Auth returns the encoded credential.
func (c *SysCred) Auth() Auth {
	return Auth{Flavor: AuthSys, Body: c.Append(nil)}
}
