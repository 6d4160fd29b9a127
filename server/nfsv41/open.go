package nfsv41

import (
	"cmp"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
	"syscall"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/nfsv41/state"
	"github.com/podnas/podnas/server/vfs"
)

// opening is an OPEN under way.
type opening struct {
	*nfs4.OpenArgs
	access, deny state.Access

	object object
	change nfs4.ChangeInfo
	made   vfs.Made     // the file, if this call has made it
	set    nfs4.Bitmap  // what was set of it
	size   *vfs.SetAttr // to be set of a file that was there
	early  *inode.File  // open for its data before the rights were known
	data   *inode.File  // open for its data, as the client has it
	id     nfs4.Stateid

	reserved state.Reservation // while finish is under way

	raced bool // the name led to another file, or to none, before what it led to was open
}

// key is how state knows the file, which is open.
func (o *opening) key() state.FileKey { return key(o.data.Volume.ID, o.data.ID) }

// openMemory is for an OPEN. It is not in the compound, so that other calls need not clear it.
type openMemory struct {
	args    nfs4.OpenArgs
	opening opening
}

func (m *openMemory) forget() { *m = openMemory{} }

// openAgain is how often OPEN looks at a name again that others make, rename files to, and remove. After
// that the client gets the error, and may ask again.
const openAgain = 20

// openOp: RFC 8881 section 18.16.
func (c *compound) openOp() (result, error) {
	if c.open == nil {
		c.open = &openMemory{}
	}
	args, o := &c.open.args, &c.open.opening
	defer c.open.forget()
	if err := c.decode(args); err != nil {
		return nil, err
	}
	access, deny, err := shares(args.ShareAccess, args.ShareDeny)
	if err != nil {
		return nil, err
	}
	for again := 0; ; again++ {
		*o = opening{OpenArgs: args, access: access, deny: deny}
		if err = c.doOpen(o); err == nil {
			break
		}
		if !o.raced || again == openAgain {
			return nil, err
		}
	}
	c.cur, c.stateid = o.object, o.id
	// A file that was opened early was neither made nor truncated: its attributes from the look at its name are right
	// still. So are those of one that was made. A client that denies others something wants those from when that began.
	c.onlyLooks = o.early != nil && deny == 0
	c.looksLast = o.made.Attr.Known && deny == 0
	flags := uint32(nfs4.OpenResultLocktypePosix | nfs4.OpenResultPreserveUnlinked)
	if can, _ := c.server.state.CanCallBack(c.on.client().ID()); can {
		flags |= nfs4.OpenResultMayNotifyLock
	}
	return &nfs4.OpenRes{
		Stateid: c.stateid, Change: o.change, AttrSet: o.set, Delegation: noDelegation(args.ShareAccess), Flags: flags,
	}, nil
}

// doOpen does an OPEN. What the client has open already stays as it was unless all has succeeded. In this order:
//
//  1. findOpen: the claim, the name, the grace period. A file that is made is not synced yet.
//  2. openFound: what it is, the caller's rights, a descriptor for the data. If that fails, what was made stays, synced.
//  3. hold: a reservation that others can't exclude, the sync of what was made or found, the size, the state. If the
//     state refuses, what was made is removed again.
func (c *compound) doOpen(o *opening) error {
	if err := c.findOpen(o); err != nil {
		return err
	}
	h, err := c.openFound(o)
	switch {
	case err == nil:
		return c.hold(o, h)
	case o.made.Object != nil: // which may be there still
		_ = c.SyncMade(c.cur.names, &o.made) // the call has failed already
	case o.Claim == nfs4.ClaimNull: // OPEN is of what the name leads to, and never of what it led to
		o.raced = errors.Is(err, syscall.ESTALE)
	}
	return err
}

