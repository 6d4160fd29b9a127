package nfscheck

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

// session3 is the state of the steps with version 3.
type session3 struct {
	*session

	mountd     *rpc.Client
	root, file nfs3.FH
}

// steps are the steps after the connection.
func (s *session3) steps() []doctor.Check {
	return []doctor.Check{
		doctor.One("NFS", func(ctx context.Context) doctor.Result { return s.null(ctx, s.nfs, programs()[0]) }),
		doctor.One("MOUNT", s.connectMount),
		doctor.One("mount", s.mnt),
		doctor.One("FSINFO", s.fsinfo),
		doctor.One("locks", s.locks),
		doctor.One("space", s.fsstat),
		doctor.One("create", s.create),
		doctor.One("write", s.write),
		doctor.One("read", s.read),
		doctor.One("remove", s.remove),
	}
}

func (s *session3) connectMount(ctx context.Context) doctor.Result {
	client, err := dial(ctx, s.address(s.mount.MountPort))
	if err != nil {
		return doctor.Fail("use the port of the PersistentVolume's mountOptions for MOUNT (mountport=N); podnas serves it on the port of NFS. "+connectFix(err),
			"no TCP connection to %s: %v", s.address(s.mount.MountPort), reason(err))
	}
	s.mountd = client
	return s.null(ctx, client, programs()[1])
}

func (s *session3) mnt(ctx context.Context) doctor.Result {
	var res mount3.MntRes
	if _, err := s.call(ctx, s.mountd, mount3.Program, mount3.Version, mount3.ProcMnt, &mount3.PathArgs{Path: []byte(s.mount.Path)}, &res); err != nil {
		return noAnswer(err)
	}
	switch res.Status {
	case mount3.OK:
	case mount3.ErrNoEnt:
		return doctor.Fail("list the volumes with podnas volume list, in podnas's pod. The path of a PersistentVolume is its .spec.nfs.path; if that is missing on the disk, podnas doctor there says more",
			"the server has no volume at %s", s.mount.Path)
	case mount3.ErrAcces, mount3.ErrPerm:
		return doctor.Fail("the volume's allowedClients (podnas volume show NAME) must include the address that this machine connects from: a node's, not a pod's. Volumes with privilegedPorts, the default in a cluster, accept only calls from ports below 1024: run this as root",
			"the server does not let this machine mount %s", s.mount.Path)
	default:
		return doctor.Fail("podnas's log says more", "the server answers %s to the mount of %s", res.Status, s.mount.Path)
	}
	if !slices.Contains(res.Flavors, rpc.AuthSys) {
		return doctor.Fail("this is not podnas: configure the server to allow sec=sys", "the server does not accept AUTH_SYS, which mounts use")
	}
	s.root = bytes.Clone(res.Handle)
	return doctor.Good("the server has %s and lets this machine mount it", s.mount.Path)
}

// lockManager is NLM version 4 (the Open Group's XNFS, chapter 10).
const lockManager, lockVersion = 100021, 4

func (s *session3) locks(ctx context.Context) doctor.Result {
	if _, err := s.nfs.Call(ctx, lockManager, lockVersion, 0, nil); err == nil {
		return doctor.Good("the server serves NLM, NFS's lock protocol; with nolock it is not used")
	}
	return doctor.Good("with nolock, locks (flock, fcntl) work between programs of one node, but not between nodes, because the server has no NLM. Files that are locked from two nodes at once, such as a database, need nfsvers=4.1")
}

// result is the result of a call.
type result interface{ Decode(*xdr.Decoder) }

// call makes a call and decodes its result, which begins with a status.
func (s *session3) call(ctx context.Context, client *rpc.Client, prog, vers, proc uint32, args rpc.Args, res result) (status uint32, err error) {
	data, err := client.Do(ctx, rpc.CallHeader{RPCVersion: rpc.Version, Prog: prog, Vers: vers, Proc: proc, Cred: s.credential()}, args)
	if err != nil {
		return 0, err
	}
	first, whole := xdr.NewDecoder(data), xdr.NewDecoder(data)
	status = first.Uint32()
	res.Decode(&whole)
	return status, whole.Err() // surplus bytes are no error: go-nfs sends them, and the kernel ignores them
}

// do makes a call of NFS. If that fails, it returns false and a Result that says so.
func (s *session3) do(ctx context.Context, doing string, proc uint32, args rpc.Args, res result) (doctor.Result, bool) {
	status, err := s.call(ctx, s.nfs, nfs3.Program, nfs3.Version, proc, args, res)
	switch {
	case err != nil:
		return noAnswer(err), false
	case nfs3.Status(status) != nfs3.OK:
		return s.explain(fmt.Sprintf("%s: %s", doing, nfs3.Status(status)), nfs4.Status(status)), false
	}
	return doctor.Result{}, true
}

