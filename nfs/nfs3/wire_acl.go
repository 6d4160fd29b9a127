package nfs3

import "github.com/podnas/podnas/nfs/xdr"

// NFSACL has POSIX ACLs beside NFS version 3. No RFC has it: it is Sun's, and this is what Linux's client and server send,
// fs/nfs_common/nfsacl.c.

// Program, version and procedures of NFSACL for version 3.
const (
	ACLProgram = 100227
	ACLVersion = 3

	ProcACLNull = 0
	ProcGetacl  = 1
	ProcSetacl  = 2
)

// Bits of the mask of GETACL and SETACL.
const (
	ACLAccess       = 0x1
	ACLAccessCount  = 0x2
	ACLDefault      = 0x4 // of a directory, for what is made in it
	ACLDefaultCount = 0x8
	ACLMask         = 0xf
)

// MaxACL is the most entries of an ACL.
const MaxACL = 1024

// Tags of an entry, and the bit that those of a default ACL have besides.
const (
	ACLUserObj  = 0x01
	ACLUser     = 0x02
	ACLGroupObj = 0x04
	ACLGroup    = 0x08
	ACLMaskObj  = 0x10
	ACLOther    = 0x20

	ACLOfDefault = 0x1000
)

// ACE is an entry of an ACL. ID is the owner's or the group's, too, and 0 where there is none.
type ACE struct{ Tag, ID, Perm uint32 }

// ACL is an ACL. Count is how many entries it has: those that are given, or of which only the number was asked for.
type ACL struct {
	Count   uint32
	Entries []ACE
}

// ACLOf is an ACL with entries.
func ACLOf(entries ...ACE) ACL { return ACL{uint32(len(entries)), entries} }

func (a *ACL) append(b []byte) []byte {
	b = xdr.AppendUint32(b, a.Count)
	b = xdr.AppendUint32(b, uint32(len(a.Entries)))
	for i := range a.Entries {
		e := &a.Entries[i]
		b = xdr.AppendUint32(b, e.Tag)
		b = xdr.AppendUint32(b, e.ID)
		b = xdr.AppendUint32(b, e.Perm)
	}
	return b
}

func (a *ACL) decode(d *xdr.Decoder) {
	*a = ACL{Count: d.Uint32()}
	n := d.Count(MaxACL, 12)
	if a.Count > MaxACL || n > 0 && uint32(n) != a.Count {
		d.Fail(xdr.ErrValue)
		return
	}
	if n > 0 {
		a.Entries = make([]ACE, n)
	}
	for i := range a.Entries {
		a.Entries[i] = ACE{d.Uint32(), d.Uint32(), d.Uint32()}
	}
}

// GetaclArgs is GETACL3args.
type GetaclArgs struct {
	Object FH
	Mask   uint32
}

// Append appends the arguments.
func (a *GetaclArgs) Append(b []byte) []byte {
	b = a.Object.append(b)
	return xdr.AppendUint32(b, a.Mask)
}

// Decode consumes the arguments.
func (a *GetaclArgs) Decode(d *xdr.Decoder) {
	a.Object = decodeFH(d)
	a.Mask = d.Uint32()
}

// GetaclRes is GETACL3res.
type GetaclRes struct {
	Status          Status
	Attr            PostOpAttr
	Mask            uint32 // if OK, as the next two
	Access, Default ACL
}

// Append appends the result.
func (r *GetaclRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	b = r.Attr.append(b)
	if r.Status == OK {
		b = xdr.AppendUint32(b, r.Mask)
		b = r.Access.append(b)
		b = r.Default.append(b)
	}
	return b
}

// Decode consumes the result.
func (r *GetaclRes) Decode(d *xdr.Decoder) {
	*r = GetaclRes{Status: Status(d.Uint32())}
	r.Attr.decode(d)
	if r.Status == OK {
		r.Mask = d.Uint32()
		r.Access.decode(d)
		r.Default.decode(d)
	}
}

// SetaclArgs is SETACL3args. Mask is which of the two are set.
type SetaclArgs struct {
	Object          FH
	Mask            uint32
	Access, Default ACL
}

// Append appends the arguments.
func (a *SetaclArgs) Append(b []byte) []byte {
	b = a.Object.append(b)
	b = xdr.AppendUint32(b, a.Mask)
	b = a.Access.append(b)
	return a.Default.append(b)
}

// Decode consumes the arguments.
func (a *SetaclArgs) Decode(d *xdr.Decoder) {
	a.Object = decodeFH(d)
	a.Mask = d.Uint32()
	a.Access.decode(d)
	a.Default.decode(d)
}

// SetaclRes is SETACL3res.
type SetaclRes struct {
	Status Status
	Attr   PostOpAttr
}

// Append appends the result.
func (r *SetaclRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	return r.Attr.append(b)
}

// Decode consumes the result.
func (r *SetaclRes) Decode(d *xdr.Decoder) {
	*r = SetaclRes{Status: Status(d.Uint32())}
	r.Attr.decode(d)
}