// noDelegation says why there is none, if one was asked for.
func noDelegation(access uint32) nfs4.Delegation {
	switch access & nfs4.WantDelegMask {
	case nfs4.WantNoPreference:
		return nfs4.Delegation{Type: nfs4.DelegateNone}
	case nfs4.WantNoDeleg, nfs4.WantCancel:
		return nfs4.Delegation{Type: nfs4.DelegateNoneExt, Why: nfs4.NoneNotWanted}
	}
	return nfs4.Delegation{Type: nfs4.DelegateNoneExt, Why: nfs4.NoneResource}
}

// findOpen finds or makes the file.
func (c *compound) findOpen(o *opening) error {
	switch o.Claim {
	case nfs4.ClaimNull:
	case nfs4.ClaimFH, nfs4.ClaimPrevious:
		if o.Create {
			return statusError(nfs4.ErrInval)
		}
		f, err := c.attrFile(&c.cur)
		switch {
		case err != nil:
			return err
		case f == nil:
			return syscall.EISDIR
		}
		o.object = c.cur
		return nil
	default: // of delegations, which are not given
		return statusError(nfs4.ErrNotSupp)
	}
	if err := checkName(o.Name); err != nil {
		return err
	}
	if c.server.state.InGrace() { // before anything is made
		return statusError(nfs4.ErrGrace)
	}
	if o.Create {
		return c.createOpen(o)
	}
	if err := c.findName(o); err != nil {
		return err
	}
	if dir := c.cur.file; dir != nil {
		change, _, err := dir.Change(dir.Attr)
		if err != nil {
			return err
		}
		o.change = nfs4.ChangeInfo{Before: change, After: change}
	}
	return nil
}

// findName finds the file, which may be no pseudo directory.
func (c *compound) findName(o *opening) (err error) {
	o.object, err = c.step(o.Name)
	if err == nil && o.object.node != nil {
		err = syscall.EISDIR
	}
	return err
}

// createOpen makes the file, or finds that it is there.
func (c *compound) createOpen(o *opening) error {
	may := c.sets().inCreate
	if o.Mode == nfs4.ExclusiveAttrs {
		may = c.sets().inExclusive
	}
	set, err := c.setOf(&o.Attr, may)
	if err != nil {
		return err
	}
	dir, err := c.namesFile(&c.cur)
	switch {
	case errors.Is(err, exports.ErrReadOnly): // also of a pseudo directory
		return c.openReadOnly(o, set)
	case err != nil:
		return err
	}
	if err := setACL(set, &o.Attr, dir.Volume, nfs4.TypeReg); err != nil {
		return err
	}
	if err := c.mayOpenNew(dir, o); err != nil {
		return err
	}
	exclusive := o.Mode == nfs4.Exclusive || o.Mode == nfs4.ExclusiveAttrs
	mode, verf := vfs.Guarded, o.Verf
	switch {
	case exclusive:
		mode, verf = vfs.Exclusive, verifierBy(c.on.client().Owner(), verf)
	case o.Mode == nfs4.Unchecked:
		mode = vfs.Finding
	}
	o.made, err = c.CreateUnsynced(dir, o.Name, mode, set, verf)
	o.change = changeInfo(&o.made.Dir)
	switch {
	case err == nil:
		o.set = o.Attr.Mask
		if exclusive {
			o.set = o.set.Or(nfs4.BitmapOf(nfs4.AttrTimeAccessSet, nfs4.AttrTimeModifySet)) // they have the verifier
		}
		o.object.setFile(o.made.Object)
		return nil
	case o.made.Found == nil:
		o.raced = mode == vfs.Finding && errors.Is(err, syscall.ENOENT) // removed since it was in the way
		return err
	}
	if set.Size != nil && *set.Size == 0 {
		o.size, o.set = &vfs.SetAttr{Size: set.Size}, nfs4.BitmapOf(nfs4.AttrSize)
	}
	o.object.setFile(o.made.Found)
	return nil
}

