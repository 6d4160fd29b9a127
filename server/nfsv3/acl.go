package nfsv3

import (
	"slices"
	"syscall"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/vfs"
)

// NewACLProgram returns the server's side of NFSACL for version 3: getfacl and setfacl on mounts of that. Linux's
// client asks for a directory's default ACL before it makes something there, and applies its umask if there is none.
func NewACLProgram(files *vfs.Service) oncrpc.Program {
	s := &service{files}
	return oncrpc.Program{
		Number:  nfs3.ACLProgram,
		Version: nfs3.ACLVersion,
		Procedures: []oncrpc.Procedure{
			nfs3.ProcACLNull: {Name: "NFSACL NULL", Handle: s.null, AnyAuth: true},
			nfs3.ProcGetacl:  {Name: "GETACL", Handle: s.handler(with((*task).getacl))},
			nfs3.ProcSetacl:  {Name: "SETACL", Handle: s.handler(with((*task).setacl))},
		},
	}
}

// getaclHead is the most that GETACL's result takes without the entries of the ACLs, and aclEntrySize what an entry takes.
const (
	getaclHead   = 4 + 4 + 84 + 4 + 2*(4+4)
	aclEntrySize = 3 * 4
)

// getacl answers what was asked for and nothing else: a client takes less for an error. Who has a handle may ask.
func (t *task) getacl(args *nfs3.GetaclArgs) (result, rpc.AcceptStat) {
	res := &nfs3.GetaclRes{}
	if args.Mask&^nfs3.ACLMask != 0 {
		res.Status = nfs3.ErrInval
		return res, rpc.Success
	}
	f, err := t.Open(args.Object, inode.UseAttr)
	if err != nil {
		res.Status = t.statusOf(err)
		return res, rpc.Success
	}
	acls, err := t.ACLs(f, args.Mask&(nfs3.ACLAccess|nfs3.ACLAccessCount) != 0, args.Mask&(nfs3.ACLDefault|nfs3.ACLDefaultCount) != 0)
	res.Status, res.Attr, res.Mask = t.statusOf(err), postOpOf(f), args.Mask
	res.Access = aclOnWire(f, acls.Access, args.Mask&nfs3.ACLAccess != 0, 0)
	res.Default = aclOnWire(f, acls.Default, args.Mask&nfs3.ACLDefault != 0, nfs3.ACLOfDefault)
	if !t.rpc.TryReserve(getaclHead + aclEntrySize*(len(res.Access.Entries)+len(res.Default.Entries))) { // the usual ACLs are small, and the call does not wait for room for all
		return &nfs3.GetaclRes{Status: nfs3.ErrJukebox}, rpc.Success
	}
	return res, rpc.Success
}

// aclOnWire is an ACL, or only its number of entries. An ACL of three entries gets a mask that is equal to the group's: on
// the wire there is always one.
func aclOnWire(f *inode.File, acl []inode.ACLEntry, entries bool, flag uint32) (a nfs3.ACL) {
	if len(acl) == 3 {
		acl = slices.Insert(slices.Clone(acl), 2, inode.ACLEntry{Tag: inode.ACLMask, Perm: acl[1].Perm})
	}
	a.Count = uint32(len(acl))
	if !entries {
		return a
	}
	a.Entries = make([]nfs3.ACE, len(acl))
	for i, e := range acl {
		id := e.ID
		switch e.Tag {
		case inode.ACLUserObj:
			id = f.Attr.UID
		case inode.ACLGroupObj:
			id = f.Attr.GID
		}
		a.Entries[i] = nfs3.ACE{Tag: uint32(e.Tag) | flag, ID: id, Perm: uint32(e.Perm)}
	}
	return a
}

// setacl sets the ACLs that the mask names. One without entries is removed.
func (t *task) setacl(args *nfs3.SetaclArgs) (result, rpc.AcceptStat) {
	res := &nfs3.SetaclRes{}
	f, err := t.Open(args.Object, inode.UseAttr)
	if err == nil {
		err = t.setACLs(f, args)
		attr := vfs.AttrsOf(f)
		res.Attr = postOp(f.Volume, &attr)
	}
	res.Status = t.statusOf(err)
	return res, rpc.Success
}

func (t *task) setACLs(f *inode.File, args *nfs3.SetaclArgs) error {
	if args.Mask&^nfs3.ACLMask != 0 {
		return syscall.EINVAL
	}
	var acls vfs.ACLs
	access, inherited := args.Mask&nfs3.ACLAccess != 0, args.Mask&nfs3.ACLDefault != 0
	ok := true
	if access {
		acls.Access, ok = aclFromWire(&args.Access)
	}
	if inherited && ok {
		acls.Default, ok = aclFromWire(&args.Default)
	}
	if !ok {
		return syscall.EINVAL
	}
	return t.SetACLs(f, acls, access, inherited)
}

// aclFromWire is the reverse of aclOnWire. Whether the entries are an ACL is looked at later. A number of entries without
// the entries is none: an ACL that is not there would be removed.
func aclFromWire(a *nfs3.ACL) (acl []inode.ACLEntry, ok bool) {
	if int(a.Count) != len(a.Entries) {
		return nil, false
	}
	mask, group := -1, -1
	for i, e := range a.Entries {
		e.Tag &^= nfs3.ACLOfDefault
		switch e.Tag {
		case nfs3.ACLMaskObj: // of which Solaris has more bits
			mask, e.Perm = i, e.Perm&7
		case nfs3.ACLGroupObj:
			group = i
		}
		if e.Perm > 7 || e.Tag > nfs3.ACLOther {
			return nil, false
		}
		if e.Tag != nfs3.ACLUser && e.Tag != nfs3.ACLGroup {
			e.ID = 0
		}
		acl = append(acl, inode.ACLEntry{Tag: uint16(e.Tag), Perm: uint16(e.Perm), ID: e.ID})
	}
	if len(acl) == 4 && mask >= 0 && group >= 0 && acl[mask].Perm == acl[group].Perm { // three, in truth
		acl = slices.Delete(acl, mask, mask+1)
	}
	return acl, true
}
