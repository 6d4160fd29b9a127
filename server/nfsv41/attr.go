package nfsv41

import (
	"bytes"
	"errors"
	"strconv"
	"syscall"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/nfsv41/state"
	"github.com/podnas/podnas/server/vfs"
)

// attrSets are sets of attributes of one minor version: RFC 8881 section 5.
type attrSets struct {
	supported   nfs4.Bitmap
	settable    nfs4.Bitmap // by SETATTR
	inCreate    nfs4.Bitmap // what OPEN and CREATE set of a new file
	writeOnly   nfs4.Bitmap // those of inCreate that can't be read, section 5.5
	inExclusive nfs4.Bitmap // what EXCLUSIVE4_1 sets: not the times, which keep its verifier, nor the size, which sets them
	ofDisk      nfs4.Bitmap // what statfs(2) tells
}

// newAttrSets returns the sets of each minor version.
//
// AttrChangeAttrType is in none, which means that nothing is promised: inode.File.Change begins with the ctime, and that goes
// back with the clock of the machine, and when a disk is restored. A client that is told that the change attribute never
// does would take attributes from after that for old ones.
func newAttrSets() (all [lastMinor + 1]attrSets) {
	s := attrSets{
		settable:  nfs4.BitmapOf(nfs4.AttrSize, nfs4.AttrACL, nfs4.AttrMode, nfs4.AttrOwner, nfs4.AttrOwnerGroup, nfs4.AttrTimeAccessSet, nfs4.AttrTimeModifySet),
		writeOnly: nfs4.BitmapOf(nfs4.AttrTimeAccessSet, nfs4.AttrTimeModifySet),
		ofDisk: nfs4.BitmapOf(nfs4.AttrFilesAvail, nfs4.AttrFilesFree, nfs4.AttrFilesTotal, nfs4.AttrMaxLink, nfs4.AttrMaxName,
			nfs4.AttrSpaceAvail, nfs4.AttrSpaceFree, nfs4.AttrSpaceTotal),
	}
	s.inCreate = s.settable
	s.inExclusive = s.settable.Without(s.writeOnly).Without(nfs4.BitmapOf(nfs4.AttrSize))
	s.supported = s.settable.Or(s.ofDisk).Or(nfs4.BitmapOf(
		nfs4.AttrSupportedAttrs, nfs4.AttrType, nfs4.AttrFHExpireType, nfs4.AttrChange,
		nfs4.AttrLinkSupport, nfs4.AttrSymlinkSupport, nfs4.AttrNamedAttr, nfs4.AttrFSID, nfs4.AttrUniqueHandles,
		nfs4.AttrLeaseTime, nfs4.AttrRdattrError, nfs4.AttrACLSupport, nfs4.AttrCanSetTime, nfs4.AttrCaseInsensitive,
		nfs4.AttrCasePreserving, nfs4.AttrChownRestricted, nfs4.AttrFilehandle, nfs4.AttrFileID, nfs4.AttrHomogeneous,
		nfs4.AttrMaxFileSize, nfs4.AttrMaxRead, nfs4.AttrMaxWrite, nfs4.AttrNoTrunc, nfs4.AttrNumLinks, nfs4.AttrRawDev,
		nfs4.AttrSpaceUsed, nfs4.AttrTimeAccess, nfs4.AttrTimeDelta, nfs4.AttrTimeMetadata, nfs4.AttrTimeModify,
		nfs4.AttrMountedOnFileID, nfs4.AttrSuppattrExclcreat,
	))
	all[1] = s
	of2 := nfs4.BitmapOf(nfs4.AttrCloneBlksize, nfs4.AttrXattrSupport)
	s.supported, s.ofDisk = s.supported.Or(of2), s.ofDisk.Or(of2)
	s.supported.Set(nfs4.AttrTimeCreate)
	umask := nfs4.BitmapOf(nfs4.AttrModeUmask) // RFC 8275: of what is made, and never read
	s.supported, s.inCreate, s.writeOnly, s.inExclusive = s.supported.Or(umask), s.inCreate.Or(umask), s.writeOnly.Or(umask), s.inExclusive.Or(umask)
	all[2] = s
	return all
}

// sets are those of the call's minor version.
func (c *compound) sets() *attrSets { return &c.server.sets[c.minor] }

