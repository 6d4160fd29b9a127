package nfscheck

import (
	"bytes"
	"context"
	"crypto/rand"

	"github.com/podnas/podnas/doctor"
	"github.com/podnas/podnas/nfs/nfs4"
)

func (s *session4) putfh(fh nfs4.FH) op {
	return op{Num: nfs4.OpPutfh, Args: &nfs4.PutfhArgs{FH: fh}, Res: &nfs4.StatusRes{}}
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
	r, ok := s.do(ctx, "creating a file as "+s.who(), s.putfh(s.root), op{Num: nfs4.OpOpen, Args: &args, Res: &open}, op{Num: nfs4.OpGetfh, Res: &file},
		op{Num: nfs4.OpGetattr, Args: &nfs4.GetattrArgs{Request: nfs4.BitmapOf(nfs4.AttrOwner, nfs4.AttrOwnerGroup)}, Res: &attr})
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
	r, ok := s.do(ctx, "locking", s.putfh(s.file), op{Num: nfs4.OpLock, Args: &args, Res: &lock})
	if ok {
		r, ok = s.do(ctx, "unlocking", s.putfh(s.file),
			op{Num: nfs4.OpLocku, Args: &nfs4.LockuArgs{Type: nfs4.LockWrite, Stateid: lock.Stateid, Length: all}, Res: &nfs4.StateidRes{}})
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
	r, ok := s.do(ctx, "writing", s.putfh(s.file), op{Num: nfs4.OpWrite, Args: &nfs4.WriteArgs{Stateid: s.open, Stable: nfs4.Unstable, Data: []byte(content)}, Res: &written})
	if ok {
		r, ok = s.do(ctx, "syncing", s.putfh(s.file), op{Num: nfs4.OpCommit, Args: &nfs4.CommitArgs{}, Res: &commit})
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
	r, ok := s.do(ctx, "reading", s.putfh(s.file), op{Num: nfs4.OpRead, Args: &nfs4.ReadArgs{Stateid: s.open, Count: 2 * uint32(len(content))}, Res: &res})
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
	r, ok := s.do(ctx, "closing the file", s.putfh(s.file), op{Num: nfs4.OpClose, Args: &nfs4.CloseArgs{Stateid: s.open}, Res: &nfs4.StateidRes{}})
	removed, done := s.do(ctx, "removing "+string(s.name), s.putfh(s.root), op{Num: nfs4.OpRemove, Args: &nfs4.NameArgs{Name: s.name}, Res: &nfs4.ChangeRes{}})
	switch {
	case !ok:
		return r
	case !done:
		return removed
	}
	return doctor.Good("the file was removed")
}
