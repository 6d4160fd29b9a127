package nfsbench

import (
	"errors"
	"fmt"
	"math"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/xdr"
)

// calls4 are the calls of versions 4.1 and 4.2. Each is SEQUENCE, PUTFH and the operation; those
// whose counterparts of version 3 return a handle and attributes end in GETFH and GETATTR,
// as the Linux client has it.
type calls4 struct {
	*lane

	session *session4
	slot    uint32
	owner   nfs4.StateOwner // of opens and locks

	// Of the call that is made.
	countAt, seqAt int // where it has the number of operations, and SEQUENCE's sequence
	ops            uint32
	flags          uint32 // of the result of SEQUENCE

	opened []byte // the handle of the file that was opened last
}

// bitmapMax is how many words of a bitmap of a reply are read.
const bitmapMax = 32

// usualAttrs are the attributes that the Linux client asks for.
func usualAttrs() nfs4.Bitmap {
	return nfs4.BitmapOf(nfs4.AttrType, nfs4.AttrChange, nfs4.AttrSize, nfs4.AttrFSID, nfs4.AttrFileID,
		nfs4.AttrMode, nfs4.AttrNumLinks, nfs4.AttrOwner, nfs4.AttrOwnerGroup, nfs4.AttrRawDev, nfs4.AttrSpaceUsed,
		nfs4.AttrTimeAccess, nfs4.AttrTimeMetadata, nfs4.AttrTimeModify, nfs4.AttrMountedOnFileID)
}

// askHandle and handle are GETFH.
func (l *calls4) askHandle() { l.op(nfs4.OpGetfh) }

func handle(d *xdr.Decoder) ([]byte, error) {
	if err := result(d, nfs4.OpGetfh); err != nil {
		return nil, err
	}
	var res nfs4.GetfhRes
	res.Decode(d)
	return res.FH, decoded4(nfs4.OpGetfh, d)
}

// askAttrs and attrs are GETATTR.
func (l *calls4) askAttrs(which nfs4.Bitmap) {
	l.op(nfs4.OpGetattr)
	l.out = (&nfs4.GetattrArgs{Request: which}).Append(l.out)
}

// attrs decodes no more of the usual attributes than what loads need: the rest takes
// longer than the call.
func attrs(d *xdr.Decoder) (a attributes, err error) {
	if err := done(d, nfs4.OpGetattr); err != nil {
		return a, err
	}
	var first uint32
	for i := range d.Count(bitmapMax, 4) {
		if word := d.Uint32(); i == 0 {
			first = word
		}
	}
	vals := xdr.NewDecoder(d.Opaque(nfs4.MaxAttrs))
	const size = 1<<nfs4.AttrType | 1<<nfs4.AttrChange | 1<<nfs4.AttrSize // which every server has
	if d.Err() == nil && first&(1<<(nfs4.AttrSize+1)-1) == size {
		a.regular = nfs4.FType(vals.Uint32()) == nfs4.TypeReg
		vals.Uint64()
		a.size = vals.Uint64()
		return a, decoded4(nfs4.OpGetattr, &vals)
	}
	return a, errors.Join(decoded4(nfs4.OpGetattr, d), errors.New("GETATTR: the server lacks type, change or size"))
}

func (l *calls4) null() error {
	_, err := l.call(nfs4.Program, nfs4.Version, nfs4.ProcNull, nil)
	return err
}

// renew is SEQUENCE alone, which renews the lease.
func (l *calls4) renew() error {
	l.compound(false)
	if _, err := l.send(); err != nil {
		return err
	}
	const lost = nfs4.SeqExpiredAllStateRevoked | nfs4.SeqExpiredSomeStateRevoked | nfs4.SeqAdminStateRevoked | nfs4.SeqRestartReclaimNeeded
	if l.flags&lost != 0 {
		return fmt.Errorf("SEQUENCE: the server has closed files (status flags %#x)", l.flags)
	}
	return nil
}

// rootfh is the root of the server's tree.
func (l *calls4) rootfh() ([]byte, error) {
	l.compound(false)
	l.op(nfs4.OpPutrootfh)
	l.askHandle()
	d, err := l.send()
	if err == nil {
		err = done(&d, nfs4.OpPutrootfh)
	}
	if err != nil {
		return nil, err
	}
	return handle(&d)
}

// all is GETATTR of attributes that are decoded.
func (l *calls4) all(fh []byte, which ...uint32) (a nfs4.Attrs, err error) {
	wanted := nfs4.BitmapOf(which...)
	l.on(fh, false)
	l.askAttrs(wanted)
	d, err := l.onHandle()
	if err == nil {
		err = result(&d, nfs4.OpGetattr)
	}
	if err != nil {
		return a, err
	}
	var res nfs4.GetattrRes
	res.Decode(&d)
	if err := decoded4(nfs4.OpGetattr, &d); err != nil {
		return a, err
	}
	if !wanted.Without(res.Attr.Mask).Empty() {
		return a, fmt.Errorf("GETATTR: the server lacks one of the attributes %v", which)
	}
	return res.Attr, nil
}

