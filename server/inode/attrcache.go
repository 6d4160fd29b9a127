package inode

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/locate"
)

// The attributes of files are remembered next to their handles, so that a listing, or a GETATTR,
// needs no system call for each file, a LOOKUP none for the directory, and ACCESS and READ none for the attributes. They
// are used only if all of this holds:
//
//   - No call has begun to change the file since they were read: versions.
//   - They were read at most attrsKept ago: somebody may change files directly on the disk.
//   - In a listing, the directory has not changed since they were read (Listing.changed), so the
//     name still belongs to the file with that inode number, and nobody has replaced it.
//   - In a listing, the caller may search the directory, as the kernel says (Listing.maySearch).
//
// The kernel itself changes what a file takes on the disk (Attr.Used) when it writes it back;
// that is seen after attrsKept as well.

// attrsKept is how long attributes are used.
const attrsKept = time.Second

// atimeSettles is for how long after a READ has changed the atime nothing is remembered of the file.
const atimeSettles = attrsKept + tickMax

// keepsAtime reports whether reading a file with these attributes does not change its atime, and has not
// just done so. With relatime the first time after a change does, and one each day.
func keepsAtime(d *disk.FS, a *disk.Attr, now int64) bool {
	age := time.Duration(now - a.Atime.UnixNano())
	const day = 24 * time.Hour
	return age >= atimeSettles && (d.NoAtime || d.RelAtime && a.Atime.After(a.Mtime) && a.Atime.After(a.Ctime) && age < day-time.Minute)
}

// WasRead forgets what is remembered of a file whose data, names or target was read, if that has
// changed its atime. a is from afterwards. With noatime it never does, with relatime rarely:
// mount(8).
func (f *File) WasRead(a *disk.Attr) {
	if time.Since(a.Atime) < atimeSettles {
		f.opener.versions.of(f.Volume, &f.ID).Add(oneChange)
	}
}

// remembers reports whether attributes of files of the volume are remembered. The inode number that
// a directory has for a name must identify the file: on btrfs it does not.
func (o *Opener) remembers(v *exports.Volume) bool {
	return !o.NoAttrs && v.Files.Mount() != 0 && v.FS.Numbered
}

// numberOf returns the inode number of a file whose attributes are remembered, 0 if they never are.
func (o *Opener) numberOf(v *exports.Volume, id *disk.FileID) uint64 {
	if !o.remembers(v) || !v.Files.HasBirths() {
		return 0
	}
	return v.FS.NumberIn(id)
}

// remembered returns the attributes of the file with an inode number, and its handle; nil: they are
// not remembered, or can't be used now. They are from after a time, if that is not 0.
func (o *Opener) remembered(v *exports.Volume, ino uint64, now, after int64) (*locate.CachedAttrs, *locate.CachedHandle) {
	return o.handles.AttrsOf(&v.Files, ino, o.versions.at(ino).Load(), max(after, now-int64(attrsKept)), now)
}

// remember remembers the attributes of an open file whose handle is cached. It may have none, as nobody has looked up its
// name: a client has made it, or mounted it. Then surely has the handle be cached, too.
func (o *Opener) remember(f *File, version uint64, now int64, surely bool) {
	r := o.handles.Of(&f.Volume.Files, f.Attr.Ino, &f.ID)
	if r == nil && surely {
		var empty byte
		var st unix.Statx_t
		if err := disk.Statx(f.fd, &empty, unix.AT_EMPTY_PATH, describing, &st); err == nil && lasting(&st) {
			d := described(&st, f.Volume.ID)
			o.handles.Put(&d, f.Handle())
			r = o.handles.Of(&f.Volume.Files, f.Attr.Ino, &f.ID)
		}
	}
	if r != nil {
		o.rememberAs(r, &f.Attr, f.Volume, version, now)
	}
}

// rememberAs remembers attributes that last, with the change attribute that goes with them: as long
// as they are valid it does not move.
func (o *Opener) rememberAs(r *locate.CachedHandle, a *disk.Attr, v *exports.Volume, version uint64, now int64) {
	c := &locate.CachedAttrs{Attr: *a, Volume: &v.Files, Version: version, At: now}
	c.Change = o.changes.old(fileKey{v.ID, locate.IDIn(r.Handle())}, a.Ctime.UnixNano())
	c.Birth = r.Birth()
	r.Attrs.Store(c)
}

// lasts reports whether attributes are worth remembering, and may be: the version is from before
// they were read. A file that is being changed will change again, and Change must look at it. One that
// was removed is there only for who has it open.
func lasts(a *disk.Attr, version uint64, now int64) bool {
	return a.Nlink > 0 && version&changesAtOnce == 0 && now-a.Ctime.UnixNano() >= int64(tickMax)
}

// Describe is File.Describe for an entry of a listing.
func (e Entry) Describe(handle []byte) (disk.Attr, []byte, error) {
	l, f := e.listing, e.listing.dir
	o := f.opener
	if !l.maySearch() {
		return f.Describe(e.Name, handle)
	}
	if a, r := o.remembered(f.Volume, e.Ino, l.read, l.changed+int64(tickMax)); a != nil {
		return a.Attr, append(handle, r.Handle()...), nil
	}
	version := o.versions.at(e.Ino).Load()
	a, handle, r, err := f.describe(e.Name, handle)
	if r != nil && a.Ino == e.Ino && lasts(&a, version, l.read) {
		o.rememberAs(r, &a, f.Volume, version, l.read)
	}
	return a, handle, err
}

// openRecent is open with Recent, maybe AtOnce. With an error it may return a File to close, as those that follow.
func (o *Opener) openRecent(v *exports.Volume, id disk.FileID, how How) (f *File, err error) {
	ino := o.numberOf(v, &id)
	if ino == 0 {
		return o.openFile(v, id, UseAttr, how)
	}
	now := time.Now().UnixNano()
	if a, r := o.remembered(v, ino, now, 0); a != nil && locate.IDIn(r.Handle()) == id {
		if how&AtOnce != 0 {
			f = o.newFile(v, id, UseAttr, disk.Descriptor{})
		} else if cached := o.inodes.get(v, &id, UseAttr); cached != nil {
			f = o.newCached(v, id, UseAttr, cached)
		}
		if f != nil {
			f.Attr = a.Attr
			return f, o.mustBeInside(f, how)
		}
	}
	version := o.versions.at(ino).Load()
	if f, err = o.openFile(v, id, UseAttr, how); err == nil && lasts(&f.Attr, version, now) {
		o.remember(f, version, now, how&AtOnce != 0 || f.Attr.IsDir() || f.cached != nil && f.cached.looked.Swap(true))
	}
	return f, err
}

// Recent is Stat of a file that was just read, up to an offset: the attributes are remembered ones, if
// reading does not change them. They are remembered when it is called again.
func (f *File) Recent(end int64) (disk.Attr, error) {
	o, v := f.opener, f.Volume
	ino := o.numberOf(v, &f.ID)
	if ino == 0 || f.cached == nil {
		return f.Stat()
	}
	now := time.Now().UnixNano()
	if a, r := o.remembered(v, ino, now, 0); a != nil && locate.IDIn(r.Handle()) == f.ID && end <= a.Size && keepsAtime(&v.FS, &a.Attr, now) {
		return a.Attr, nil
	}
	version := o.versions.at(ino).Load()
	a, err := f.Stat()
	if err == nil && lasts(&a, version, now) && keepsAtime(&v.FS, &a, now) && f.cached.looked.Swap(true) {
		f.Attr = a
		o.remember(f, version, now, true)
	}
	return a, err
}
