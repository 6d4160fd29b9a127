package nfscheck

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"

	"github.com/podnas/podnas/doctor"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
)

// content is the content of the test file.
const content = "podnas doctor was here\n"

func (s *session) do(ctx context.Context, proc uint32, args rpc.Args, res result) (doctor.Result, bool) {
	return s.call(ctx, s.nfs, nfs3.Program, nfs3.Version, proc, args, res)
}

// who describes the user that writes.
func (s *session) who() string {
	return fmt.Sprintf("uid %d, gid %d, groups %v", s.mount.UID, s.mount.GID, s.mount.Groups)
}

// refused explains a status.
func (s *session) refused(doing string, status nfs3.Status) doctor.Result {
	return s.explain(fmt.Sprintf("%s: %s", doing, status), nfs4.Status(status))
}

// explain says what to do about an error: version 4 has those of version 3, by the same
// numbers (RFC 8881 section 15.1).
func (s *session) explain(says string, status nfs4.Status) doctor.Result {
	switch status {
	case nfs4.ErrAccess, nfs4.ErrPerm:
		if s.attr.Present {
			a := &s.attr.Attr
			says += fmt.Sprintf("; the volume's root directory belongs to %d:%d and has mode %04o, the caller is %s", a.UID, a.GID, a.Mode&0o7777, s.who())
		}
		return doctor.Fail("run the pod as a user that may write (securityContext.runAsUser, or supplementalGroups with the directory's group), or chmod or chgrp the directory as root; for new volumes set the class's gid or mode. With rootSquash, root is the anonymous user: use --uid",
			"%s", says)
	case nfs4.ErrNoSpc, nfs4.ErrDQuot:
		return doctor.Fail("remove files, or raise the claim's request (its class needs allowVolumeExpansion)", "%s: the volume, or the whole disk, is full", says)
	case nfs4.ErrROFS:
		return doctor.Fail("either the volume's class sets readOnly, or podnas's disk is read-only: run podnas doctor in podnas's pod", "%s: nothing can be written", says)
	case nfs4.ErrStale, nfs4.ErrBadHandle:
		return doctor.Fail("check with podnas volume list, in podnas's pod, whether the volume still exists", "%s: the volume disappeared during the test", says)
	case nfs4.ErrIO:
		return doctor.Fail("the disk has errors: see podnas's log and the kernel's log of its node", "%s", says)
	}
	return doctor.Fail("podnas's log says more", "%s", says)
}

func (s *session) fsinfo(ctx context.Context) doctor.Result {
	var res nfs3.FsinfoRes
	if r, ok := s.do(ctx, nfs3.ProcFsinfo, &nfs3.FsinfoArgs{Object: s.root}, &res); !ok {
		return r
	}
	if res.Status != nfs3.OK {
		return s.refused("FSINFO of the root directory", res.Status)
	}
	var attr nfs3.GetattrRes
	if r, ok := s.do(ctx, nfs3.ProcGetattr, &nfs3.GetattrArgs{Object: s.root}, &attr); !ok {
		return r
	}
	if attr.Status != nfs3.OK {
		return s.refused("GETATTR of the root directory", attr.Status)
	}
	s.attr = nfs3.PostOpAttr{Present: true, Attr: attr.Attr}
	return doctor.Good("the root directory belongs to %d:%d and has mode %04o; one call reads up to %d KiB or writes up to %d",
		attr.Attr.UID, attr.Attr.GID, attr.Attr.Mode&0o7777, res.RtMax>>10, res.WtMax>>10)
}

func (s *session) fsstat(ctx context.Context) doctor.Result {
	var res nfs3.FsstatRes
	if r, ok := s.do(ctx, nfs3.ProcFsstat, &nfs3.FsstatArgs{Object: s.root}, &res); !ok {
		return r
	}
	if res.Status != nfs3.OK {
		return s.refused("FSSTAT", res.Status)
	}
	return judgeSpace(res.ABytes, res.TBytes)
}

func judgeSpace(free, total uint64) doctor.Result {
	says := fmt.Sprintf("%d of %d MiB are free", free>>20, total>>20)
	if free < total/20 {
		return doctor.Warn("remove files, or raise the claim's request (its class needs allowVolumeExpansion)", "the volume is nearly full: %s", says)
	}
	return doctor.Good("%s", says)
}

func (s *session) create(ctx context.Context) doctor.Result {
	name := []byte(".podnas-doctor-" + rand.Text()[:12])
	where := nfs3.DirOpArgs{Dir: s.root, Name: name}
	args := nfs3.CreateArgs{Where: where, Mode: nfs3.Guarded}
	args.Attr.Mode = nfs3.SetUint32{Set: true, Value: 0o600}
	var res nfs3.CreateRes
	if r, ok := s.do(ctx, nfs3.ProcCreate, &args, &res); !ok {
		return r
	}
	if res.Status != nfs3.OK {
		return s.refused("creating a file as "+s.who(), res.Status)
	}
	s.name = name
	if s.file = bytes.Clone(res.Object); s.file == nil {
		var found nfs3.LookupRes
		if r, ok := s.do(ctx, nfs3.ProcLookup, &where, &found); !ok {
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
func (s *session) write(ctx context.Context) doctor.Result {
	var res nfs3.WriteRes
	args := nfs3.WriteArgs{File: s.file, Count: uint32(len(content)), Stable: nfs3.Unstable, Data: []byte(content)}
	r, ok := s.do(ctx, nfs3.ProcWrite, &args, &res)
	if ok && res.Status != nfs3.OK {
		r, ok = s.refused("writing", res.Status), false
	}
	var commit nfs3.CommitRes
	if ok {
		r, ok = s.do(ctx, nfs3.ProcCommit, &nfs3.CommitArgs{File: s.file}, &commit)
	}
	switch {
	case !ok:
		s.remove(ctx)
		return r
	case commit.Status != nfs3.OK:
		s.remove(ctx)
		return s.refused("syncing", commit.Status)
	case commit.Verf != res.Verf:
		return wroteAgain()
	}
	return doctor.Good("%d bytes were written and synced", res.Count)
}

// wroteAgain is for a write verifier that has changed.
func wroteAgain() doctor.Result {
	return doctor.Warn("see podnas's log. You need not do anything: the kernel writes again what may be lost", "the server was restarted, or a sync failed, between write and sync")
}

func readOther() doctor.Result {
	return doctor.Fail("stop all programs that write to the volume, and check podnas's disk", "the data read differs from the data written")
}

func (s *session) read(ctx context.Context) doctor.Result {
	var res nfs3.ReadRes
	r, ok := s.do(ctx, nfs3.ProcRead, &nfs3.ReadArgs{File: s.file, Count: 2 * uint32(len(content))}, &res)
	switch {
	case !ok:
	case res.Status != nfs3.OK:
		r = s.refused("reading", res.Status)
	case string(res.Data) != content:
		r = readOther()
	default:
		return doctor.Good("the data was read back")
	}
	s.remove(ctx)
	return r
}

func (s *session) remove(ctx context.Context) doctor.Result {
	var res nfs3.WccRes
	if r, ok := s.do(ctx, nfs3.ProcRemove, &nfs3.DirOpArgs{Dir: s.root, Name: s.name}, &res); !ok {
		return r
	}
	if res.Status != nfs3.OK {
		return s.refused(fmt.Sprintf("removing %s", s.name), res.Status)
	}
	return doctor.Good("the file was removed")
}