func (s *session3) fsinfo(ctx context.Context) doctor.Result {
	var res nfs3.FsinfoRes
	var attr nfs3.GetattrRes
	if r, ok := s.do(ctx, "FSINFO of the root directory", nfs3.ProcFsinfo, &nfs3.FsinfoArgs{Object: s.root}, &res); !ok {
		return r
	}
	if r, ok := s.do(ctx, "GETATTR of the root directory", nfs3.ProcGetattr, &nfs3.GetattrArgs{Object: s.root}, &attr); !ok {
		return r
	}
	s.attr = nfs3.PostOpAttr{Present: true, Attr: attr.Attr}
	return doctor.Good("the root directory belongs to %d:%d and has mode %04o; one call reads up to %d KiB or writes up to %d",
		attr.Attr.UID, attr.Attr.GID, attr.Attr.Mode&0o7777, res.RtMax>>10, res.WtMax>>10)
}

func (s *session3) fsstat(ctx context.Context) doctor.Result {
	var res nfs3.FsstatRes
	if r, ok := s.do(ctx, "FSSTAT", nfs3.ProcFsstat, &nfs3.FsstatArgs{Object: s.root}, &res); !ok {
		return r
	}
	return judgeSpace(res.ABytes, res.TBytes)
}

func (s *session3) create(ctx context.Context) doctor.Result {
	name := []byte(newName())
	where := nfs3.DirOpArgs{Dir: s.root, Name: name}
	args := nfs3.CreateArgs{Where: where, Mode: nfs3.Guarded}
	args.Attr.Mode = nfs3.SetUint32{Set: true, Value: 0o600}
	var res nfs3.CreateRes
	if r, ok := s.do(ctx, "creating a file as "+s.who(), nfs3.ProcCreate, &args, &res); !ok {
		return r
	}
	s.name = name
	if s.file = bytes.Clone(res.Object); s.file == nil {
		var found nfs3.LookupRes
		if r, ok := s.do(ctx, "LOOKUP of the file", nfs3.ProcLookup, &where, &found); !ok {
			return r
		}
		s.file = bytes.Clone(found.Object)
	}
	if a := res.Attr; a.Present && (a.Attr.UID != s.mount.UID) {
		return doctor.Good("a file was created as %s; it belongs to %d:%d, because the volume squashes users, or the engine is go-nfs", s.who(), a.Attr.UID, a.Attr.GID)
	}
	return doctor.Good("a file was created as %s", s.who())
}

// write writes like the kernel: unstable, then COMMIT.
func (s *session3) write(ctx context.Context) doctor.Result {
	var res nfs3.WriteRes
	var commit nfs3.CommitRes
	args := nfs3.WriteArgs{File: s.file, Count: uint32(len(content)), Stable: nfs3.Unstable, Data: []byte(content)}
	r, ok := s.do(ctx, "writing", nfs3.ProcWrite, &args, &res)
	if ok {
		r, ok = s.do(ctx, "syncing", nfs3.ProcCommit, &nfs3.CommitArgs{File: s.file}, &commit)
	}
	if !ok {
		return r
	}
	return wrote(res.Count, commit.Verf == res.Verf)
}

func (s *session3) read(ctx context.Context) doctor.Result {
	var res nfs3.ReadRes
	if r, ok := s.do(ctx, "reading", nfs3.ProcRead, &nfs3.ReadArgs{File: s.file, Count: 2 * uint32(len(content))}, &res); !ok {
		return r
	}
	return readBack(res.Data)
}

func (s *session3) remove(ctx context.Context) doctor.Result {
	name := s.name
	s.name = nil
	var res nfs3.WccRes
	if r, ok := s.do(ctx, "removing "+string(name), nfs3.ProcRemove, &nfs3.DirOpArgs{Dir: s.root, Name: name}, &res); !ok {
		return r
	}
	return doctor.Good("the file was removed")
}

// close removes the test file if a step has failed since it was made, and closes the connections.
func (s *session3) close() {
	if s.name != nil {
		ctx, cancel := context.WithTimeout(context.Background(), goodbye)
		defer cancel()
		s.remove(ctx)
	}
	for _, c := range []*rpc.Client{s.nfs, s.mountd} {
		if c != nil {
			_ = c.Close() // it never fails
		}
	}
}
