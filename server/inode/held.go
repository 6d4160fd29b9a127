package inode

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

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