func timeOf(t time.Time) nfs4.Time { return nfs4.Time{Sec: t.Unix(), Nsec: uint32(t.Nanosecond())} }

// owners is memory for the names of a file's owner and group.
type owners [2][10]byte

// typeOf is the type of a file in a mode of inode(7).
func typeOf(mode uint32) nfs4.FType {
	types := [...]nfs4.FType{0o01: nfs4.TypeFIFO, 0o02: nfs4.TypeChr, 0o04: nfs4.TypeDir, 0o06: nfs4.TypeBlk, 0o10: nfs4.TypeReg, 0o12: nfs4.TypeLnk, 0o14: nfs4.TypeSock, 0o17: 0}
	return types[mode>>12]
}

// attrs has the attributes of a file that are wanted and supported. into is zero, or has those of another
// file of the volume.
func (c *compound) attrs(v *exports.Volume, a *disk.Attr, change uint64, handle []byte, wanted nfs4.Bitmap, names *owners, into *nfs4.Attrs) error {
	if into.LeaseTime == 0 { // else it has those of another file: a listing has many
		c.common(into)
	}
	sets := c.sets()
	into.Mask = sets.supported.Without(sets.writeOnly)
	into.RdattrError = nfs4.OK
	into.Type, into.Change = typeOf(a.Mode), change
	into.Size, into.SpaceUsed = uint64(a.Size), a.Used
	into.FSID = nfs4.FSID{Major: v.FSID}
	into.UniqueHandles = v.Of == nil && v.Shown() == nil // a file that several snapshots have has a handle in each
	into.Filehandle = handle
	into.FileID, into.MountedOnFileID = a.Ino, a.Ino
	into.Mode, into.NumLinks = a.Mode&0o7777, a.Nlink
	// As numbers, RFC 7530 section 5.9: clients and server need not know each other's users.
	into.Owner = strconv.AppendUint(names[0][:0], uint64(a.UID), 10)
	into.OwnerGroup = strconv.AppendUint(names[1][:0], uint64(a.GID), 10)
	into.RawDev = nfs4.SpecData{Major: a.Major, Minor: a.Minor}
	into.TimeAccess, into.TimeMetadata, into.TimeModify = timeOf(a.Atime), timeOf(a.Ctime), timeOf(a.Mtime)
	if wanted.Has(nfs4.AttrMountedOnFileID) && a.IsDir() && v.Of == nil && v.Files.IsRoot(a) {
		into.MountedOnFileID = pathID(v.Path)
	}
	if wanted.Has(nfs4.AttrTimeCreate) {
		into.TimeCreate = timeOf(time.Unix(0, a.Birth))
	}
	if !wanted.And(ofSomeDisks()).Empty() {
		into.SupportedAttrs, into.SuppattrExclcreat = sets.supported, sets.inExclusive
		withACLs(into, v.HasACLs())
		if !v.Files.HasBirths() {
			into.Mask.Clear(nfs4.AttrTimeCreate)
			into.SupportedAttrs.Clear(nfs4.AttrTimeCreate)
		}
	}
	if wanted.And(sets.ofDisk).Empty() {
		return nil
	}
	st, err := v.Statfs()
	if err != nil {
		return err
	}
	into.FilesAvail, into.FilesFree, into.FilesTotal = st.FreeFiles, st.FreeFiles, st.Files
	into.SpaceAvail, into.SpaceFree, into.SpaceTotal = st.Available, st.Free, st.Size
	into.MaxLink, into.MaxName, into.CloneBlksize = st.LinkMax, st.NameMax, st.BlockSize
	into.XattrSupport = wanted.Has(nfs4.AttrXattrSupport) && v.HasXattrs()
	return nil
}

// ofSomeDisks are the attributes that not every file system has, and those that say so.
func ofSomeDisks() nfs4.Bitmap {
	return nfs4.BitmapOf(nfs4.AttrSupportedAttrs, nfs4.AttrACL, nfs4.AttrACLSupport, nfs4.AttrSuppattrExclcreat, nfs4.AttrTimeCreate)
}

