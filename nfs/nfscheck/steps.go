package nfscheck

import (
	"crypto/rand"
	"fmt"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/nfs/nfs4"
)

// content is the content of the test file.
const content = "podnas doctor was here\n"

// newName returns a name for the test file.
func newName() string { return ".podnas-doctor-" + rand.Text()[:12] }

// who describes the user that writes.
func (s *session) who() string {
	return fmt.Sprintf("uid %d, gid %d, groups %v", s.mount.UID, s.mount.GID, s.mount.Groups)
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

// noAnswer is the result of a call that failed.
func noAnswer(err error) doctor.Result {
	return doctor.Fail("podnas's log says more", "the call got no valid answer: %v", reason(err))
}

func judgeSpace(free, total uint64) doctor.Result {
	says := fmt.Sprintf("%d of %d MiB are free", free>>20, total>>20)
	if free < total/20 {
		return doctor.Warn("remove files, or raise the claim's request (its class needs allowVolumeExpansion)", "the volume is nearly full: %s", says)
	}
	return doctor.Good("%s", says)
}

// wrote is the result of a write that was synced. same is whether the write verifier has not changed meanwhile.
func wrote(n uint32, same bool) doctor.Result {
	if !same {
		return doctor.Warn("see podnas's log. You need not do anything: the kernel writes again what may be lost", "the server was restarted, or a sync failed, between write and sync")
	}
	return doctor.Good("%d bytes were written and synced", n)
}

// readBack is the result of reading the test file.
func readBack(data []byte) doctor.Result {
	if string(data) != content {
		return doctor.Fail("stop all programs that write to the volume, and check podnas's disk", "the data read differs from the data written")
	}
	return doctor.Good("the data was read back")
}
