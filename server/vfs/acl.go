package vfs

import (
	"syscall"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
)

// ACLs are the POSIX ACLs of a file. One that is nil is not there, or is to be removed.
type ACLs struct{ Access, Default []inode.ACLEntry }

// ACLs returns the ACLs of a file that is open with UseAttr. A file without one for its use gets the one that its mode is
// the same as.
func (c *Call) ACLs(f *inode.File, access, inherited bool) (a ACLs, err error) {
	if access {
		if a.Access, err = f.ACL(inode.AccessACL); err != nil {
			return a, err
		}
		if a.Access == nil {
			a.Access = ACLOfMode(f.Attr.Mode)
		}
	}
	if inherited {
		a.Default, err = f.ACL(inode.DefaultACL)
	}
	return a, err
}

// ACLOfMode is the ACL that a mode is the same as.
func ACLOfMode(mode uint32) []inode.ACLEntry {
	m := uint16(mode)
	return []inode.ACLEntry{{Tag: inode.ACLUserObj, Perm: m >> 6 & 7}, {Tag: inode.ACLGroupObj, Perm: m >> 3 & 7}, {Tag: inode.ACLOther, Perm: m & 7}}
}

// SetACLs sets the ACLs of a file that is open with UseAttr, or one of them, as the caller, and syncs it unless the volume
// is async. The error is EINVAL for what is no ACL; then nothing is set.
func (c *Call) SetACLs(f *inode.File, a ACLs, access, inherited bool) error {
	if f.Volume.Options.ReadOnly {
		return exports.ErrReadOnly
	}
	c.Of(f)
	if err := c.blocksToChange(f, false); err != nil {
		return err
	}
	err := c.AsCaller(func(u actas.Thread) error {
		return c.together.Do(f, nil, func() error { return setACLs(u, f, a, access, inherited) })
	})
	if err == nil && !f.Volume.Options.Async {
		err = c.Sync(f, false)
	}
	return err
}

// setACLs replaces both ACLs of a file, or one of them. If that fails, the file keeps what it had.
func setACLs(u actas.Thread, f *inode.File, a ACLs, access, inherited bool) error {
	if a.Access != nil && !inode.SortACL(a.Access) || a.Default != nil && !inode.SortACL(a.Default) {
		return syscall.EINVAL
	}
	switch {
	case !access && !inherited:
		return nil
	case !inherited:
		return f.SetACL(u, inode.AccessACL, a.Access)
	}
	was, err := f.ACL(inode.DefaultACL)
	if err != nil {
		return err
	}
	changes := was != nil || a.Default != nil || !access // of a file that has none either, only its owner may say so
	if changes {
		if err := f.SetACL(u, inode.DefaultACL, a.Default); err != nil {
			return err
		}
	}
	if !access {
		return nil
	}
	err = f.SetACL(u, inode.AccessACL, a.Access)
	if err != nil && changes {
		_ = f.SetACL(u, inode.DefaultACL, was) // the call has failed already
	}
	return err
}
