package nfsbench

import (
	"fmt"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/xdr"
)

// askOpen is OPEN for reading and writing. A new file is made if there is none.
func (l *calls4) askOpen(dir, name []byte, create bool) {
	l.on(dir, true)
	l.op(nfs4.OpOpen)
	args := nfs4.OpenArgs{
		ShareAccess: nfs4.ShareAccessBoth | nfs4.WantNoDeleg, Owner: l.owner,
		Create: create, Mode: nfs4.Guarded, Attr: mode4(0o644),
		Claim: nfs4.ClaimNull, Name: name,
	}
	l.out = args.Append(l.out)
	l.askHandle()
}

// opening decodes OPEN and GETFH.
func opening(d *xdr.Decoder) (f file, err error) {
	if err := result(d, nfs4.OpOpen); err != nil {
		return f, err
	}
	var res nfs4.OpenRes
	res.Decode(d)
	fh, err := handle(d)
	return file{fh: fh, opened: res.Stateid}, err
}

// own returns the file with a handle of its own, valid until the next open or create.
func (l *calls4) own(f file) file {
	l.opened = append(l.opened[:0], f.fh...)
	f.fh = l.opened
	return f
}

func (l *calls4) open(dir, name []byte) (file, error) {
	const want = accessRead | accessModify | accessExtend
	l.askOpen(dir, name, false)
	l.askAccess(want)
	l.askAttrs(l.session.usual)
	d, err := l.onHandle()
	if err != nil {
		return file{}, err
	}
	f, err := opening(&d)
	if err != nil {
		return f, err
	}
	got, err := granted(&d)
	return l.own(f), given(got, want, err)
}

func (l *calls4) create(dir, name []byte) (file, error) {
	l.askOpen(dir, name, true)
	l.askAttrs(l.session.usual)
	d, err := l.onHandle()
	if err != nil {
		return file{}, err
	}
	f, err := opening(&d)
	if err == nil {
		_, err = attrs(&d)
	}
	return l.own(f), err
}

// touch has CLOSE in the call of OPEN.
func (l *calls4) touch(dir, name []byte) ([]byte, error) {
	l.askOpen(dir, name, true)
	l.askAttrs(l.session.usual)
	l.op(nfs4.OpClose)
	l.out = (&nfs4.CloseArgs{Stateid: nfs4.CurrentStateid()}).Append(l.out)
	d, err := l.onHandle()
	if err != nil {
		return nil, err
	}
	f, err := opening(&d)
	if err == nil {
		_, err = attrs(&d)
	}
	if err == nil {
		err = result(&d, nfs4.OpClose)
	}
	return f.fh, err
}

func (l *calls4) close(f *file) error {
	return l.change(f.fh, nfs4.OpClose, &nfs4.CloseArgs{Stateid: f.opened}, &nfs4.CloseRes{})
}

func (l *calls4) read(f *file, offset uint64, n int) (data []byte, eof bool, err error) {
	l.on(f.fh, false)
	l.op(nfs4.OpRead)
	l.out = (&nfs4.ReadArgs{Stateid: f.opened, Offset: offset, Count: uint32(n)}).Append(l.out)
	d, err := l.onHandle()
	if err == nil {
		err = result(&d, nfs4.OpRead)
	}
	if err != nil {
		return nil, false, err
	}
	var res nfs4.ReadRes
	res.Decode(&d)
	if err := decoded4(nfs4.OpRead, &d); err != nil {
		return nil, false, err
	}
	if len(res.Data) > n {
		return nil, false, fmt.Errorf("READ of %d bytes: %d bytes of data", n, len(res.Data))
	}
	return res.Data, res.EOF, nil
}

func (l *calls4) write(p *filler, f *file, seed, offset uint64, n int, stable bool) (written, error) {
	how := nfs4.Unstable
	if stable {
		how = nfs4.FileSync
	}
	l.on(f.fh, false)
	l.op(nfs4.OpWrite)
	// The data, which is the last of the arguments, is generated in the call's buffer.
	l.out = (&nfs4.WriteArgs{Stateid: f.opened, Offset: offset, Stable: how}).Append(l.out)
	xdr.Patch(l.out, len(l.out)-4, uint32(n))
	l.out = p.append(l.out, seed, offset, n)
	var zero [4]byte
	l.out = append(l.out, zero[:xdr.Pad(n)]...)
	d, err := l.onHandle()
	if err == nil {
		err = result(&d, nfs4.OpWrite)
	}
	if err != nil {
		return written{}, err
	}
	var res nfs4.WriteRes
	res.Decode(&d)
	if err := decoded4(nfs4.OpWrite, &d); err != nil {
		return written{}, err
	}
	w := written{int(res.Count), verifier(res.Verf)}
	err = w.check(n, stable, res.Committed == nfs4.FileSync)
	return w, err
}

func (l *calls4) commit(fh []byte) (verifier, error) {
	var res nfs4.CommitRes
	err := l.change(fh, nfs4.OpCommit, &nfs4.CommitArgs{}, &res)
	return verifier(res.Verf), err
}

func (l *calls4) lock(f *file) error {
	args := nfs4.LockArgs{Type: nfs4.LockWrite, Length: 1, LockStateid: f.locked}
	if f.locked == (nfs4.Stateid{}) {
		args.NewOwner, args.OpenStateid, args.Owner = true, f.opened, l.owner
	}
	var res nfs4.LockRes
	err := l.change(f.fh, nfs4.OpLock, &args, &res)
	if err == nil {
		f.locked = res.Stateid
	}
	return err
}

func (l *calls4) unlock(f *file) error {
	var res nfs4.LockuRes
	err := l.change(f.fh, nfs4.OpLocku, &nfs4.LockuArgs{Type: nfs4.LockWrite, Stateid: f.locked, Length: 1}, &res)
	if err == nil {
		f.locked = res.Stateid
	}
	return err
}

// list is READDIR.
func (l *calls4) list(dir []byte, after page, visit func(name []byte, isDir bool)) (page, error) {
	wanted := l.session.usual
	wanted.Set(nfs4.AttrRdattrError)
	wanted.Set(nfs4.AttrFilehandle)
	l.on(dir, false)
	l.op(nfs4.OpReaddir)
	args := nfs4.ReaddirArgs{Cookie: after.cookie, CookieVerf: nfs4.Verifier(after.verf), DirCount: listingPage, MaxCount: listingPage, Request: wanted}
	l.out = args.Append(l.out)
	d, err := l.onHandle()
	if err == nil {
		err = done(&d, nfs4.OpReaddir)
	}
	if err != nil {
		return page{}, err
	}
	next := page{cookie: after.cookie}
	copy(next.verf[:], d.Fixed(nfs4.VerifierSize))
	for d.Bool() {
		next.cookie = d.Uint64()
		name := d.Opaque(nfs4.MaxPath)
		var first uint32
		for i := range d.Count(bitmapMax, 4) {
			if word := d.Uint32(); i == 0 {
				first = word
			}
		}
		vals := xdr.NewDecoder(d.Opaque(nfs4.MaxAttrs))
		if d.Err() != nil {
			break
		}
		next.entries++
		if visit != nil {
			hasType := first&(1<<nfs4.AttrType) != 0
			visit(name, hasType && nfs4.FType(vals.Uint32()) == nfs4.TypeDir)
		}
	}
	next.eof = d.Bool()
	return next, decoded4(nfs4.OpReaddir, &d)
}
