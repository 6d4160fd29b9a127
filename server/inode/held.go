package inode

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
)

// Held is a regular file that a client holds open, from an OPEN to its CLOSE: its data
// can be used through it although the file was removed. It does not keep the export from ending; then
// nobody can use it.
type Held struct {
	opener     *Opener
	descriptor *descriptor
	grants     grants
}

// HeldMax is how many files clients should hold at most: a quarter of the descriptors that the
// process may have, so that those of other calls, and connections, are left.
func HeldMax() int { return int(min(descriptorsMax()/4, 1<<30)) }

// HeldIn returns how many files of a volume clients have open, or are just removing or linking.
func (o *Opener) HeldIn(volume uint64) (n int) {
	o.inodes.each(func(i *inode) {
		if i.key.volume == volume && i.held > 0 {
			n++
		}
	})
	return n
}

// Hold keeps the file open until Held.Close. The file is open with UseRead or UseWrite, or
// made by this call with Create; then it is open with UseWrite from here on.
func (f *File) Hold() *Held {
	if f.created {
		f.created, f.use = false, UseWrite
	}
	f.cached.retain()
	f.opener.inodes.use(f.key())
	f.ofHeld = true
	f.by = &Held{opener: f.opener, descriptor: f.cached}
	return f.by
}

// Created reports whether the file was made by this call with Create, and can be held as it is.
func (f *File) Created() bool { return f.created }

// Close ends it. It must be called once, on any goroutine.
func (h *Held) Close() {
	h.opener.release(h.descriptor.inode) // first: the space is freed with the last descriptor
	h.opener.inodes.release(h.descriptor)
}

// Volume returns the volume that the file is in.
func (h *Held) Volume() *exports.Volume { return h.descriptor.volume }

// File returns the file for one call, which closes it. The error is ESTALE if the export
// has ended.
func (h *Held) File() (*File, error) {
	if !h.descriptor.volume.Begin() {
		return nil, unix.ESTALE
	}
	h.descriptor.retain()
	f := h.opener.newCached(h.descriptor.volume, h.descriptor.inode.key.id, h.descriptor.use, h.descriptor)
	f.ofHeld, f.by = true, h
	return f, nil
}

// Where returns the file's path below the root of its volume, empty if the kernel does not
// know it, and its inode number. A file that was removed has the path that it had.
func (h *Held) Where() (path string, inode uint64, removed bool) {
	v := h.Volume()
	if !v.Begin() {
		return "", 0, false
	}
	defer v.Done()
	fd := h.descriptor.fd
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", 0, false
	}
	removed = st.Nlink == 0 || st.Nlink == 1 && h.descriptor.inode.orphan.Load()
	named, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return "", st.Ino, removed
	}
	top, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", v.Files.Root.Fd()))
	if err != nil {
		return "", st.Ino, removed
	}
	path, below := strings.CutPrefix(named, strings.TrimSuffix(top, "/")+"/")
	if !below {
		return "", st.Ino, removed
	}
	if removed {
		path = strings.TrimSuffix(path, " (deleted)")
	}
	return path, st.Ino, removed
}

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
