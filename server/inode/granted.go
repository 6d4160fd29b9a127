package inode

import (
	"sync/atomic"
	"time"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
)

// A client may do READ and WRITE by an open as another user than the one that opened the file, so each is asked
// for: Linux's own server does so, with the owner's override (nfs4_check_file in fs/nfsd/nfs4state.c). To ask the kernel
// takes a thread that acts as the caller, so the last answer is remembered with the open.

// grantKept is how long an answer is used at most of a file that changes otherwise: an ACL, which is set on the disk
// itself, does not show in the mode.
const grantKept = time.Second

// grants are what callers may do by an open. They are used by several calls at a time.
type grants struct{ read, write atomic.Pointer[grant] }

// grant is that a caller may read or write a file. It does not change.
type grant struct {
	id             actas.Identity
	mode, uid, gid uint32
	ctime          time.Time // zero: too young to tell
	asked          time.Time
}

func (g *grants) of(mode uint32) *atomic.Pointer[grant] {
	if mode&MayWrite != 0 {
		return &g.write
	}
	return &g.read
}

// Grant remembers that a caller may read or write the file, MayRead or MayWrite, with the attributes from before the
// kernel was asked.
func (h *Held) Grant(id *actas.Identity, mode uint32, a *disk.Attr) {
	g := &grant{id: *id, mode: a.Mode, uid: a.UID, gid: a.GID, asked: time.Now()}
	if g.asked.Sub(a.Ctime) > tickMax {
		g.ctime = a.Ctime
	}
	h.grants.of(mode).Store(g)
}

// granted reports whether that is remembered, and so by the attributes that the file has now.
func (h *Held) granted(id *actas.Identity, mode uint32, a *disk.Attr) bool {
	g := h.grants.of(mode).Load()
	return g != nil && g.mode == a.Mode && g.uid == a.UID && g.gid == a.GID && g.id == *id &&
		(g.ctime.Equal(a.Ctime) || time.Since(g.asked) < grantKept)
}

// Granted reports whether it is known that a caller may read or write a file that is open by a Held, with the
// attributes that it has now.
func (f *File) Granted(id *actas.Identity, mode uint32, a *disk.Attr) bool {
	return f.by != nil && f.by.granted(id, mode, a)
}

// Grant is Held.Grant, if there is one.
func (f *File) Grant(id *actas.Identity, mode uint32, a *disk.Attr) {
	if f.by != nil {
		f.by.Grant(id, mode, a)
	}
}