// mayOpenNew returns an error for an OPEN that can't make a file, as it could not open it then. What is there it
// may open even so: the client may have it open already.
func (c *compound) mayOpenNew(dir *inode.File, o *opening) error {
	status := c.server.state.MayOpen(c.on.client(), state.OpenArgs{Owner: o.Owner.Owner, Access: o.access, Deny: o.deny})
	if status == nfs4.OK {
		return nil
	}
	return c.AsCaller(func(actas.Thread) error {
		if dir.Lacks(string(o.Name)) {
			return errorOf(status)
		}
		return nil
	})
}

// openReadOnly finds the file in a volume where none can be made: as open(2) with O_CREAT, OPEN may
// open one that is there.
func (c *compound) openReadOnly(o *opening, set *vfs.SetAttr) error {
	err := c.findName(o)
	there := err == nil || errors.Is(err, syscall.EISDIR)
	switch {
	case errors.Is(err, syscall.ENOENT):
		return exports.ErrReadOnly
	case there && o.Mode != nfs4.Unchecked:
		return syscall.EEXIST
	case err != nil:
		return err
	}
	if set.Size != nil && *set.Size == 0 { // which openFound refuses
		o.size = &vfs.SetAttr{Size: set.Size}
	}
	return nil
}

// does is all that the OPEN does to the file: it is truncated by one that opens it for reading alone, too.
func (o *opening) does() state.Access {
	if o.size != nil {
		return o.access | state.Write
	}
	return o.access
}

