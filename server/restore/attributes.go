package restore

import (
	"fmt"
	"os"
	"slices"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/inode"
)

// hide takes a file or directory from everybody but its owner, and from that one too if the snapshot has another owner. It does so
// before the file gets what the snapshot has, which may be private to somebody else, until it has the rights of the snapshot,
// too. Where owner, mode and ACLs are those of the snapshot already, it does nothing.
func (r *run) hide(was, is *inode.File) error {
	same, err := sameRights(was, is)
	if err != nil || same {
		return err
	}
	private := uint32(privateFile)
	if is.Attr.IsDir() {
		private = privateDir
	}
	if is.Attr.Mode&allModes != private { // which leaves the entries of an ACL without effect, acl(5)
		if err := is.Chmod(r.as, private); err != nil {
			return fmt.Errorf("hide it: %w", err)
		}
	}
	if own := uint32(os.Geteuid()); is.Attr.UID != was.Attr.UID && is.Attr.UID != own {
		if err := is.Chown(r.as, int(own), inode.NoChange); err != nil {
			return fmt.Errorf("hide it: %w", err)
		}
	}
	return nil
}

// hideFile is hide for a file that is not open.
func (r *run) hideFile(was *inode.File, id disk.FileID) error {
	is, err := r.open(id, inode.UseAttr)
	if err != nil {
		return err
	}
	defer is.Close()
	return r.hide(was, is)
}

// unlock gives the owner all rights to a directory that is filled or emptied, for a process whose user has no others: where the mode keeps
// the owner from the names. It is private then, until it has the mode of the snapshot.
func (r *run) unlock(is *inode.File) error {
	if r.to.OwnFiles() == nil || is.Attr.Mode&privateDir == privateDir {
		return nil
	}
	return is.Chmod(r.as, privateDir)
}

// sameRights reports whether owners, modes and ACLs are the same.
func sameRights(was, is *inode.File) (bool, error) {
	a, b := &was.Attr, &is.Attr
	if a.UID != b.UID || a.GID != b.GID || a.Mode&allModes != b.Mode&allModes {
		return false, nil
	}
	for _, kind := range []inode.ACLKind{inode.AccessACL, inode.DefaultACL} {
		acl, err := was.ACL(kind)
		if err != nil {
			return false, err
		}
		other, err := is.ACL(kind)
		if err != nil || !slices.Equal(acl, other) {
			return false, err
		}
	}
	return true, nil
}

// finish gives a directory its own attributes.
func (r *run) finish(d *dir) error {
	was, err := r.openFrom(d.from, inode.UseAttr)
	if err != nil {
		return err
	}
	defer was.Close()
	return r.attributes(was, d.to)
}

// attributes makes owner, mode, ACLs, extended attributes and times of a file those of the snapshot's.
func (r *run) attributes(was *inode.File, id disk.FileID) error {
	is, err := r.open(id, inode.UseAttr)
	if err != nil {
		return err
	}
	defer is.Close()
	if is.Attr.UID != was.Attr.UID || is.Attr.GID != was.Attr.GID {
		if err := is.Chown(r.as, int(was.Attr.UID), int(was.Attr.GID)); err != nil {
			return fmt.Errorf("set the owner: %w", err)
		}
	}
	if err := r.xattrs(was, is); err != nil {
		return fmt.Errorf("set the extended attributes: %w", err)
	}
	if !was.Attr.IsSymlink() {
		if err := r.rights(was, is); err != nil {
			return fmt.Errorf("set the rights: %w", err)
		}
	}
	at, mt := inode.SetTime{Set: true, Time: was.Attr.Atime}, inode.SetTime{Set: true, Time: was.Attr.Mtime}
	if err := is.Chtimes(r.as, at, mt); err != nil {
		return fmt.Errorf("set the times: %w", err)
	}
	return nil
}

func (r *run) rights(was, is *inode.File) error {
	for _, kind := range []inode.ACLKind{inode.AccessACL, inode.DefaultACL} {
		acl, err := was.ACL(kind)
		if err != nil {
			return err
		}
		old, err := is.ACL(kind)
		if err != nil {
			return err
		}
		if len(acl) == 0 {
			acl = nil
		}
		if acl == nil && len(old) == 0 {
			continue
		}
		if err := is.SetACL(r.as, kind, acl); err != nil {
			return err
		}
	}
	return is.Chmod(r.as, was.Attr.Mode&allModes)
}

func (r *run) xattrs(was, is *inode.File) error {
	want, err := was.ListXattrs(r.as)
	if err != nil {
		return err
	}
	have, err := is.ListXattrs(r.as)
	if err != nil || len(want) == 0 && len(have) == 0 {
		return err
	}
	for _, name := range have {
		if err := is.RemoveXattr(r.as, []byte(name)); err != nil {
			return err
		}
	}
	value := make([]byte, disk.XattrMax)
	for _, name := range want {
		n, err := was.GetXattr(r.as, []byte(name), value)
		if err != nil {
			return err
		}
		if err := is.SetXattr(r.as, []byte(name), value[:n], 0); err != nil {
			return err
		}
	}
	return nil
}
