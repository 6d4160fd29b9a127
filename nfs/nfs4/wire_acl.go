package nfs4

import "github.com/podnas/podnas/nfs/xdr"

// Types of an ACE: RFC 8881 section 6.2.1.1.
const (
	ACEAllowed = 0
	ACEDenied  = 1
	ACEAudit   = 2
	ACEAlarm   = 3
)

// Bits of aclsupport: section 6.2.1.2.
const (
	ACLSupportAllow = 0x1
	ACLSupportDeny  = 0x2
)

// Flags of an ACE: section 6.2.1.4.
const (
	ACEFileInherit      = 0x01
	ACEDirectoryInherit = 0x02
	ACENoPropagate      = 0x04
	ACEInheritOnly      = 0x08
	ACEIdentifierGroup  = 0x40
)

// Bits of an ACE's access mask: section 6.2.1.3.
const (
	ACEReadData        = 0x1
	ACEWriteData       = 0x2
	ACEAppendData      = 0x4
	ACEExecute         = 0x20
	ACEDeleteChild     = 0x40
	ACEReadAttributes  = 0x80
	ACEWriteAttributes = 0x100
	ACEReadACL         = 0x2_0000
	ACEWriteACL        = 0x4_0000
	ACESynchronize     = 0x10_0000

	ACEMaskAll = 0x1f_07ff
)

// ACE is nfsace4, an entry of an ACL; in a delegation, who may open the file without asking the server.
type ACE struct {
	Type, Flag, Mask uint32
	Who              []byte
}

// aceLeast is how much an ACE takes at least, in bytes.
const aceLeast = 16

func (e *ACE) append(b []byte) []byte {
	b = xdr.AppendUint32(b, e.Type)
	b = xdr.AppendUint32(b, e.Flag)
	b = xdr.AppendUint32(b, e.Mask)
	return xdr.AppendOpaque(b, e.Who)
}

func (e *ACE) decode(d *xdr.Decoder) {
	e.Type = d.Uint32()
	e.Flag = d.Uint32()
	e.Mask = d.Uint32()
	e.Who = d.Opaque(MaxPath)
}

func appendACL(b []byte, acl []ACE) []byte {
	b = xdr.AppendUint32(b, uint32(len(acl)))
	for i := range acl {
		b = acl[i].append(b)
	}
	return b
}

// decodeACL consumes an ACL. Attributes take at most MaxAttrs, and so does it.
func decodeACL(d *xdr.Decoder) []ACE {
	n := d.Count(MaxAttrs/aceLeast, aceLeast)
	if n == 0 {
		return nil
	}
	acl := make([]ACE, n)
	for i := range acl {
		acl[i].decode(d)
	}
	return acl
}
