package inode

import (
	"cmp"
	"math"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/space"
)

// victim is a file that is about to lose a name. If that is its last name, its
// cached descriptors must be closed to free its space, and its charge ends.
type victim struct {
	dir    *File
	name   string
	id     disk.FileID     // zero: nothing there, or nothing that is open or could be
	cached *descriptor     // of the file, nil: none
	own    disk.Descriptor // of the file if cached is nil, or none
	taking space.Taking
	held   *inode // nil: no client has it open
	linked bool   // held got its name for this
	same   bool   // it does not lose the name, because a rename gives it the same
	small  bool   // the kernel frees it in a moment, as is known before the change
}

// removed is what is still open of a file that has lost a name. The kernel frees a file with its last descriptor, and that
// takes as long as the file has extents, or data in memory: TestRemoveOfManyExtents. So nobody else may wait for it:
// LockedNames.Unlock closes this, and no change is under way then, which a snapshot would wait for. The call itself waits:
// its client finds the space free.
type removed struct {
	descriptors [uses]*descriptor // from the cache, where nobody finds them any more
	cached      *descriptor       // a use of one that is among these, or that others use, too
	left        *descriptor       // as cached
	own         disk.Descriptor
	held        *inode
	next        *removed // from the same directory
}

// victim begins it, before the name is removed.
func (f *File) victim(name string) victim {
	v := victim{dir: f, name: name}
	v.id, _ = f.Volume.Files.Identify(f.fd, []byte(name))
	v.small = f.Volume.Account == nil && f.opener.remembersSmall(f.Volume, &v.id)
	return v
}

// take opens the file, if it may take long to free or the server counts, and looks at it where the server counts.
func (v *victim) take() {
	if v.id.IsZero() || v.small {
		return
	}
	a := v.dir.Volume.Account
	if v.cached = v.dir.opener.inodes.get(v.dir.Volume, &v.id, UseAttr); v.cached == nil {
		if a == nil && v.isSmall() {
			return
		}
		var err error
		if v.own, err = disk.OpenEntry(v.dir.fd, v.name); err != nil {
			return
		}
	}
	switch {
	case a == nil:
	case v.cached == nil:
		v.taking = a.Take(v.own.FD())
	case v.cached.charge != nil:
		v.taking = v.cached.charge.Take(v.cached.fd)
	default:
		v.taking = a.Take(v.cached.fd)
	}
}

// smallMost is the size of a file that the kernel frees in a moment.
const smallMost = 64 << 10

// remembersSmall reports whether a file is known to be small. What somebody has changed directly on the disk does not matter.
func (o *Opener) remembersSmall(v *exports.Volume, id *disk.FileID) bool {
	ino := o.numberOf(v, id)
	if ino == 0 {
		return false
	}
	a, r := o.handles.AttrsOf(&v.Files, ino, o.versions.at(ino).Load(), 0, math.MaxInt64)
	return a != nil && locate.IDIn(r.Handle()) == *id && a.Size <= smallMost && a.Used <= smallMost
}

// isSmall looks whether the file is small, where that is not remembered. That costs a removal 1 us; to open and close each file,
// as if it were not, costs 3.
func (v *victim) isSmall() bool {
	var path [unix.NAME_MAX + 1]byte // ends with 0
	var st unix.Statx_t
	if copy(path[:unix.NAME_MAX], v.name) < len(v.name) {
		return false
	}
	err := disk.Statx(v.dir.fd, &path[0], unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_SIZE|unix.STATX_BLOCKS, &st)
	return err == nil && st.Size <= smallMost && st.Blocks*512 <= smallMost
}

// makeOrphan gives a file that clients hold open another name, if it is about to lose its last one. It
// does nothing where that fails, as on a full disk: then the file stays as long as this process has it
// open. Not checked: taken unlocks the names, if there are any.
//
// +checklocksignore
func (v *victim) makeOrphan(as actas.Thread, name string) {
	dir := v.dir
	if v.id.IsZero() {
		return
	}
	if v.held = dir.opener.removing(fileKey{dir.Volume.ID, v.id}); v.held == nil {
		return
	}
	v.held.lastName.Lock()
	if dir.Access(as, MayWrite|MayExec) == nil { // else it will not be removed
		v.linked = dir.opener.linkOrphan(v.held, dir, name)
	}
}

// taken ends it. err is the result of removing the name. Not checked: makeOrphan has locked the names, if there are any.
//
// +checklocksignore
func (v *victim) taken(err error) error {
	o := v.dir.opener
	if v.linked && err != nil {
		o.unlinkOrphan(v.held)
	}
	v.taking.Done(err)
	r := removed{cached: v.cached, own: v.own, held: v.held, next: v.dir.removed}
	if err == nil {
		r.descriptors, r.left = o.inodes.takeOutIdle(v.dir.Volume, v.id)
		if r.left != nil && !r.left.hasName() {
			for use, f := range o.inodes.takeOut(v.dir.Volume, v.id) {
				r.descriptors[use] = cmp.Or(f, r.descriptors[use])
			}
		}
	}
	if v.held != nil {
		v.held.lastName.Unlock()
	}
	if r != (removed{next: r.next}) {
		v.dir.removed = r.onHeap()
	}
	return err
}

// onHeap is a copy: only what has something open takes memory.
func (r removed) onHeap() *removed { return &r }

// close closes what is open of all of them; nil is nothing. No lock is held, and no change is under way.
func (r *removed) close(o *Opener) {
	for ; r != nil; r = r.next {
		if r.held != nil {
			o.release(r.held)
		}
		for _, f := range r.descriptors {
			f.close()
		}
		for _, f := range [...]*descriptor{r.cached, r.left} {
			if f != nil {
				o.inodes.release(f)
			}
		}
		r.own.Close()
	}
}
