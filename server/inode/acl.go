package inode

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
)

// POSIX ACLs, acl(5), of a file that is open with UseAttr, or through a Held. On the disk they are extended attributes, whose
// format is that of linux/posix_acl_xattr.h.

// ACLEntry is an entry. Its ID is that of a named user or group.
type ACLEntry struct {
	Tag, Perm uint16
	ID        uint32
}

// Tags of an ACLEntry.
const (
	ACLUserObj  = 0x01
	ACLUser     = 0x02
	ACLGroupObj = 0x04
	ACLGroup    = 0x08
	ACLMask     = 0x10
	ACLOther    = 0x20
)

// ACLKind is the ACL by which a file is used, or that of a directory for what is made in it.
type ACLKind string

// The kinds of ACLs.
const (
	AccessACL  ACLKind = "system.posix_acl_access"
	DefaultACL ACLKind = "system.posix_acl_default"
)

const (
	aclVersion = 2
	aclHead    = 4
	aclEach    = 8
	aclNoID    = 1<<32 - 1
	// aclMax is more than any disk has.
	aclMax = 64 << 10
)

// ACL returns an ACL of the file, as it is on the disk. It takes no right. It is nil if there is none, also where the disk has no
// ACLs: then the mode has the rights.
func (f *File) ACL(kind ACLKind) ([]ACLEntry, error) {
	if f.Attr.IsSymlink() || kind == DefaultACL && !f.Attr.IsDir() {
		return nil, nil
	}
	var few [aclHead + 32*aclEach]byte
	p := few[:]
	n, err := f.getXattr(string(kind), p)
	if errors.Is(err, unix.ERANGE) {
		p = make([]byte, aclMax)
		n, err = f.getXattr(string(kind), p)
	}
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.EOPNOTSUPP):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return decodeACL(p[:n])
}

// HasDefaultACL reports whether the directory, which is open with UseNames, has an ACL for what is made in it.
func (f *File) HasDefaultACL() (bool, error) {
	switch n, err := f.getXattr(string(DefaultACL), nil); {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.EOPNOTSUPP):
		return false, nil
	default:
		return n > 0, err
	}
}

func decodeACL(p []byte) ([]ACLEntry, error) {
	le := binary.LittleEndian
	if len(p) < aclHead || (len(p)-aclHead)%aclEach != 0 || le.Uint32(p) != aclVersion {
		return nil, unix.EIO
	}
	var acl []ACLEntry
	for p = p[aclHead:]; len(p) > 0; p = p[aclEach:] {
		e := ACLEntry{Tag: le.Uint16(p), Perm: le.Uint16(p[2:]), ID: le.Uint32(p[4:])}
		if e.ID == aclNoID {
			e.ID = 0
		}
		acl = append(acl, e)
	}
	return acl, nil
}

func encodeACL(acl []ACLEntry) []byte {
	le := binary.LittleEndian
	p := le.AppendUint32(make([]byte, 0, aclHead+len(acl)*aclEach), aclVersion)
	for _, e := range acl {
		id := uint32(aclNoID)
		if e.Tag == ACLUser || e.Tag == ACLGroup {
			id = e.ID
		}
		p = le.AppendUint16(p, e.Tag)
		p = le.AppendUint16(p, e.Perm)
		p = le.AppendUint32(p, id)
	}
	return p
}

// SortACL puts an ACL in the order that the kernel wants, and reports whether it is one: acl(5), "VALID ACLs".
func SortACL(acl []ACLEntry) bool {
	slices.SortStableFunc(acl, func(a, b ACLEntry) int { return cmp.Or(cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.ID, b.ID)) })
	count := map[uint16]int{}
	for i, e := range acl {
		if e.Perm > 7 {
			return false
		}
		switch e.Tag {
		case ACLUser, ACLGroup:
			if e.ID == aclNoID || i > 0 && acl[i-1].Tag == e.Tag && acl[i-1].ID == e.ID {
				return false
			}
			count[ACLMask|ACLUser]++ // which needs a mask
		case ACLUserObj, ACLGroupObj, ACLMask, ACLOther:
			count[e.Tag]++
		default:
			return false
		}
	}
	named := count[ACLMask|ACLUser] > 0
	return count[ACLUserObj] == 1 && count[ACLGroupObj] == 1 && count[ACLOther] == 1 && count[ACLMask] <= 1 && (!named || count[ACLMask] == 1)
}

// SetACL sets an ACL that SortACL has sorted, or removes it if it is nil. The kernel sets the mode to it. The error is EPERM for who
// does not own the file, EACCES for a DefaultACL of what is no directory, and EOPNOTSUPP for a symbolic link and where the disk
// has no ACLs, and ENOSPC for one that the disk has no room for.
func (f *File) SetACL(as actas.Thread, kind ACLKind, acl []ACLEntry) error {
	as.MustAct()
	switch {
	case f.Attr.IsSymlink():
		return unix.EOPNOTSUPP
	case kind == DefaultACL && !f.Attr.IsDir():
		if acl == nil {
			return nil
		}
		return unix.EACCES
	}
	if err := f.enterCharge(); err != nil {
		return err
	}
	value, size := encodeACL(acl), 0
	if acl != nil {
		size = len(kind) + len(value)
	}
	err := f.changeXattr(size, func() error {
		return f.setMode(func() error {
			switch {
			case acl == nil && f.isPath():
				return notThere(unix.Removexattr(f.proc(), string(kind)))
			case acl == nil:
				return notThere(unix.Fremovexattr(f.fd, string(kind)))
			case f.isPath():
				return unix.Setxattr(f.proc(), string(kind), value, 0)
			}
			return unix.Fsetxattr(f.fd, string(kind), value, 0)
		})
	})
	if errors.Is(err, unix.E2BIG) {
		return unix.ENOSPC
	}
	return err
}

func notThere(err error) error {
	if errors.Is(err, unix.ENODATA) {
		return nil
	}
	return err
}
