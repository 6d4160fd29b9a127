package nfsv41

import (
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/vfs"
)

// aclMax is the most entries that a POSIX ACL gets, as many as NFSACL has.
const aclMax = 1024

// posixACLs returns the POSIX ACLs that a client's ACL stands for. They give nobody a right that the client's does not, by
// section 6.2.1: an error is ATTRNOTSUPP for what can't be had, INVAL for what has no sense, or BADOWNER for who is unknown.
// Entries that are inherited make the default ACL of a directory; one for files or for directories alone counts for both, as POSIX ACLs know no
// difference.
func posixACLs(aces []nfs4.ACE, ofDir bool) (acls vfs.ACLs, err error) {
	var access, inherited decisions
	for i := range aces {
		a := &aces[i]
		who, id, err := whoOf(a)
		if err != nil {
			return acls, err
		}
		inherits := a.Flag&aceInherits != 0
		switch {
		case a.Type == nfs4.ACEAudit, a.Type == nfs4.ACEAlarm:
			return acls, statusError(nfs4.ErrAttrNotSupp)
		case a.Type > nfs4.ACEAlarm, a.Mask&^nfs4.ACEMaskAll != 0,
			a.Flag&^(aceInherits|nfs4.ACEInheritOnly|nfs4.ACEIdentifierGroup) != 0,
			inherits && !ofDir, a.Flag&nfs4.ACEInheritOnly != 0 && !inherits:
			return acls, statusError(nfs4.ErrInval)
		}
		if inherits {
			inherited.add(a, who, id)
		}
		if a.Flag&nfs4.ACEInheritOnly == 0 {
			access.add(a, who, id)
		}
	}
	inherited.complete(&access)
	if acls.Access, err = access.acl(ofDir); err != nil || !inherited.some {
		return acls, err
	}
	acls.Default, err = inherited.acl(ofDir)
	return acls, err
}

// whoOf says which entry of a POSIX ACL an ACE is for.
func whoOf(a *nfs4.ACE) (tag uint16, id uint32, err error) {
	switch string(a.Who) {
	case whoOwner:
		return inode.ACLUserObj, 0, nil
	case whoGroup:
		return inode.ACLGroupObj, 0, nil
	case whoEveryone:
		return inode.ACLOther, 0, nil
	}
	id, err = idOfOwner(a.Who)
	if a.Flag&nfs4.ACEIdentifierGroup != 0 {
		return inode.ACLGroup, id, err
	}
	return inode.ACLUser, id, err
}

// decided are the rights that the ACEs up to some point surely give or deny to some who. The first ACE that has a right for
// who asks decides. Who is in which group is not known: so the ACEs of groups deny a right to all that may be in them, and
// give it to who has only what that group has.
type decided struct{ allowed, denied uint32 }

func (d *decided) allow(mask uint32) { d.allowed |= mask &^ d.denied }
func (d *decided) deny(mask uint32)  { d.denied |= mask &^ d.allowed }

// decisions are those for each entry that the POSIX ACL will have.
type decisions struct {
	some                     bool // there was an ACE
	ofOwner, ofGroup, ofRest bool // and one of the owner, of its group, of everyone
	owner, group, other      decided
	// any is of who has no ACE yet, but may be in every group. What it has is decided for everybody that follows.
	any           decided
	users, groups named
}

// named are decisions for users or groups.
type named struct {
	index map[uint32]int
	ids   []uint32
	all   []decided
}

// of returns the decision for a user or group. If that has none yet, it is as from.
func (n *named) of(id uint32, from decided) *decided {
	i, ok := n.index[id]
	if !ok {
		if n.index == nil {
			n.index = map[uint32]int{}
		}
		i = len(n.all)
		n.index[id], n.ids, n.all = i, append(n.ids, id), append(n.all, from)
	}
	return &n.all[i]
}

