package nfsv41

import (
	"strconv"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/vfs"
)

// The attribute acl (RFC 8881 section 6.2.1) shows the disk's POSIX ACLs, acl(5), and sets them. These know fewer
// rights, and look at entries in an order of their own. So what is shown has entries that deny what later ones would give,
// and what is set gives nobody a right that the client's ACL does not: posixACLs.

// Rights of ACEs that a permission of a POSIX ACL stands for. WRITE is to remove names, too, in a directory.
const (
	aceRead  = nfs4.ACEReadData
	aceWrite = nfs4.ACEWriteData | nfs4.ACEAppendData
	aceExec  = nfs4.ACEExecute

	// Everybody has these, and the owner those besides, whatever the ACL: nobody can be denied them.
	aceOfAll   = nfs4.ACEReadAttributes | nfs4.ACEReadACL
	aceOfOwner = nfs4.ACEWriteAttributes | nfs4.ACEWriteACL
)

const aceInherits = nfs4.ACEFileInherit | nfs4.ACEDirectoryInherit

// Who an ACE is for, besides users and groups: section 6.2.1.5.
const (
	whoOwner    = "OWNER@"
	whoGroup    = "GROUP@"
	whoEveryone = "EVERYONE@"
)

// rightsOf are the rights of ACEs for permissions of a POSIX ACL.
func rightsOf(perm uint16, ofDir bool) (mask uint32) {
	if perm&4 != 0 {
		mask |= aceRead
	}
	if perm&2 != 0 {
		mask |= aceWrite
		if ofDir {
			mask |= nfs4.ACEDeleteChild
		}
	}
	if perm&1 != 0 {
		mask |= aceExec
	}
	return mask
}

// permOf is the reverse: a permission takes all of its rights.
func permOf(mask uint32, ofDir bool) (perm uint16) {
	for bit := uint16(1); bit <= 4; bit <<= 1 {
		if rights := rightsOf(bit, ofDir); mask&rights == rights {
			perm |= bit
		}
	}
	return perm
}

// acesOf is what the attribute has for the ACLs of a file.
func acesOf(acls vfs.ACLs, ofDir bool) []nfs4.ACE {
	aces := make([]nfs4.ACE, 0, 2*(len(acls.Access)+len(acls.Default)))
	aces = appendACEs(aces, acls.Access, 0, ofDir)
	return appendACEs(aces, acls.Default, aceInherits|nfs4.ACEInheritOnly, ofDir)
}

// appendACEs appends the entries of a POSIX ACL. In that, the owner and a named user have their own entry alone, and what
// any group has is enough for its members: so each user's denials are before its rights, and those of groups after the rights
// of all groups. Others have theirs last.
func appendACEs(aces []nfs4.ACE, acl []inode.ACLEntry, flag uint32, ofDir bool) []nfs4.ACE {
	if len(acl) == 0 {
		return aces
	}
	perms := effective(acl)
	var owner, groups, others uint16 // what all of a kind have together
	users := uint16(0)
	for i, e := range acl {
		switch e.Tag {
		case inode.ACLUserObj:
			owner = perms[i]
		case inode.ACLUser:
			users |= perms[i]
		case inode.ACLGroupObj, inode.ACLGroup:
			groups |= perms[i]
		case inode.ACLOther:
			others = perms[i]
		}
	}
	add := func(kind uint32, e inode.ACLEntry, mask uint32) {
		a := nfs4.ACE{Type: kind, Flag: flag, Mask: mask}
		switch e.Tag {
		case inode.ACLUserObj:
			a.Who = []byte(whoOwner)
		case inode.ACLGroupObj:
			a.Who = []byte(whoGroup)
		case inode.ACLOther:
			a.Who = []byte(whoEveryone)
		default:
			a.Who = strconv.AppendUint(nil, uint64(e.ID), 10)
			if e.Tag == inode.ACLGroup {
				a.Flag |= nfs4.ACEIdentifierGroup
			}
		}
		aces = append(aces, a)
	}
	deny := func(e inode.ACLEntry, perm uint16) {
		if perm != 0 {
			add(nfs4.ACEDenied, e, rightsOf(perm, ofDir))
		}
	}
	allow := func(e inode.ACLEntry, perm uint16) {
		mask := rightsOf(perm, ofDir) | aceOfAll | nfs4.ACESynchronize
		if e.Tag == inode.ACLUserObj {
			mask |= aceOfOwner
		}
		add(nfs4.ACEAllowed, e, mask)
	}
	for i, e := range acl {
		switch e.Tag {
		case inode.ACLUserObj:
			deny(e, (users|groups|others)&^owner)
			allow(e, owner)
		case inode.ACLUser:
			deny(e, (groups|others)&^perms[i])
			allow(e, perms[i])
		case inode.ACLGroupObj, inode.ACLGroup:
			allow(e, perms[i])
		}
	}
	for i, e := range acl {
		if e.Tag == inode.ACLGroupObj || e.Tag == inode.ACLGroup {
			deny(e, others&^perms[i])
		}
	}
	allow(inode.ACLEntry{Tag: inode.ACLOther}, others)
	return aces
}

// effective are the permissions of an ACL's entries under its mask.
func effective(acl []inode.ACLEntry) []uint16 {
	mask := uint16(7)
	for _, e := range acl {
		if e.Tag == inode.ACLMask {
			mask = e.Perm
		}
	}
	perms := make([]uint16, len(acl))
	for i, e := range acl {
		perms[i] = e.Perm & 7
		if e.Tag != inode.ACLUserObj && e.Tag != inode.ACLOther {
			perms[i] &= mask
		}
	}
	return perms
}

// fileACL is the attribute of a file that is open with UseAttr.
func (c *compound) fileACL(f *inode.File) ([]nfs4.ACE, error) {
	acls, err := c.ACLs(f, true, f.Attr.IsDir())
	if err != nil {
		return nil, err
	}
	return acesOf(acls, f.Attr.IsDir()), nil
}

// withACLs says in the attributes of a volume whether that has ACLs.
func withACLs(into *nfs4.Attrs, has bool) {
	into.ACLSupport = nfs4.ACLSupportAllow | nfs4.ACLSupportDeny
	if !has {
		into.ACLSupport = 0
		into.Mask.Clear(nfs4.AttrACL)
		into.SupportedAttrs.Clear(nfs4.AttrACL)
		into.SuppattrExclcreat.Clear(nfs4.AttrACL)
	}
}

// setACL has set set the ACL of a, if there is one, of a file of a volume.
func setACL(set *vfs.SetAttr, a *nfs4.Sattr, v *exports.Volume, what nfs4.FType) error {
	if !a.Mask.Has(nfs4.AttrACL) {
		return nil
	}
	if what == nfs4.TypeLnk || !v.HasACLs() {
		return statusError(nfs4.ErrAttrNotSupp)
	}
	acls, err := posixACLs(a.ACL, what == nfs4.TypeDir)
	if err != nil {
		return err
	}
	set.ACLs = &acls
	return nil
}