// common sets the attributes that are the same for all files.
func (c *compound) common(into *nfs4.Attrs) {
	sets := c.sets()
	into.SupportedAttrs, into.SuppattrExclcreat = sets.supported, sets.inExclusive
	into.FHExpireType = nfs4.FHPersistent
	into.LinkSupport, into.SymlinkSupport = true, true
	into.UniqueHandles, into.CanSetTime, into.CasePreserving, into.ChownRestricted = true, true, true, true
	into.Homogeneous, into.NoTrunc = true, true
	into.LeaseTime = uint32(c.server.lease / time.Second)
	into.MaxFileSize, into.MaxRead, into.MaxWrite = vfs.MaxOffset, ioMax, ioMax
	into.MaxLink, into.MaxName = 1, nfs4.MaxName
	into.TimeDelta = nfs4.Time{Nsec: 1}
}

// pseudoAttrs has the attributes of a pseudo directory.
func (c *compound) pseudoAttrs(n *node, into *nfs4.Attrs) {
	sets, began := c.sets(), timeOf(c.server.began)
	*into = nfs4.Attrs{
		Mask: sets.supported.Without(sets.writeOnly),
		Type: nfs4.TypeDir, Change: n.change, Size: 4096, Filehandle: c.nodeHandle(n), FileID: n.fileID, MountedOnFileID: n.fileID,
		Mode: 0o555, NumLinks: 2, Owner: []byte("0"), OwnerGroup: []byte("0"),
		TimeAccess: began, TimeMetadata: began, TimeModify: began, TimeCreate: began,
		XattrSupport: true, // of the volumes below: some clients ask here, once
	}
	c.common(into)
	withACLs(into, true) // as XattrSupport
	into.ACL = acesOf(vfs.ACLs{Access: vfs.ACLOfMode(into.Mode)}, true)
}

// getattr: RFC 8881 section 18.7.
func (c *compound) getattr() (result, error) {
	args := &c.mem.getattr
	if err := c.decode(args); err != nil {
		return nil, err
	}
	if !args.Request.And(c.sets().writeOnly).Empty() {
		return nil, statusError(nfs4.ErrInval)
	}
	res := &c.mem.attrRes
	if err := c.currentAttrs(args.Request, &res.Attr); err != nil {
		return nil, err
	}
	res.Status = nfs4.OK
	res.Attr.Mask = res.Attr.Mask.And(args.Request)
	return res, nil
}

// currentAttrs has the attributes of the current file.
func (c *compound) currentAttrs(wanted nfs4.Bitmap, into *nfs4.Attrs) error {
	if c.cur.n > 0 && !wanted.And(c.sets().ofDisk).Empty() { // statfs(2) may read from the disk
		if err := c.MayWait(c.cur.bytes()); err != nil {
			return err
		}
	}
	if c.cur.n > 0 && wanted.Has(nfs4.AttrACL) {
		f, err := c.attrFile(&c.cur)
		if err != nil {
			return err
		}
		if into.ACL, err = c.fileACL(f); err != nil {
			return err
		}
	}
	if c.cur.found {
		found := &c.mem.found
		return c.attrs(found.volume, &found.attr, found.change, c.cur.bytes(), wanted, &c.mem.owners, into)
	}
	f, err := c.lookedAt()
	if err != nil {
		return err
	}
	if f == nil {
		c.pseudoAttrs(c.cur.node, into)
		return nil
	}
	a := f.Attr
	var change uint64
	switch changeToo := wanted.Has(nfs4.AttrChange); {
	case c.cur.attrsCurrent && changeToo:
		change, a, err = f.Change(a)
	case changeToo:
		change, a, err = f.StatChange()
	case !c.cur.attrsCurrent:
		a, err = f.Stat()
	}
	if err != nil {
		return err
	}
	if a.Birth == 0 && wanted.Has(nfs4.AttrTimeCreate) {
		a.Birth = f.Birth()
	}
	return c.attrs(f.Volume, &a, change, c.cur.bytes(), wanted, &c.mem.owners, into)
}

// lookedAt is attrFile of the current file for its attributes alone, which are those of before unless they are current. If no
// operation follows, it need not be open.
func (c *compound) lookedAt() (*inode.File, error) {
	switch {
	case c.cur.file != nil && !c.cur.attrsCurrent:
		c.Of(c.cur.file)
		return c.cur.file, nil
	case c.left > 0, c.cur.n == 0, c.cur.file != nil:
		return c.attrFile(&c.cur)
	}
	f, err := c.Open(c.cur.bytes(), inode.UseAttr, inode.AtOnce, inode.Recent)
	if errors.Is(err, syscall.ESTALE) {
		return c.attrFile(&c.cur) // it may be open and removed
	}
	c.cur.attrsCurrent = err == nil
	return f, err
}

