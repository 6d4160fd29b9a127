package inode

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/locate"
)

// Describe returns the attributes of a name in the directory, and appends its
// handle, like Lookup. The thread needs the right to search the directory.
func (f *File) Describe(name, handle []byte) (disk.Attr, []byte, error) {
	a, handle, _, err := f.describe(name, handle)
	return a, handle, err
}

// lookUp is describe for a file whose name does not tell enough.
func (f *File) lookUp(name, handle []byte) (disk.Attr, []byte, *locate.CachedHandle, error) {
	child, err := f.Lookup(name)
	if err != nil {
		return disk.Attr{}, handle, nil, err
	}
	defer child.Close()
	at := len(handle)
	handle = f.opener.key.AppendHandle(handle, f.volumeIn(name), child.ID)
	var empty byte
	var st unix.Statx_t
	if err := disk.Statx(child.fd, &empty, unix.AT_EMPTY_PATH, describing, &st); err == nil {
		child.Attr.Birth = disk.BirthOf(&st)
		if lasting(&st) {
			d := described(&st, f.volumeIn(name))
			f.opener.handles.Put(&d, handle[at:])
		}
	}
	return child.Attr, handle, nil, nil
}

// describe is Describe. If the file's handle was cached, known has it.
func (f *File) describe(name, handle []byte) (a disk.Attr, _ []byte, known *locate.CachedHandle, err error) {
	var path [unix.NAME_MAX + 1]byte // ends with 0
	if f.Volume.Files.Mount() == 0 || !disk.ValidName(name) || copy(path[:unix.NAME_MAX], name) < len(name) {
		return f.lookUp(name, handle)
	}
	index := f.Volume.Files.Observe()
	var st unix.Statx_t
	err = disk.Statx(f.fd, &path[0], unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, describing, &st)
	if errors.Is(err, unix.ENOENT) {
		return a, handle, nil, unix.ENOENT
	}
	if err != nil || st.Mnt_id != f.Volume.Files.Mount() {
		return f.lookUp(name, handle)
	}
	ino := f.Volume.FS.Number(disk.InodeOfStatx(&st))
	index.Saw(f.fd, f.Attr.Ino, name, ino, st.Mode&unix.S_IFMT == unix.S_IFDIR)
	at := len(handle)
	d := described(&st, f.volumeIn(name))
	known = f.opener.handles.Get(&d)
	switch {
	case known != nil:
		handle = append(handle, known.Handle()...)
	case f.Volume.Files.RootID().ByInode():
		if st.Mask&unix.STATX_BTIME == 0 || !f.Volume.Files.Holds(&st) {
			return f.lookUp(name, handle)
		}
		handle = f.opener.key.AppendHandle(handle, d.Volume, disk.InodeID(ino, &st))
		if lasting(&st) {
			f.opener.handles.Put(&d, handle[at:])
		}
	case f.Volume.FS.Type == 0:
		return f.lookUp(name, handle)
	default:
		// The name may have a new file by now, with a different number as long as the old
		// file exists. If the old one is removed, the new one may have the same number:
		// then the attributes and the handle are of different files. That entry of the
		// cache is never found, because it has the birth time of the removed file.
		id, err := f.Volume.Files.Identify(f.fd, name)
		if err != nil || f.Volume.FS.NumberIn(&id) != ino {
			return f.lookUp(name, handle)
		}
		handle = f.opener.key.AppendHandle(handle, d.Volume, id)
		if lasting(&st) {
			f.opener.handles.Put(&d, handle[at:])
		}
	}
	a = f.Volume.FS.AttrOfStatx(&st)
	if known != nil {
		known.Saw(&a)
	}
	return a, handle, known, nil
}

// volumeIn returns the number of the volume in the handle of a name in the directory: a snapshot is one of its own.
func (f *File) volumeIn(name []byte) uint64 {
	if id, ok := f.Volume.NumberOf(name); ok && f.IsRoot() {
		return id
	}
	return f.Volume.ID
}

// Birth is when the file was made, in nanoseconds since 1970, or 0 where the disk does not know. It never changes, so it takes a
// system call only once, as long as the file is kept open.
func (f *File) Birth() int64 {
	if f.Attr.Birth != 0 {
		return f.Attr.Birth
	}
	if f.cached != nil {
		if born := f.cached.born.Load(); born != 0 {
			return born
		}
	}
	var empty byte
	var st unix.Statx_t
	if disk.Statx(f.fd, &empty, unix.AT_EMPTY_PATH, unix.STATX_BTIME, &st) != nil {
		return 0
	}
	born := disk.BirthOf(&st)
	if f.cached != nil {
		f.cached.born.Store(born)
	}
	return born
}

// describing is the mask for statx(2).
const describing = unix.STATX_BASIC_STATS | unix.STATX_BTIME | unix.STATX_MNT_ID

// bornBefore is the minimum age of a file for its handle to be cached: files created
// within a tick of the kernel's clock have the same birth time.
const bornBefore = 100 * time.Millisecond

// lasting reports whether no other file can ever have the same locate.BirthKey.
func lasting(st *unix.Statx_t) bool {
	return st.Mask&unix.STATX_BTIME != 0 && time.Since(time.Unix(st.Btime.Sec, int64(st.Btime.Nsec))) > bornBefore
}

func described(st *unix.Statx_t, volume uint64) locate.BirthKey {
	return locate.BirthKey{Volume: volume, Device: unix.Mkdev(st.Dev_major, st.Dev_minor), Ino: st.Ino, Sec: st.Btime.Sec, Nsec: st.Btime.Nsec}
}
