package nfscheck

import (
	"bytes"
	"context"
	"crypto/rand"
	"strconv"
	"strings"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/nfs4"
)

// session4 is the state of the steps with versions 4.1 and 4.2.
type session4 struct {
	*session

	minors   []uint32 // versions to try: the first is in use
	owner    []byte   // this client's co_ownerid
	verifier nfs4.Verifier
	clientID uint64
	id       nfs4.SessionID
	seq      uint32 // of the first slot, the only one in use

	root, file nfs4.FH
	attrs      nfs4.Attrs   // of the root
	open       nfs4.Stateid // of the file
}

func newSession4(begun *session) *session4 {
	s := &session4{session: begun, minors: begun.mount.minors(), owner: []byte("podnas doctor " + begun.mount.Machine + " " + rand.Text()[:12])}
	copy(s.verifier[:], rand.Text())
	return s
}

// steps are the steps after the connection.
func (s *session4) steps() []doctor.Check {
	return []doctor.Check{
		doctor.One("NFS", func(ctx context.Context) doctor.Result {
			return s.null(ctx, s.nfs, program{"NFS", nfs4.Program, nfs4.Version})
		}),
		doctor.One("session", s.begin),
		doctor.One("mount", s.lookup),
		doctor.One("space", func(context.Context) doctor.Result { return judgeSpace(s.attrs.SpaceAvail, s.attrs.SpaceTotal) }),
		doctor.One("create", s.create),
		doctor.One("locks", s.locks),
		doctor.One("write", s.write),
		doctor.One("read", s.read),
		doctor.One("remove", s.remove),
	}
}

// mayMount says what a machine needs to mount a volume.
const mayMount = "The volume's allowedClients (podnas volume show NAME) must include the address that this machine connects from: a node's, not a pod's. Volumes with privilegedPorts, the default in a cluster, accept only calls from ports below 1024: run this as root"

// lookup walks from the pseudo root to the volume.
func (s *session4) lookup(ctx context.Context) doctor.Result {
	var root nfs4.GetfhRes
	var attr nfs4.GetattrRes
	ops := []op{plain(nfs4.OpPutrootfh)}
	for name := range strings.SplitSeq(s.mount.Path, "/") {
		if name != "" {
			ops = append(ops, op{Num: nfs4.OpLookup, Args: &nfs4.NameArgs{Name: []byte(name)}, Res: &nfs4.StatusRes{}})
		}
	}
	wanted := nfs4.BitmapOf(nfs4.AttrType, nfs4.AttrMode, nfs4.AttrOwner, nfs4.AttrOwnerGroup, nfs4.AttrMaxRead, nfs4.AttrMaxWrite,
		nfs4.AttrSpaceAvail, nfs4.AttrSpaceTotal, nfs4.AttrLeaseTime)
	ops = append(ops, op{Num: nfs4.OpGetfh, Res: &root}, op{Num: nfs4.OpGetattr, Args: &nfs4.GetattrArgs{Request: wanted}, Res: &attr})
	num, status, err := s.call(ctx, ops...)
	switch {
	case err != nil:
		return noAnswer(err)
	case status == nfs4.ErrNoEnt:
		return doctor.Fail("list the volumes with podnas volume list, in podnas's pod. "+mayMount, "the server has no volume at %s, or does not let this machine mount it", s.mount.Path)
	case status == nfs4.ErrAccess, status == nfs4.ErrPerm:
		return doctor.Fail(mayMount, "the server does not let this machine mount %s", s.mount.Path)
	case status != nfs4.OK:
		return doctor.Fail("podnas's log says more", "%s answers %s to the mount of %s", num, status, s.mount.Path)
	}
	s.root, s.attrs = bytes.Clone(root.FH), attr.Attr
	s.attr = nfs3.PostOpAttr{Present: true, Attr: nfs3.Fattr{UID: number(attr.Attr.Owner), GID: number(attr.Attr.OwnerGroup), Mode: attr.Attr.Mode}}
	return doctor.Good("the server has %s and lets this machine mount it. The root directory belongs to %s:%s and has mode %04o; one call reads up to %d KiB or writes up to %d; a client that is silent for %d s may lose its locks",
		s.mount.Path, attr.Attr.Owner, attr.Attr.OwnerGroup, attr.Attr.Mode&0o7777, attr.Attr.MaxRead>>10, attr.Attr.MaxWrite>>10, attr.Attr.LeaseTime)
}

// number is an id as owners are told, in digits.
func number(owner []byte) uint32 {
	n, err := strconv.ParseUint(string(owner), 10, 32)
	if err != nil {
		return nobody
	}
	return uint32(n)
}

// nobody is the user in place of a name, which podnas never tells.
const nobody = 65534

func (s *session4) putfh(fh nfs4.FH) op {
	return op{Num: nfs4.OpPutfh, Args: &nfs4.PutfhArgs{FH: fh}, Res: &nfs4.StatusRes{}}
}

func (s *session4) stateOwner() nfs4.StateOwner {
	return nfs4.StateOwner{ClientID: s.clientID, Owner: []byte("podnas doctor")}
}

// create makes a file, and opens it.
func (s *session4) create(ctx context.Context) doctor.Result {
	name := []byte(newName())
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
	if !ok {
		return r
	}
	return wrote(written.Count, commit.Verf == written.Verf)
}

func (s *session4) read(ctx context.Context) doctor.Result {
	var res nfs4.ReadRes
	if r, ok := s.do(ctx, "reading", s.putfh(s.file), op{Num: nfs4.OpRead, Args: &nfs4.ReadArgs{Stateid: s.open, Count: 2 * uint32(len(content))}, Res: &res}); !ok {
		return r
	}
	return readBack(res.Data)
}

// remove closes the file and removes it.
func (s *session4) remove(ctx context.Context) doctor.Result {
	name := s.name
	s.name = nil
	r, ok := s.do(ctx, "closing the file", s.putfh(s.file), op{Num: nfs4.OpClose, Args: &nfs4.CloseArgs{Stateid: s.open}, Res: &nfs4.StateidRes{}})
	removed, done := s.do(ctx, "removing "+string(name), s.putfh(s.root), op{Num: nfs4.OpRemove, Args: &nfs4.NameArgs{Name: name}, Res: &nfs4.ChangeRes{}})
	switch {
	case !ok:
		return r
	case !done:
		return removed
	}
	return doctor.Good("the file was removed")
}
