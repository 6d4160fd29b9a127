package nfscheck

import (
	"bytes"
	"context"
	"crypto/rand"

	"github.com/podnas/podnas/doctor"
	"github.com/podnas/podnas/nfs/nfs4"
)

func (s *session4) putfh(fh nfs4.FH) op {
	return op{nfs4.OpPutfh, &nfs4.PutfhArgs{FH: fh}, &nfs4.StatusRes{}}
}

func (s *session4) stateOwner() nfs4.StateOwner {
	return nfs4.StateOwner{ClientID: s.clientID, Owner: []byte("podnas doctor")}
}

// create makes a file, and opens it.
func (s *session4) create(ctx context.Context) doctor.Result {
	name := []byte(".podnas-doctor-" + rand.Text()[:12])
	args := nfs4.OpenArgs{
		ShareAccess: nfs4.ShareAccessBoth | nfs4.WantNoDeleg, Owner: s.stateOwner(),
		Create: true, Mode: nfs4.Guarded, Attr: nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrMode), Mode: 0o600}, Name: name,
	}
	var open nfs4.OpenRes
	var file nfs4.GetfhRes
	var attr nfs4.GetattrRes
	r, ok := s.do(ctx, "creating a file as "+s.who(), s.putfh(s.root), op{nfs4.OpOpen, &args, &open}, op{nfs4.OpGetfh, nil, &file},
		op{nfs4.OpGetattr, &nfs4.GetattrArgs{Request: nfs4.BitmapOf(nfs4.AttrOwner, nfs4.AttrOwnerGroup)}, &attr})
	if !ok {
		return r
	}
	s.name, s.file, s.open = name, bytes.Clone(file.FH), open.Stateid
	if number(attr.Attr.Owner) != s.mount.UID {
		return doctor.Good("a file was created as %s; it belongs to %s:%s, because the volume squashes users", s.who(), attr.Attr.Owner, attr.Attr.OwnerGroup)
	}
	return doctor.Good("a file was created as %s", s.who())
}

// locks locks the file, and unlocks it.
func (s *session4) locks(ctx context.Context) doctor.Result {
	const all = ^uint64(0)
	var lock nfs4.LockRes
	args := nfs4.LockArgs{Type: nfs4.LockWrite, Length: all, NewOwner: true, OpenStateid: s.open, Owner: s.stateOwner()}
	r, ok := s.do(ctx, "locking", s.putfh(s.file), op{nfs4.OpLock, &args, &lock})
	if ok {
		r, ok = s.do(ctx, "unlocking", s.putfh(s.file),
			op{nfs4.OpLocku, &nfs4.LockuArgs{Type: nfs4.LockWrite, Stateid: lock.Stateid, Length: all}, &nfs4.StateidRes{}})
	}
	if !ok {
		s.remove(ctx)
		return r
	}
	return doctor.Good("the file was locked and unlocked; locks hold between nodes")
}

// write writes like the kernel: unstable, then COMMIT.
func (s *session4) write(ctx context.Context) doctor.Result {
	var written nfs4.WriteRes
	var commit nfs4.CommitRes
	r, ok := s.do(ctx, "writing", s.putfh(s.file), op{nfs4.OpWrite, &nfs4.WriteArgs{Stateid: s.open, Stable: nfs4.Unstable, Data: []byte(content)}, &written})
	if ok {
		r, ok = s.do(ctx, "syncing", s.putfh(s.file), op{nfs4.OpCommit, &nfs4.CommitArgs{}, &commit})
	}
	switch {
	case !ok:
		s.remove(ctx)
		return r
	case commit.Verf != written.Verf:
		return wroteAgain()
	}
	return doctor.Good("%d bytes were written and synced", written.Count)
}

func (s *session4) read(ctx context.Context) doctor.Result {
	var res nfs4.ReadRes
	r, ok := s.do(ctx, "reading", s.putfh(s.file), op{nfs4.OpRead, &nfs4.ReadArgs{Stateid: s.open, Count: 2 * uint32(len(content))}, &res})
	switch {
	case !ok:
	case string(res.Data) != content:
		r = readOther()
	default:
		return doctor.Good("the data was read back")
	}
	s.remove(ctx)
	return r
}

// remove closes the file and removes it.
func (s *session4) remove(ctx context.Context) doctor.Result {
	r, ok := s.do(ctx, "closing the file", s.putfh(s.file), op{nfs4.OpClose, &nfs4.CloseArgs{Stateid: s.open}, &nfs4.StateidRes{}})
	removed, done := s.do(ctx, "removing "+string(s.name), s.putfh(s.root), op{nfs4.OpRemove, &nfs4.NameArgs{Name: s.name}, &nfs4.ChangeRes{}})
	switch {
	case !ok:
		return r
	case !done:
		return removed
	}
	return doctor.Good("the file was removed")
}