// verify: section 18.30.
func (c *compound) verify(args *nfs4.VerifyArgs) (result, error) {
	same, err := c.hasAttrs(args)
	if err == nil && !same {
		err = statusError(nfs4.ErrNotSame)
	}
	return nil, err
}

// nverify: section 18.15.
func (c *compound) nverify(args *nfs4.VerifyArgs) (result, error) {
	same, err := c.hasAttrs(args)
	if err == nil && same {
		err = statusError(nfs4.ErrSame)
	}
	return nil, err
}

// hasAttrs reports whether the current file has the attributes of args.
func (c *compound) hasAttrs(args *nfs4.VerifyArgs) (bool, error) {
	switch {
	case !args.Attr.Mask.And(c.sets().writeOnly).Empty(), args.Attr.Mask.Has(nfs4.AttrRdattrError):
		return false, statusError(nfs4.ErrInval)
	case args.Attr.Others, !args.Attr.Mask.Without(c.sets().supported).Empty():
		return false, statusError(nfs4.ErrAttrNotSupp)
	}
	if args.Attr.Mask.Has(nfs4.AttrMode) { // no mode has other bits, section 6.2.4
		if given, err := args.Attr.Attrs(); err == nil && given.Mode > 0o7777 {
			return false, statusError(nfs4.ErrInval)
		}
	}
	var attrs nfs4.Attrs
	if err := c.currentAttrs(args.Attr.Mask, &attrs); err != nil {
		return false, err
	}
	if !args.Attr.Mask.Without(attrs.Mask).Empty() { // the volume's disk has no such attribute
		return false, statusError(nfs4.ErrAttrNotSupp)
	}
	d := xdr.NewDecoder(attrs.Append(nil, args.Attr.Mask))
	var mine nfs4.VerifyArgs
	mine.Decode(&d)
	return bytes.Equal(mine.Attr.Vals, args.Attr.Vals), nil
}

// access: section 18.1. Each bit is what the kernel says to the caller.
func (c *compound) access() (result, error) {
	args := &c.mem.access
	if err := c.decode(args); err != nil {
		return nil, err
	}
	const ofDir = nfs4.AccessRead | nfs4.AccessLookup | nfs4.AccessModify | nfs4.AccessExtend | nfs4.AccessDelete | accessOfXattrs
	if c.minor < 2 {
		args.Access &^= accessOfXattrs
	}
	f, err := c.attrFile(&c.cur)
	if err != nil {
		return nil, err
	}
	res := &c.mem.accessRes
	if f == nil {
		may := uint32(nfs4.AccessRead | nfs4.AccessLookup | nfs4.AccessXARead | nfs4.AccessXAList)
		*res = nfs4.AccessRes{Supported: args.Access & ofDir, Access: args.Access & may}
		return res, nil
	}
	if args.Access&accessOfXattrs != 0 && !f.Volume.HasXattrs() {
		args.Access &^= accessOfXattrs
	}
	rights, supported, err := c.Rights(f, args.Access)
	if err != nil {
		return nil, err
	}
	*res = nfs4.AccessRes{Supported: supported, Access: rights}
	return res, nil
}