func (l *calls4) limits(fh []byte) (rtmax, wtmax int, err error) {
	a, err := l.all(fh, nfs4.AttrMaxRead, nfs4.AttrMaxWrite)
	if err != nil {
		return 0, 0, err
	}
	most := func(attr uint64, message uint32) int { return int(min(attr, uint64(max(message, overhead)-overhead))) }
	rtmax, wtmax = most(a.MaxRead, l.session.fore.MaxResponseSize), most(a.MaxWrite, l.session.fore.MaxRequestSize)
	if rtmax == 0 || wtmax == 0 {
		return 0, 0, fmt.Errorf("the server reads %d bytes at once and writes %d, in messages of %d and %d", a.MaxRead, a.MaxWrite, l.session.fore.MaxResponseSize, l.session.fore.MaxRequestSize)
	}
	return rtmax, wtmax, nil
}

func (l *calls4) room(fh []byte) (int64, error) {
	a, err := l.all(fh, nfs4.AttrSpaceAvail)
	return int64(min(a.SpaceAvail, math.MaxInt64)), err
}

func (l *calls4) getattr(fh []byte) (attributes, error) {
	l.on(fh, false)
	l.askAttrs(l.session.usual)
	d, err := l.onHandle()
	if err != nil {
		return attributes{}, err
	}
	return attrs(&d)
}

func (l *calls4) setattr(fh []byte, bits uint32, mtime int64) error {
	l.on(fh, true)
	l.op(nfs4.OpSetattr)
	set := nfs4.Sattr{
		Mask: nfs4.BitmapOf(nfs4.AttrMode, nfs4.AttrTimeModifySet),
		Mode: bits, TimeModify: nfs4.SetTime{How: nfs4.SetToClientTime, Time: nfs4.Time{Sec: mtime}},
	}
	l.out = (&nfs4.SetattrArgs{Attr: set}).Append(l.out)
	l.askAttrs(l.session.usual)
	d, err := l.onHandle()
	if err == nil {
		err = result(&d, nfs4.OpSetattr)
	}
	if err != nil {
		return err
	}
	var res nfs4.SetattrRes
	res.Decode(&d)
	_, err = attrs(&d)
	return err
}

func (l *calls4) access(fh []byte, want uint32) (uint32, error) {
	l.on(fh, false)
	l.askAccess(want)
	l.askAttrs(l.session.usual)
	d, err := l.onHandle()
	if err != nil {
		return 0, err
	}
	return granted(&d)
}

func (l *calls4) askAccess(want uint32) {
	l.op(nfs4.OpAccess)
	l.out = (&nfs4.AccessArgs{Access: want}).Append(l.out)
}

// granted decodes ACCESS and GETATTR.
func granted(d *xdr.Decoder) (uint32, error) {
	if err := result(d, nfs4.OpAccess); err != nil {
		return 0, err
	}
	var res nfs4.AccessRes
	res.Decode(d)
	_, err := attrs(d)
	return res.Access, err
}

func (l *calls4) lookup(dir, name []byte) ([]byte, error) {
	l.on(dir, false)
	l.op(nfs4.OpLookup)
	l.out = (&nfs4.LookupArgs{Name: name}).Append(l.out)
	l.askHandle()
	l.askAttrs(l.session.usual)
	d, err := l.onHandle()
	if err == nil {
		err = done(&d, nfs4.OpLookup)
	}
	if err != nil {
		return nil, err
	}
	fh, err := handle(&d)
	if err == nil {
		_, err = attrs(&d)
	}
	return fh, err
}

func (l *calls4) mkdir(dir, name []byte) ([]byte, error) {
	l.on(dir, true)
	l.op(nfs4.OpCreate)
	l.out = (&nfs4.CreateArgs{Type: nfs4.TypeDir, Name: name, Attr: mode4(0o755)}).Append(l.out)
	l.askHandle()
	l.askAttrs(l.session.usual)
	d, err := l.onHandle()
	if err == nil {
		err = result(&d, nfs4.OpCreate)
	}
	if err != nil {
		return nil, err
	}
	var res nfs4.CreateRes
	res.Decode(&d)
	fh, err := handle(&d)
	if err == nil {
		_, err = attrs(&d)
	}
	return fh, err
}

// rmdir is remove: REMOVE is for files and directories alike.
func (l *calls4) rmdir(dir, name []byte) error { return l.remove(dir, name) }

func (l *calls4) remove(dir, name []byte) error {
	return l.change(dir, nfs4.OpRemove, &nfs4.RemoveArgs{Name: name}, &nfs4.RemoveRes{})
}

func (l *calls4) rename(dir, from, to []byte) error {
	l.on(dir, true)
	l.op(nfs4.OpSavefh)
	l.putfh(dir)
	l.op(nfs4.OpRename)
	l.out = (&nfs4.RenameArgs{OldName: from, NewName: to}).Append(l.out)
	d, err := l.onHandle()
	if err == nil {
		err = done(&d, nfs4.OpSavefh)
	}
	if err == nil {
		err = done(&d, nfs4.OpPutfh)
	}
	if err != nil {
		return err
	}
	return result(&d, nfs4.OpRename)
}

// mode4 is an Sattr that sets the mode.
func mode4(m uint32) nfs4.Sattr {
	return nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrMode), Mode: m}
}
