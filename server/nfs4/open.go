package nfs4

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
	"syscall"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/nfs4/state"
	"github.com/podnas/podnas/server/vfs"
)

// opening is an OPEN under way, which may take several goroutines: as the caller a name is
// found or made, as root the file is opened for its data, and as the caller its size is set.
type opening struct {
	object   object
	readOnly bool // the volume, or the pseudo directory
	change   nfs4.ChangeInfo
	made     *export.File // if it was made by this call
	set      nfs4.Bitmap  // what was set of it
	early    *export.File // open for its data before the rights are known
	size     *vfs.SetAttr // to be set
	id       state.Stateid
	data     *export.File // when it is open
	// looked is whether nothing of the file was changed, so that its attributes from the look at its
	// name are right after OPEN. Who denies others something wants those from when that began.
	looked bool
	again  int // how often the name led to another file, or to none, before what it led to was open
}

// openAgain is how often OPEN looks at a name again that others make, rename files to, and remove. After
// that the client gets the error, and may ask again.
const openAgain = 20

// openOp: RFC 8881 section 18.16.
func (c *compound) openOp() (result, error) {
	var args nfs4.OpenArgs
	if args.Decode(&c.Call.Args); c.Call.Args.Err() != nil {
		return nil, c.Call.Args.Err()
	}
	access, deny, err := shares(&args)
	if err != nil {
		return nil, err
	}
	o := &c.open
	for o.data == nil {
		if !o.object.isSet() {
			if err := c.findOpen(&args); err != nil {
				return nil, err
			}
		}
		err := c.openFound(&args, access, deny)
		switch {
		case err == nil:
		case errors.Is(err, syscall.ESTALE) && args.Claim == nfs4.ClaimNull && o.made == nil && o.again < openAgain:
			// OPEN is of what the name leads to, and never of what it led to.
			*o, c.may = opening{again: o.again + 1}, false
		default:
			return nil, err
		}
	}
	if o.size != nil {
		if err := c.setSize(); err != nil {
			return nil, err
		}
	}
	c.cur = o.object
	o.looked = o.early != nil && args.ShareDeny == 0
	c.stateid = nfs4.Stateid(o.id)
	flags := uint32(nfs4.OpenResultLocktypePosix | nfs4.OpenResultPreserveUnlinked)
	if can, _ := c.server.state.CanCallBack(c.on.client().ID()); can {
		flags |= nfs4.OpenResultMayNotifyLock
	}
	return &nfs4.OpenRes{
		Stateid: c.stateid, Change: o.change, AttrSet: o.set, Delegation: noDelegation(args.ShareAccess), Flags: flags,
	}, nil
}