// setOf is what an sattr sets, and which attributes that are.
func (c *compound) setOf(a *nfs4.Sattr, may nfs4.Bitmap) (*vfs.SetAttr, error) {
	switch {
	case a.Others, !a.Mask.Without(c.sets().supported).Empty():
		return nil, statusError(nfs4.ErrAttrNotSupp)
	case !a.Mask.Without(may).Empty():
		return nil, statusError(nfs4.ErrInval)
	}
	set := &vfs.SetAttr{}
	if a.Mask.Has(nfs4.AttrSize) {
		set.Size = &a.Size
	}
	if a.Mask.Has(nfs4.AttrMode) {
		if a.Mode > 0o7777 {
			return nil, statusError(nfs4.ErrInval)
		}
		set.Mode = &a.Mode
	}
	if a.Mask.Has(nfs4.AttrModeUmask) { // RFC 8275 section 3: not with a mode, and both have no other bits
		if set.Mode != nil || a.ModeUmask.Mode > 0o7777 || a.ModeUmask.Umask > 0o777 {
			return nil, statusError(nfs4.ErrInval)
		}
		set.Mode, set.Umask = &a.ModeUmask.Mode, a.ModeUmask.Umask
	}
	for _, owner := range [...]struct {
		attr uint32
		name []byte
		id   **uint32
	}{{nfs4.AttrOwner, a.Owner, &set.UID}, {nfs4.AttrOwnerGroup, a.OwnerGroup, &set.GID}} {
		if !a.Mask.Has(owner.attr) {
			continue
		}
		id, err := idOfOwner(owner.name)
		if err != nil {
			return nil, err
		}
		*owner.id = &id
	}
	at := func(attr uint32, t nfs4.SetTime) (inode.SetTime, error) {
		if !a.Mask.Has(attr) {
			return inode.SetTime{}, nil
		}
		if t.How == nfs4.SetToClientTime && t.Time.Nsec >= 1e9 {
			return inode.SetTime{}, statusError(nfs4.ErrInval)
		}
		return inode.SetTime{Set: true, Now: t.How == nfs4.SetToServerTime, Time: time.Unix(t.Time.Sec, int64(t.Time.Nsec))}, nil
	}
	var err error
	if set.Atime, err = at(nfs4.AttrTimeAccessSet, a.TimeAccess); err != nil {
		return nil, err
	}
	set.Mtime, err = at(nfs4.AttrTimeModifySet, a.TimeModify)
	return set, err
}

// idOfOwner is the reverse of what attrs has of owners.
func idOfOwner(name []byte) (uint32, error) {
	n, err := strconv.ParseUint(string(name), 10, 32)
	if err != nil || leading(name) || n == 1<<32-1 { // which is nobody: chown(2)
		return 0, statusError(nfs4.ErrBadOwner)
	}
	return uint32(n), nil
}

// leading reports whether a number begins with what section 5.9 does not let it begin with.
func leading(number []byte) bool {
	return number[0] == '+' || number[0] == '0' && len(number) > 1
}

// setattr: section 18.34. Its result has the attributes that were set, whatever happens.
func (c *compound) setattr(args *nfs4.SetattrArgs) (result, error) {
	set, err := c.setAttr(args)
	return &nfs4.SetattrRes{Status: statusOf(err), AttrSet: set}, err
}

// setAttr returns what was set, also with an error.
func (c *compound) setAttr(args *nfs4.SetattrArgs) (done nfs4.Bitmap, err error) {
	set, err := c.setOf(&args.Attr, c.sets().settable)
	if err != nil {
		return done, err
	}
	f, err := c.attrFile(&c.cur)
	switch {
	case err != nil:
		return done, err
	case f == nil, f.Volume.Options.ReadOnly:
		return done, exports.ErrReadOnly
	}
	if err := setACL(set, &args.Attr, f.Volume, typeOf(f.Attr.Mode)); err != nil {
		return done, err
	}
	var data *inode.File
	if set.Size != nil {
		switch {
		case f.Attr.IsDir():
			return done, syscall.EISDIR
		case !f.Attr.IsRegular():
			return done, statusError(nfs4.ErrInval)
		}
		if data, err = c.dataFile(args.Stateid, state.Write); err != nil {
			return done, err
		}
	}
	if _, _, err = c.SetAttr(f, data, set, nil); err == nil {
		return args.Attr.Mask, nil
	}
	return args.Attr.Mask.Without(remaining(set)), err
}

// remaining are the attributes that SetAttr has not set.
func remaining(set *vfs.SetAttr) (left nfs4.Bitmap) {
	for attr, is := range map[uint32]bool{
		nfs4.AttrSize: set.Size != nil, nfs4.AttrMode: set.Mode != nil, nfs4.AttrOwner: set.UID != nil, nfs4.AttrOwnerGroup: set.GID != nil,
		nfs4.AttrTimeAccessSet: set.Atime.Set, nfs4.AttrTimeModifySet: set.Mtime.Set,
		nfs4.AttrACL: set.ACLs != nil,
	} {
		if is {
			left.Set(attr)
		}
	}
	return left
}