// add has the next ACE decide.
func (d *decisions) add(a *nfs4.ACE, tag uint16, id uint32) {
	d.some = true
	allows := a.Type == nfs4.ACEAllowed
	switch tag {
	case inode.ACLUserObj:
		d.ofOwner = true
		decide(&d.owner, a.Mask, allows)
	case inode.ACLUser:
		u := d.users.of(id, d.any)
		decide(u, a.Mask, allows)
		if !allows { // who may be the owner
			d.owner.deny(a.Mask & u.denied)
		}
	case inode.ACLGroupObj:
		d.ofGroup = true
		d.addGroup(&d.group, a.Mask, allows)
	case inode.ACLGroup:
		d.addGroup(d.groups.of(id, d.any), a.Mask, allows)
	case inode.ACLOther:
		d.ofRest = true
		decide(&d.other, a.Mask, allows)
		d.everybody(a.Mask, allows)
	}
}

func decide(d *decided, mask uint32, allows bool) {
	if allows {
		d.allow(mask)
	} else {
		d.deny(mask)
	}
}

// addGroup has an ACE of a group decide. Its members may be in all others, and be the owner and any user.
func (d *decisions) addGroup(g *decided, mask uint32, allows bool) {
	decide(g, mask, allows)
	if !allows {
		d.everybody(mask&g.denied, false)
	}
}

// everybody decides for the owner, all users and all groups. A right is decided once for all of them: so this is little,
// however many ACEs there are.
func (d *decisions) everybody(mask uint32, allows bool) {
	decide(&d.owner, mask, allows)
	decide(&d.group, mask, allows)
	mask &^= d.any.allowed | d.any.denied
	if mask == 0 {
		return
	}
	decide(&d.any, mask, allows)
	for _, n := range [...]*named{&d.users, &d.groups} {
		for i := range n.all {
			decide(&n.all[i], mask, allows)
		}
	}
}

// complete gives a default ACL the entries that it must have from the one for use, as setfacl(1) does, less what it
// denies. An entry that ACEs of everyone decide is not missing.
func (d *decisions) complete(access *decisions) {
	if !d.some || d.ofRest {
		return
	}
	if !d.ofOwner {
		d.owner.allow(access.owner.allowed)
	}
	if !d.ofGroup {
		d.group.allow(access.group.allowed)
	}
	d.other.allow(access.other.allowed)
}

// acl is the ACL. The error is ATTRNOTSUPP if ACEs deny what can't be denied.
func (d *decisions) acl(ofDir bool) ([]inode.ACLEntry, error) {
	impossible := (d.owner.denied | d.group.denied | d.other.denied) & aceOfAll
	impossible |= d.owner.denied & aceOfOwner
	var mask uint16
	acl := []inode.ACLEntry{{Tag: inode.ACLUserObj, Perm: permOf(d.owner.allowed, ofDir)}, {Tag: inode.ACLOther, Perm: permOf(d.other.allowed, ofDir)}}
	masked := func(tag uint16, id uint32, of *decided) {
		impossible |= of.denied & aceOfAll
		perm := permOf(of.allowed, ofDir)
		mask |= perm
		acl = append(acl, inode.ACLEntry{Tag: tag, Perm: perm, ID: id})
	}
	masked(inode.ACLGroupObj, 0, &d.group)
	for i, id := range d.users.ids {
		masked(inode.ACLUser, id, &d.users.all[i])
	}
	for i, id := range d.groups.ids {
		masked(inode.ACLGroup, id, &d.groups.all[i])
	}
	if len(acl) > 3 {
		acl = append(acl, inode.ACLEntry{Tag: inode.ACLMask, Perm: mask})
	}
	switch {
	case impossible != 0:
		return nil, statusError(nfs4.ErrAttrNotSupp)
	case len(acl) > aclMax:
		return nil, statusError(nfs4.ErrNoSpc)
	}
	inode.SortACL(acl)
	return acl, nil
}
