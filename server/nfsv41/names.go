package nfsv41

import (
	"syscall"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/vfs"
)

// changeInfo is what a directory was before and after. It is atomic: others can't change the
// names in between.
func changeInfo(c *vfs.Change) nfs4.ChangeInfo {
	return nfs4.ChangeInfo{Atomic: c.Before.Known && c.After.Known, Before: c.Before.Change, After: c.After.Change}
}

// create makes what is no regular file: RFC 8881 section 18.4.
func (c *compound) create(args *nfs4.CreateArgs) (result, error) {
	set, err := c.setOf(&args.Attr, c.sets().inCreate)
	if err != nil {
		return nil, err
	}
	set.Size = nil // what has no size can't be given one
	attrSet := args.Attr.Mask.Without(nfs4.BitmapOf(nfs4.AttrSize))
	if err := checkName(args.Name); err != nil {
		return nil, err
	}
	dir, err := c.namesFile(&c.cur)
	if err != nil {
		return nil, err
	}
	if err := setACL(set, &args.Attr, dir.Volume, args.Type); err != nil {
		return nil, err
	}
	types := map[nfs4.FType]uint32{nfs4.TypeFIFO: inode.TypeFIFO, nfs4.TypeSock: inode.TypeSocket, nfs4.TypeChr: inode.TypeChar, nfs4.TypeBlk: inode.TypeBlock}
	var made vfs.Made
	switch args.Type {
	case nfs4.TypeDir:
		made, err = c.Mkdir(dir, args.Name, set)
	case nfs4.TypeLnk:
		if len(args.Link) == 0 {
			return nil, statusError(nfs4.ErrInval)
		}
		made, err = c.Symlink(dir, args.Name, args.Link, set)
		attrSet.Clear(nfs4.AttrMode)
		attrSet.Clear(nfs4.AttrModeUmask)
	default:
		made, err = c.Mknod(dir, args.Name, types[args.Type], args.Spec.Major, args.Spec.Minor, set)
	}
	if err != nil {
		return nil, err
	}
	c.cur.setFile(made.Object)
	c.cur.attrsCurrent = false // its attributes were set after it was opened
	c.stateid = nfs4.Stateid{}
	return &nfs4.CreateRes{Change: changeInfo(&made.Dir), AttrSet: attrSet}, nil
}

// remove: section 18.25. One operation removes files and directories.
func (c *compound) remove(args *nfs4.RemoveArgs) (result, error) {
	if err := checkName(args.Name); err != nil {
		return nil, err
	}
	dir, err := c.namesFile(&c.cur)
	if err != nil {
		return nil, err
	}
	change, err := c.RemoveAny(dir, args.Name)
	if err != nil {
		return nil, err
	}
	return &nfs4.RemoveRes{Change: changeInfo(&change)}, nil
}

// rename: section 18.26, from the saved directory to the current one.
func (c *compound) rename(args *nfs4.RenameArgs) (result, error) {
	if err := checkName(args.OldName); err != nil {
		return nil, err
	}
	if err := checkName(args.NewName); err != nil {
		return nil, err
	}
	from, err := c.namesFile(&c.saved)
	if err != nil {
		return nil, err
	}
	if c.cur.names == nil && c.cur.n == c.saved.n && c.cur.handle == c.saved.handle { // the same directory
		c.cur.names = from
	}
	to, err := c.namesFile(&c.cur)
	if err != nil {
		return nil, err
	}
	if from.Volume != to.Volume {
		return nil, syscall.EXDEV
	}
	inFrom, inTo, err := c.Rename(from, args.OldName, to, args.NewName)
	if err != nil {
		return nil, err
	}
	return &nfs4.RenameRes{Source: changeInfo(&inFrom), Target: changeInfo(&inTo)}, nil
}

// link: section 18.9, of the saved file in the current directory.
func (c *compound) link(args *nfs4.LinkArgs) (result, error) {
	if err := checkName(args.Name); err != nil {
		return nil, err
	}
	f, err := c.mustFile(&c.saved, nfs4.ErrIsDir)
	if err != nil {
		return nil, err
	}
	dir, err := c.namesFile(&c.cur)
	switch {
	case err != nil:
		return nil, err
	case f.Volume != dir.Volume:
		return nil, syscall.EXDEV
	}
	change, err := c.Link(f, dir, args.Name)
	if err != nil {
		return nil, err
	}
	return &nfs4.LinkRes{Change: changeInfo(&change)}, nil
}

// readlink: section 18.24. A symbolic link can be read by everyone.
func (c *compound) readlink() (result, error) {
	f, err := c.mustFile(&c.cur, nfs4.ErrWrongType)
	switch {
	case err != nil:
		return nil, err
	case !f.Attr.IsSymlink():
		return nil, statusError(nfs4.ErrWrongType)
	}
	path, err := f.Readlink()
	if err != nil {
		return nil, err
	}
	return &nfs4.ReadlinkRes{Link: path}, nil
}
