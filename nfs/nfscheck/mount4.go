package nfscheck

import (
	"bytes"
	"context"
	"crypto/rand"
	"strconv"
	"strings"

	"github.com/podnas/podnas/doctor"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/nfs4"
)

// session4 is the state of the steps with version 4.1.
type session4 struct {
	session
	owner    []byte // this client's co_ownerid
	verifier nfs4.Verifier
	clientID uint64
	id       nfs4.SessionID
	seq      uint32 // of the first slot, the only one in use

	root, file nfs4.FH
	attrs      nfs4.Attrs   // of the root
	open       nfs4.Stateid // of the file
}

// steps4 are the steps of a mount with version 4.1.
func (m Mount) steps4() (steps []doctor.Check, closeAll func()) {
	s := &session4{session: session{mount: m}, owner: []byte("podnas doctor " + m.Machine + " " + rand.Text()[:12])}
	copy(s.verifier[:], rand.Text())
	return []doctor.Check{
		doctor.One("options", func(context.Context) doctor.Result { return judgeOptions(m.Options) }),
		doctor.One("address", s.resolve),
		doctor.One("connect", s.connect),
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
	}, s.close
}

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
	const mayMount = "The volume's allowedClients (podnas volume show NAME) must include the address that this machine connects from: a node's, not a pod's. Volumes with privilegedPorts, the default in a cluster, accept only calls from ports below 1024: run this as root"
	num, status, err := s.call(ctx, ops...)
	switch {
	case err != nil:
		return doctor.Fail("podnas's log says more", "the call got no valid answer: %v", reason(err))
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
