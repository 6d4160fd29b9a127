package inode

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
)

// Entry is a name in a directory.
type Entry struct {
	Ino uint64
	// Cookie is the position after this entry: the kernel's d_off, which stays valid
	// while names are created and removed.
	Cookie uint64
	// Name is valid until the next call of Next.
	Name []byte

	listing *Listing
}

// Listing reads a directory. It is used where List was called, as its user, and must be closed
// before its File.
type Listing struct {
	dir *File
	as  actas.Thread
	own disk.Descriptor
	buf []byte // what getdents64(2) gave and Next has not yet
	mem []byte

	checked bool  // whether search is known
	search  bool  // attributes may be remembered, and the caller may search the directory
	read    int64 // when buf was read, in nanoseconds since 1970
	changed int64 // the directory's ctime after that
}

// List opens the directory for reading after a cookie; 0 is the start. The caller
// needs the right to read it. It is read in pieces of size bytes, at least 4 KiB.
func (f *File) List(as actas.Thread, cookie uint64, size int) (*Listing, error) {
	as.MustAct()
	if !f.Attr.IsDir() {
		return nil, unix.ENOTDIR
	}
	size = max(size, 4096)
	fd, err := unix.Open(f.proc(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	l := f.opener.spareListing.Get().(*Listing)
	*l = Listing{dir: f, as: as, own: disk.Owned(fd), mem: slices.Grow(l.mem[:0], size)[:size]}
	if cookie != 0 {
		if _, err := unix.Seek(fd, int64(cookie), 0); err != nil {
			l.Close()
			return nil, err
		}
	}
	return l, nil
}

// Close releases the listing and l, which is reused.
func (l *Listing) Close() {
	l.own.Close()
	l.dir.opener.spareListing.Put(l)
}

// look looks at the directory after a part of it was read.
func (l *Listing) look() {
	l.read = time.Now().UnixNano()
	a, err := look(l.dir.Volume, l.own.FD(), nil)
	if err != nil {
		l.search, l.checked = false, true
		return
	}
	l.changed = a.Ctime.UnixNano()
	l.dir.WasRead(&a)
}

// maySearch reports whether attributes of files in the directory may be remembered, and the caller
// has the right to see them.
func (l *Listing) maySearch() bool {
	if !l.checked {
		l.search, l.checked = l.dir.opener.remembers(l.dir.Volume) && l.dir.Access(l.as, MayExec) == nil, true
	}
	return l.search
}

// Next returns the next entry; ok is false at the end.
func (l *Listing) Next() (e Entry, ok bool, err error) {
	if len(l.buf) == 0 {
		n, err := unix.Getdents(l.own.FD(), l.mem)
		if n <= 0 || err != nil {
			return Entry{}, false, err
		}
		l.buf = l.mem[:n]
		l.look()
	}
	// struct linux_dirent64, getdents64(2).
	const nameAt = 19
	b := l.buf
	size := binary.NativeEndian.Uint16(b[16:])
	e = Entry{
		Ino:    binary.NativeEndian.Uint64(b),
		Cookie: binary.NativeEndian.Uint64(b[8:]),
		Name:   b[nameAt:size],

		listing: l,
	}
	if end := bytes.IndexByte(e.Name, 0); end >= 0 {
		e.Name = e.Name[:end]
	}
	l.buf = b[size:]
	if v := l.dir.Volume; v.FS.Overlay { // whose directories have the numbers of their layer
		if _, st, _ := (disk.ByInode{FS: &v.FS}).Look(l.own.FD(), string(e.Name)); st.Ino != 0 {
			e.Ino = st.Ino
		}
	}
	return e, true, nil
}