// shares are what an OPEN shares and denies.
func shares(args *nfs4.OpenArgs) (access, deny state.Access, err error) {
	const wants = nfs4.WantDelegMask | nfs4.WantSignalDelegWhenRescAvail | nfs4.WantPushDelegWhenUncontended
	share := args.ShareAccess &^ wants
	if share == 0 || share > nfs4.ShareAccessBoth || args.ShareDeny > nfs4.ShareDenyBoth {
		return 0, 0, statusError(nfs4.ErrInval)
	}
	return state.Access(share), state.Access(args.ShareDeny), nil
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
func (c *compound) findOpen(args *nfs4.OpenArgs) error {
	switch args.Claim {
	case nfs4.ClaimNull:
	case nfs4.ClaimFH, nfs4.ClaimPrevious:
		if args.Create {
			return statusError(nfs4.ErrInval)
		}
		f, err := c.attrFile(&c.cur)
		switch {
		case err != nil:
			return err
		case f == nil:
			return syscall.EISDIR
		}
		c.open.object = c.cur
		return nil
	default: // of delegations, which are not given
		return statusError(nfs4.ErrNotSupp)
	}
	if err := checkName(args.Name); err != nil {
		return err
	}
	if c.server.state.InGrace() { // before anything is made
		return statusError(nfs4.ErrGrace)
	}
	if args.Create {
		return c.createOpen(args)
	}
	if err := c.findName(args.Name); err != nil {
		return err
	}
	if dir := c.cur.file; dir != nil {
		change, _, err := dir.Change(dir.Attr)
		if err != nil {
			return err
		}
		c.open.change = nfs4.ChangeInfo{Before: change, After: change}
	}
	return nil
}

// findName finds the file, which may be no pseudo directory. Where the goroutine acts as the caller, the
// file is opened for its attributes at once, which saves the way to root and back.
func (c *compound) findName(name []byte) error {
	if c.IsRoot() {
		var found object
		if err := c.step(name, func(o object) { found = o }); err != nil {
			return err
		}
		if found.node != nil {
			return syscall.EISDIR
		}
		c.open.object = found
		return nil
	}
	dir, err := c.mustFile(&c.cur, nfs4.ErrIsDir)
	if err != nil {
		return err
	}
	child, err := dir.Lookup(name)
	if err != nil {
		return err
	}
	c.Closes(child)
	c.open.object.setFile(child)
	return nil
}

// createOpen makes the file, or finds that it is there.
func (c *compound) createOpen(args *nfs4.OpenArgs) error {
	o := &c.open
	may := c.server.sets.settable
	if args.Mode == nfs4.ExclusiveAttrs {
		may = c.server.sets.inExclusive
	}
	set, err := c.server.setOf(&args.Attr, may)
	if err != nil {
		return err
	}
	if o.readOnly {
		return c.openReadOnly(args, set)
	}
	dir, err := c.namesFile(&c.cur)
	if errors.Is(err, syscall.EROFS) { // also of a pseudo directory
		o.readOnly = true
		return c.openReadOnly(args, set)
	}
	if err != nil {
		return err
	}
	if err := c.asCaller(); err != nil {
		return err
	}
	exclusive := args.Mode == nfs4.Exclusive || args.Mode == nfs4.ExclusiveAttrs
	mode, verf := vfs.Guarded, args.Verf
	if exclusive {
		mode, verf = vfs.Exclusive, verifierBy(c.on.client().Owner(), verf)
	}
	if err := c.mayOpenNew(dir, args); err != nil {
		return err
	}
	made, err := c.Create(dir, args.Name, mode, set, verf)
	o.change = changeInfo(&made.Dir)
	switch {
	case err == nil:
		o.made, o.set = made.Object, args.Attr.Mask
		if exclusive {
			o.set = o.set.Or(c.server.sets.writeOnly) // they have the verifier
		}
		o.object.setFile(made.Object)
		o.object.fresh = false
		return nil
	case args.Mode != nfs4.Unchecked || !errors.Is(err, syscall.EEXIST):
		return err
	}
	if set.Size != nil && *set.Size == 0 {
		o.size, o.set = &vfs.SetAttr{Size: set.Size}, nfs4.BitmapOf(nfs4.AttrSize)
	}
	child, err := dir.Lookup(args.Name)
	if errors.Is(err, syscall.ENOENT) && o.again < openAgain { // removed since it was in the way
		*o = opening{again: o.again + 1}
		return c.createOpen(args)
	}
	if err != nil {
		return err
	}
	c.Closes(child)
	o.object.setFile(child)
	return nil
}

// mayOpenNew returns an error for an OPEN that can't make a file, as it could not open it then. What is there it
// may open even so: the client may have it open already.
func (c *compound) mayOpenNew(dir *export.File, args *nfs4.OpenArgs) error {
	access, deny, err := shares(args)
	if err != nil {
		return err
	}
	status := c.server.state.MayOpen(c.on.client(), state.OpenArgs{Owner: args.Owner.Owner, Access: access, Deny: deny})
	if status == state.OK || !dir.Lacks(string(args.Name)) {
		return nil
	}
	return errorOf(status)
}

// openReadOnly finds the file in a volume where none can be made: as open(2) with O_CREAT, OPEN may
// open one that is there.
func (c *compound) openReadOnly(args *nfs4.OpenArgs, set *vfs.SetAttr) error {
	o := &c.open
	err := c.findName(args.Name)
	there := err == nil || errors.Is(err, syscall.EISDIR)
	switch {
	case errors.Is(err, syscall.ENOENT):
		return syscall.EROFS
	case there && args.Mode != nfs4.Unchecked:
		return syscall.EEXIST
	case err != nil:
		return err
	}
	if set.Size != nil && *set.Size == 0 { // which openFound refuses
		o.size = &vfs.SetAttr{Size: set.Size}
	}
	return nil
}

// openFound opens the file for its data, if the caller may and nobody denies it.
func (c *compound) openFound(args *nfs4.OpenArgs, access, deny state.Access) error {
	o := &c.open
	reclaim := args.Claim == nfs4.ClaimPrevious
	does := access // which is more than what it is open for, if it is to be truncated
	if o.size != nil {
		does |= state.Write
	}
	use := export.UseRead
	if does&state.Write != 0 {
		use = export.UseWrite
	}
	if found := &c.mem.found; o.object.found && o.object.file == nil && c.IsRoot() {
		if err := openable(found.volume, &found.attr, use); err != nil {
			return err
		}
		if err := c.openEarly(use); err != nil {
			return err
		}
	}
	f, err := c.attrFile(&o.object)
	if err != nil {
		return err
	}
	if err := openable(f.Volume, &f.Attr, use); err != nil {
		return err
	}
	// What an exclusive one finds by its verifier is taken for its own, but anybody can compute one that fits some file.
	own := o.made != nil && (o.made.Created() || c.Owns(f))
	if !own && !c.may {
		if err := c.mayOpen(f, does, reclaim); err != nil {
			return err
		}
		c.may = true
	}
	key, err := c.server.keyOf(o.object.bytes())
	if err != nil {
		return err
	}
	data := o.made
	switch {
	case o.early != nil:
		data = o.early
	case data == nil || !data.Created(): // an exclusive one that is repeated was made before
		if !c.IsRoot() {
			return errAsRoot
		}
		data, err = c.Open(o.object.bytes(), use)
		if errors.Is(err, syscall.ESTALE) && args.Claim != nfs4.ClaimNull {
			data, err = c.openRemovedData(&o.object, use)
		}
		if err != nil {
			return err
		}
	}
	h := &held{Held: data.Hold()}
	h.Retain()
	if c.may && !reclaim {
		c.Opened(h.Held, &f.Attr, does&state.Read != 0, does&state.Write != 0)
	}
	open := state.OpenArgs{Owner: args.Owner.Owner, File: key, Access: does, Deny: deny, Reclaim: reclaim, Held: h, Slot: c.on.slot}
	status := state.OK
	if does != access {
		status = c.server.state.MayOpen(c.on.client(), open)
	}
	var id state.Stateid
	if status == state.OK {
		open.Access = access
		id, _, status = c.server.state.Open(c.on.client(), open)
	}
	if status != state.OK {
		h.Release()
		if o.made != nil { // if it is new, the goroutine acts as the caller still, who has made it
			c.Unmake(c.cur.names, o.made, args.Name)
		}
		return errorOf(status)
	}
	o.data, o.id = data, id
	return nil
}

// openable returns an error for what OPEN can't open.
//
// For a fifo, a device or a socket section 18.16.3 has NFS4ERR_WRONG_TYPE. Linux does not expect that of an
// OPEN, and programs get EIO for what its client has not in its cache. NFS4ERR_SYMLINK has it look the name
// up, and open locally what that is. The kernel's own server answers so up to Linux 6.11, for this reason
// (nfsd_check_obj_isreg).
func openable(v *export.Volume, a *export.Attr, use export.Use) error {
	switch {
	case a.IsDir():
		return syscall.EISDIR
	case !a.IsRegular():
		return statusError(nfs4.ErrSymlink)
	case use == export.UseWrite && v.Options.ReadOnly:
		return syscall.EROFS
	}
	return nil
}

// openEarly opens the file for its data at once, where its attributes are those from the look at its
// name, and the goroutine is root. Then the rights are checked by that descriptor, as READ and WRITE
// of version 3 do. It saves opening the file for its attributes, and for who does not own it the way
// back to root.
func (c *compound) openEarly(use export.Use) error {
	o := &c.open
	f, err := c.Open(o.object.bytes(), use)
	if err != nil {
		return err
	}
	f.Attr = c.mem.found.attr
	o.early, o.object.file, o.object.fresh = f, f, true
	return nil
}

// mayOpen checks the caller's rights. Who may execute a file may read it: to execute is to
// read. Who reclaims had the rights; the owner may have taken them from itself since.
func (c *compound) mayOpen(f *export.File, access state.Access, reclaim bool) error {
	for _, right := range [...]struct {
		access    state.Access
		mode, alt uint32
	}{{state.Read, export.MayRead, export.MayExec}, {state.Write, export.MayWrite, 0}} {
		if access&right.access == 0 {
			continue
		}
		may, known := c.May(f, right.mode)
		if !known {
			return errAsCaller
		}
		if !may && right.alt != 0 {
			may, _ = c.May(f, right.alt)
		}
		if !may && reclaim {
			may = c.Owns(f)
		}
		if !may {
			return syscall.EACCES
		}
	}
	return nil
}

// setSize sets the size of a file that was there, when it is open. If that fails it is not.
func (c *compound) setSize() error {
	o := &c.open
	if err := c.asCaller(); err != nil {
		return err
	}
	f, err := c.attrFile(&o.object)
	if err == nil {
		_, _, err = c.SetAttr(f, o.data, o.size, nil)
	}
	if err != nil && !errors.Is(err, errAsRoot) {
		key, _ := c.server.keyOf(o.object.bytes())
		_ = c.server.state.Close(c.on.client(), o.id, key)
	}
	if err == nil {
		o.size = nil
	}
	return err
}

// stateidOf is a stateid, with the current one for what stands for it: section 16.2.3.1.2. Its seqid is
// zero then, section 8.2.3, which stands for the latest one: an operation between may have raised it.
func (c *compound) stateidOf(id nfs4.Stateid) (state.Stateid, error) {
	sid, err := c.exactStateidOf(id)
	// Only one that was made for a client may lose its seqid: Invalid, which CLOSE returns, would become Anonymous.
	if err == nil && id == nfs4.CurrentStateid() && sid != state.Invalid {
		sid.Seqid = 0
	}
	return sid, err
}

// exactStateidOf is stateidOf for CLOSE and OPEN_DOWNGRADE, for which section 8.2.3 leaves the seqid of the
// current stateid as it is.
func (c *compound) exactStateidOf(id nfs4.Stateid) (state.Stateid, error) {
	if id == nfs4.CurrentStateid() {
		if c.stateid == (nfs4.Stateid{}) {
			return state.Stateid{}, statusError(nfs4.ErrBadStateid)
		}
		id = c.stateid
	}
	return state.Stateid(id), nil
}

// ofOpen does something to an open of the current file, or to its locks, with the stateid that of makes of id.
func (c *compound) ofOpen(id nfs4.Stateid, of func(*compound, nfs4.Stateid) (state.Stateid, error), do func(state.Stateid, state.FileKey) (state.Stateid, state.Error)) (result, error) {
	switch {
	case !c.cur.isSet():
		return nil, statusError(nfs4.ErrNoFileHandle)
	case c.cur.node != nil:
		return nil, statusError(nfs4.ErrBadStateid)
	}
	sid, err := of(c, id)
	if err != nil {
		return nil, err
	}
	key, err := c.server.keyOf(c.cur.bytes())
	if err != nil {
		return nil, err
	}
	v, ok := c.server.table.ByID(key.Volume) // which PUTFH has not looked for
	switch {
	case !ok:
		return nil, syscall.ESTALE
	case !v.Allows(c.Call.Client.Addr()), !v.AllowsPort(c.Call.Client):
		return nil, syscall.EACCES
	}
	c.Call.Served.Volume = &v.Served
	next, status := do(sid, key)
	if status != state.OK {
		return nil, errorOf(status)
	}
	c.stateid = nfs4.Stateid(next)
	return &nfs4.StateidRes{Stateid: c.stateid}, nil
}

// closeOp: section 18.2.
func (c *compound) closeOp() (result, error) {
	var args nfs4.CloseArgs
	if args.Decode(&c.Call.Args); c.Call.Args.Err() != nil {
		return nil, c.Call.Args.Err()
	}
	if c.cur.n > 0 { // of a removed file it may free what that takes on the disk
		if err := c.MayWait(c.cur.bytes()); err != nil {
			return nil, err
		}
	}
	return c.ofOpen(args.Stateid, (*compound).exactStateidOf, func(id state.Stateid, key state.FileKey) (state.Stateid, state.Error) {
		return state.Invalid, c.server.state.Close(c.on.client(), id, key)
	})
}

// openDowngrade: section 18.18.
func (c *compound) openDowngrade() (result, error) {
	var args nfs4.OpenDowngradeArgs
	if args.Decode(&c.Call.Args); c.Call.Args.Err() != nil {
		return nil, c.Call.Args.Err()
	}
	access, deny, err := shares(&nfs4.OpenArgs{ShareAccess: args.ShareAccess, ShareDeny: args.ShareDeny})
	if err != nil {
		return nil, err
	}
	return c.ofOpen(args.Stateid, (*compound).exactStateidOf, func(id state.Stateid, key state.FileKey) (state.Stateid, state.Error) {
		return c.server.state.Downgrade(c.on.client(), id, key, access, deny)
	})
}

// freeStateid: section 18.38.
func (c *compound) freeStateid() (result, error) {
	var args nfs4.FreeStateidArgs
	if args.Decode(&c.Call.Args); c.Call.Args.Err() != nil {
		return nil, c.Call.Args.Err()
	}
	id, err := c.stateidOf(args.Stateid)
	if err != nil {
		return nil, err
	}
	return nil, errorOf(c.server.state.FreeStateid(c.on.client(), id))
}

// testStateid: section 18.48.
func (c *compound) testStateid() (result, error) {
	var args nfs4.TestStateidArgs
	if args.Decode(&c.Call.Args); c.Call.Args.Err() != nil {
		return nil, c.Call.Args.Err()
	}
	res := &nfs4.TestStateidRes{}
	for _, id := range args.Stateids {
		res.Statuses = append(res.Statuses, statusOfState(c.server.state.TestStateid(c.on.client(), state.Stateid(id))))
	}
	return res, nil
}

// delegreturn: section 18.6. No stateid is of a delegation.
func (c *compound) delegreturn() (result, error) {
	var args nfs4.DelegreturnArgs
	if args.Decode(&c.Call.Args); c.Call.Args.Err() != nil {
		return nil, c.Call.Args.Err()
	}
	if !c.cur.isSet() {
		return nil, statusError(nfs4.ErrNoFileHandle)
	}
	return nil, statusError(nfs4.ErrBadStateid)
}

// delegpurge: section 18.5.
func (c *compound) delegpurge() (result, error) {
	var args nfs4.DelegpurgeArgs
	if args.Decode(&c.Call.Args); c.Call.Args.Err() != nil {
		return nil, c.Call.Args.Err()
	}
	return nil, statusError(nfs4.ErrNotSupp)
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