// openFound opens the file for its data, if the caller may.
func (c *compound) openFound(o *opening) (*descriptor, error) {
	reclaim, does := o.Claim == nfs4.ClaimPrevious, o.does()
	use := useFor(does)
	if o.object.found && o.object.file == nil {
		if err := c.openEarly(o, use); err != nil {
			return nil, err
		}
	}
	f, err := c.attrFile(&o.object)
	if err != nil {
		return nil, err
	}
	if err := openable(f.Volume, &f.Attr, use); err != nil {
		return nil, err
	}
	// What an exclusive one finds by its verifier is taken for its own, but anybody can compute one that fits some file.
	made := o.made.Object
	own := made != nil && (made.Created() || c.Owns(f))
	if !own && !c.mayOpen(f, does, o.deny, reclaim) {
		return nil, syscall.EACCES
	}
	switch {
	case o.early != nil:
		o.data = o.early
	case made != nil && made.Created(): // an exclusive one that is repeated was made before
		o.data = made
	default:
		o.data, err = c.Open(o.object.bytes(), use)
		if errors.Is(err, syscall.ESTALE) && o.Claim != nfs4.ClaimNull {
			if _, err = c.someDescriptor(&o.object); err == nil {
				o.data, err = c.Open(o.object.bytes(), use, inode.Removed)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	h := &descriptor{Held: o.data.Hold()}
	h.Retain()
	if !own && !reclaim {
		c.Opened(h.Held, &f.Attr, does&state.Read != 0, does&state.Write != 0)
	}
	return h, nil
}

// hold has the client hold the file open for o.access, by h, which it takes over.
func (c *compound) hold(o *opening, h *descriptor) error {
	status, err := c.finishAndHold(o, h)
	if status == nfs4.OK && err == nil {
		return nil
	}
	h.Release()
	if made := o.made.Object; made != nil && status != nfs4.OK { // so that the client can try again
		c.Unmake(c.cur.names, made, o.Name)
		_ = c.SyncMade(c.cur.names, &o.made) // it stays if somebody has begun to use it
	}
	return cmp.Or(err, errorOf(status))
}

// finishAndHold is hold that leaves h, and what was made, to its caller if it fails: with the status of state, or the error of finish.
//
// All that may fail is done before state changes, and the file is reserved meanwhile: otherwise another client could get what excludes
// this OPEN, which would fail after it has truncated the file.
func (c *compound) finishAndHold(o *opening, h *descriptor) (nfs4.Status, error) {
	client := c.on.client()
	args := state.OpenArgs{
		Owner: o.Owner.Owner, File: o.key(), Access: o.access, Deny: o.deny, Truncates: o.size != nil,
		Reclaim: o.Claim == nfs4.ClaimPrevious, Descriptor: h, Slot: c.on.slot,
	}
	if o.made.Object != nil || o.made.Found != nil || o.size != nil {
		args.Reserved = &o.reserved
		if status := c.server.state.Reserve(client, args, args.Reserved); status != nfs4.OK {
			return status, nil
		}
		defer c.server.state.Unreserve(args.Reserved)
		if err := c.finish(o); err != nil {
			return nfs4.OK, err
		}
	}
	args.Truncates = false
	id, _, status := c.server.state.Open(client, args)
	o.id = id
	return status, nil
}

// finish syncs what was made or found, and sets the size of a file that was there.
func (c *compound) finish(o *opening) error {
	var err error
	switch {
	case o.made.Object != nil:
		return c.SyncMade(c.cur.names, &o.made)
	case o.made.Found != nil:
		err = c.SyncFound(c.cur.names, o.made.Found)
	}
	if err == nil && o.size != nil {
		err = c.setSize(o)
	}
	return err
}

// openable returns an error for what OPEN can't open.
//
// For a fifo, a device or a socket section 18.16.3 has NFS4ERR_WRONG_TYPE. Linux does not expect that of an
// OPEN, and programs get EIO for what its client has not in its cache. NFS4ERR_SYMLINK has it look the name
// up, and open locally what that is. The kernel's own server answers so up to Linux 6.11, for this reason
// (nfsd_check_obj_isreg).
func openable(v *exports.Volume, a *disk.Attr, use inode.Use) error {
	switch {
	case a.IsDir():
		return syscall.EISDIR
	case !a.IsRegular():
		return statusError(nfs4.ErrSymlink)
	case use == inode.UseWrite && v.Options.ReadOnly:
		return exports.ErrReadOnly
	}
	return nil
}

// openEarly opens the file for its data at once, where its attributes are known from the look at its
// name. Then the rights are checked by that descriptor, as READ and WRITE of version 3 do. It saves
// opening the file for its attributes.
func (c *compound) openEarly(o *opening, use inode.Use) error {
	found := &c.mem.found
	if err := openable(found.volume, &found.attr, use); err != nil {
		return err
	}
	f, err := c.Open(o.object.bytes(), use)
	if err != nil {
		return err
	}
	f.Attr = found.attr
	o.early, o.object.file, o.object.attrsCurrent = f, f, true
	return nil
}

// mayOpen reports whether the caller has the rights. Who may execute a file may read it, as to execute is to
// read, but not open it for both reading and writing. To deny others something takes the right to write: otherwise who may only
// read a file could keep it from everybody. Who reclaims had the rights; the owner may have taken them from itself since.
func (c *compound) mayOpen(f *inode.File, access, deny state.Access, reclaim bool) bool {
	if reclaim && c.Owns(f) {
		return true
	}
	reads := access&state.Read == 0 || c.May(f, inode.MayRead) || access == state.Read && c.May(f, inode.MayExec)
	return reads && (access&state.Write == 0 && deny == 0 || c.May(f, inode.MayWrite))
}

// setSize sets the size of a file that was there.
func (c *compound) setSize(o *opening) error {
	f, err := c.attrFile(&o.object)
	if err != nil {
		return err
	}
	_, _, err = c.SetAttr(f, o.data, o.size, nil)
	return err
}

// verifierBy is the verifier of an exclusive OPEN, by whom it is. Those of Linux are a clock tick since its
// start and a process's number, which two nodes that have started together may both have: each would
// take the file of the other for what it has made itself.
func verifierBy(owner string, verf nfs4.Verifier) (by nfs4.Verifier) {
	h := fnv.New64a() // the same after a restart
	_, _ = h.Write(verf[:])
	_, _ = io.WriteString(h, owner)
	binary.BigEndian.PutUint64(by[:], h.Sum64())
	return by
}
