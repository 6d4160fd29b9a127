package inode

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/durable"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/space"
)

// File is an open file of a volume, used by one call, on one goroutine at a time. The volume
// does not end while a File is open. Methods that get a Thread act as its user. Lookup, Describe and
// Lacks take the right to search the directory: call them in Users.As, or when it is known that
// the caller has that right. The others may run anywhere. Names are one component
// (ValidName). Errors are errnos.
type File struct {
	opener     *Opener
	Volume     *exports.Volume
	ID         disk.FileID
	Attr       disk.Attr // when it was opened with UseAttr, or made; with UseNames since StatLocked
	use        Use
	fd         int             // of own or cached
	own        disk.Descriptor // none if it is cached
	cached     *descriptor     // nil if it is not
	since      uint64          // durable.File.Sample
	isNew      bool            // made by this call
	created    bool            // and kept with a descriptor to write to it
	charge     *space.Charge   // if the call may change the file and the server counts
	ownsCharge bool            // f must release the charge, not cached
	names      *names          // with UseNames: the lock of the directory's names
	entered    *inode          // has names, unless cached has
	namesSeq   uint64          // of names, before Attr; never: Attr is not set
	removed    *removed        // what is still open of files that were removed from it; nil: nothing
	unsynced   []*descriptor   // of other files, to be synced when the directory's names are unlocked: see Opener.cache
	changed    bool            // by a method, since Attr
	ofHeld     bool            // it is a Held's, or what one holds
	by         *Held           // through which it is open; nil: none
	restoring  bool            // see Restoring
	together   *Together       // of the call, nil: each change is one for itself
}

// Close releases the file and f, which is reused. Call it once, when no sync of the file is
// pending.
func (f *File) Close() {
	f.removed.close(f.opener)
	f.opener.syncNow(f.unsynced...)
	f.leaveNames() // first: the object that has them is cached's
	if f.cached != nil {
		f.opener.inodes.release(f.cached)
	}
	f.own.Close()
	if f.ownsCharge {
		f.charge.Leave("")
	}
	opener, volume := f.opener, f.Volume
	*f = File{fd: -1}
	opener.spare.Put(f)
	volume.Done()
}

// AppendHandle appends the file's handle.
func (f *File) AppendHandle(b []byte) []byte {
	return f.opener.key.AppendHandle(b, f.Volume.ID, f.ID)
}

// Handle returns the file's handle.
func (f *File) Handle() []byte { return f.AppendHandle(make([]byte, 0, locate.HandleMax)) }

// isOrphan reports whether the file lost its last name while a client holds it.
func (f *File) isOrphan() bool {
	if f.cached != nil {
		return f.cached.inode.orphan.Load()
	}
	return f.opener.inodes.isOrphan(f.key())
}

// key returns the key of the file.
func (f *File) key() fileKey { return fileKey{f.Volume.ID, f.ID} }

// Stat returns the attributes. The error is ESTALE if the file was removed, even
// if it is still open somewhere, unless it is a Held's: then it has no links.
func (f *File) Stat() (disk.Attr, error) {
	orphan := f.isOrphan()
	a, err := look(f.Volume, f.fd, f.charge)
	if orphan && a.Nlink > 0 && f.isOrphan() { // twice: a removal that fails makes it an orphan only for a moment
		a.Nlink--
	}
	if err == nil && a.Nlink == 0 && !f.ofHeld {
		err = unix.ESTALE
	}
	if f.use.isData() && errors.Is(err, unix.ESTALE) {
		f.opener.inodes.drop(f.Volume, f.ID)
	}
	return a, err
}

// Latest sets Attr to the new attributes if a method has changed the file, and returns it. withChange is that of Create.
func (f *File) Latest(withChange bool) (_ disk.Attr, err error) {
	if f.changed {
		f.Attr, err = f.lookAt(withChange)
	}
	return f.Attr, err
}

// lookAt is Stat, which with withChange also sets the change attribute.
func (f *File) lookAt(withChange bool) (a disk.Attr, err error) {
	if !withChange {
		return f.Stat()
	}
	change, a, err := f.StatChange()
	a.Change = change
	return a, err
}

// Sync syncs data and metadata; if dataOnly, it omits the metadata that is not needed to read
// the data back. A directory's names are synced too. The error is also that of an earlier
// sync since the file was opened.
//
// Only regular files and directories can be synced; other types are on the disk when
// their directory is synced.
func (f *File) Sync(dataOnly bool) error {
	if ok, err := f.SyncHere(dataOnly); ok {
		return err
	}
	s := f.BeginSync(dataOnly, nil)
	return s.Wait()
}

// SyncHere is Sync on this goroutine, which shares the sync with no other file. If another goroutine
// already syncs the file, SyncHere does nothing, and ok is false.
func (f *File) SyncHere(dataOnly bool) (ok bool, err error) {
	if !f.canSync() {
		return true, nil
	}
	return f.opener.syncer.Here(f.toSync(), f.since, dataOnly)
}

// BeginSync has another goroutine sync the file for all calls that wait. Wait must be called, once. by
// is who will; nil: nobody is told.
func (f *File) BeginSync(dataOnly bool, by durable.Waiter) durable.Syncing {
	if !f.canSync() {
		return durable.Syncing{}
	}
	return f.opener.syncer.Begin(f.toSync(), f.since, dataOnly, by)
}

// ComesWithName reports whether a new file is on the disk when its directory is synced.
// Attributes set later, like times, or an ACL inherited from the directory, may be in
// another transaction.
func (f *File) ComesWithName() bool {
	switch {
	case !f.canSync():
		return true
	case !f.isNew || f.changed || !f.Volume.FS.Journal:
		return false
	}
	var attributes int
	var err error
	if f.created {
		attributes, err = unix.Flistxattr(f.fd, nil)
	} else { // it is open with O_PATH
		attributes, err = unix.Listxattr(f.proc(), nil)
	}
	return err == nil && attributes == 0
}

func (f *File) canSync() bool { return f.use != UseAttr || f.Attr.IsDir() || f.Attr.IsRegular() }

// toSync returns the descriptor with the calls that wait for it.
func (f *File) toSync() *durable.File {
	if f.cached != nil {
		return &f.cached.File
	}
	// Of f's descriptor, not shared.
	alone := &descriptor{opener: f.opener, volume: f.Volume, inode: &inode{key: f.key()}, use: UseAttr, fd: f.fd}
	alone.init()
	return &alone.File
}

// look returns the attributes of an open file, and settles its charge if it has one.
func look(v *exports.Volume, fd int, c *space.Charge) (disk.Attr, error) {
	var st unix.Stat_t
	if err := c.Stat(fd, &st, v.FS.Quick); err != nil {
		return disk.Attr{}, err
	}
	return v.FS.AttrOf(&st), nil
}

// IsRoot reports whether the file is the volume's root directory.
func (f *File) IsRoot() bool { return f.ID == *f.Volume.Files.RootID() }

// Permission bits for Access, access(2).
const (
	MayRead  = unix.R_OK
	MayWrite = unix.W_OK
	MayExec  = unix.X_OK
)

// Access asks the kernel whether a thread's user may do something with the file.
func (f *File) Access(as actas.Thread, mode uint32) error {
	as.MustAct()
	return disk.Access(f.fd, mode)
}

// proc is a path to the file for system calls that do not accept O_PATH
// descriptors.
func (f *File) proc() string { return disk.ProcPath(f.fd) }

// errRemoved is that a file was removed since it was opened by a name, which may be another file's by now.
var errRemoved = fmt.Errorf("removed since it was opened: %w", unix.ENOENT)

// openAt opens or creates a name in the directory. withChange is whether its Attr are to have the change attribute.
func (f *File) openAt(name []byte, flags int, mode uint32, resolve uint64, withChange bool) (*File, error) {
	var path [unix.NAME_MAX + 1]byte // ends with 0
	if copy(path[:unix.NAME_MAX], name) < len(name) {
		return nil, unix.ENAMETOOLONG
	}
	how := unix.OpenHow{
		Flags:   uint64(flags) | unix.O_CLOEXEC,
		Mode:    uint64(mode),
		Resolve: resolve | unix.RESOLVE_NO_MAGICLINKS,
	}
	index := f.Volume.Files.Observe()
	fd, _, errno := unix.Syscall6(unix.SYS_OPENAT2, uintptr(f.fd), uintptr(unsafe.Pointer(&path)),
		uintptr(unsafe.Pointer(&how)), unix.SizeofOpenHow, 0, 0)
	if errno != 0 {
		return nil, errno
	}
	d := disk.Owned(int(fd))
	if !f.Volume.Begin() {
		d.Close()
		return nil, unix.ESTALE
	}
	id, err := f.Volume.Files.Identify(d.FD(), nil)
	child := f.opener.newFile(f.Volume, id, UseAttr, d)
	child.restoring, child.together = f.restoring, f.together
	if err == nil {
		child.Attr, err = child.lookAt(withChange)
	}
	if errors.Is(err, unix.ESTALE) { // which would be said of the directory
		err = errRemoved
	}
	if err != nil {
		child.Close()
		return nil, err
	}
	index.Saw(f.fd, f.Attr.Ino, name, child.Attr.Ino, child.Attr.IsDir())
	return child, nil
}

// component refuses a name that the kernel would treat as a path. Callers have
// checked it already; this catches their mistakes.
func component(name string) error {
	if !disk.ValidName(name) {
		return unix.EINVAL
	}
	return nil
}

// Lookup opens a name in the directory; "." is the directory itself. The error is
// EACCES for a mount point.
func (f *File) Lookup(name []byte) (*File, error) {
	if string(name) != "." && !disk.ValidName(name) {
		return nil, unix.EINVAL
	}
	for again := 0; ; again++ {
		child, err := f.openAt(name, unix.O_PATH|unix.O_NOFOLLOW, 0, disk.Within, false)
		switch {
		case errors.Is(err, errRemoved) && again < lookAgain: // a name that others replace is always there
		case errors.Is(err, unix.EXDEV):
			return nil, unix.EACCES
		default:
			return child, err
		}
	}
}

// lookAgain is how often Lookup looks once more for a name that others replace, so that they can't keep it busy.
const lookAgain = 100

// Readlink returns the target of a symbolic link. The error is EINVAL for other
// types.
func (f *File) Readlink() ([]byte, error) {
	if !f.Attr.IsSymlink() {
		return nil, unix.EINVAL
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(f.fd, "", buf)
	if a, err := f.Stat(); err == nil {
		f.WasRead(&a)
	}
	return buf[:max(n, 0)], err
}

// Chmod sets the permission bits, setuid, setgid and sticky. The error is
// EOPNOTSUPP for a symbolic link.
func (f *File) Chmod(as actas.Thread, mode uint32) error {
	as.MustAct()
	if f.Attr.IsSymlink() {
		return unix.EOPNOTSUPP
	}
	f.changed = true
	return f.changeIt(func() error {
		return f.setMode(func() error { return f.chmod(mode) })
	})
}

// setMode does what sets the mode for a client.
func (f *File) setMode(do func() error) error {
	if m := &f.opener.modes; f.opener.table.Only != nil || m.some.Load() {
		return m.set(f.key(), do)
	}
	return do()
}

func (f *File) chmod(mode uint32) error {
	if f.isPath() {
		return unix.Chmod(f.proc(), mode)
	}
	return unix.Fchmod(f.fd, mode)
}

// isPath reports whether the descriptor may be one with O_PATH. One that is cached may be for more
// than the call's use.
func (f *File) isPath() bool {
	if f.cached != nil {
		return f.cached.use == UseAttr
	}
	return f.use == UseAttr && !f.created
}

// enterCharge gets the charge of a file before a change, if the server counts.
func (f *File) enterCharge() error {
	if f.Volume.Account == nil || f.charge != nil {
		return nil
	}
	f.charge, f.ownsCharge = f.Volume.Account.Enter(f.Volume.FS.Inode(&f.Attr)), true
	_, err := f.Stat() // so that only the change is charged
	return err
}

// NoChange means that an owner or a group does not change.
const NoChange = -1

// Chown sets the owner and the group.
func (f *File) Chown(as actas.Thread, uid, gid int) error {
	as.MustAct()
	f.changed = true
	err := f.changeIt(func() error { return unix.Fchownat(f.fd, "", uid, gid, unix.AT_EMPTY_PATH) })
	if errors.Is(err, unix.EINVAL) { // podnas's user namespace has no such user, user_namespaces(7)
		return unix.EPERM
	}
	return err
}

// SetTime is the change of one of a file's times.
type SetTime struct {
	Set  bool // otherwise it does not change
	Now  bool // otherwise it is set to Time
	Time time.Time
}

func (t SetTime) timespec() unix.Timespec {
	switch {
	case !t.Set:
		return unix.Timespec{Nsec: unix.UTIME_OMIT}
	case t.Now:
		return unix.Timespec{Nsec: unix.UTIME_NOW}
	}
	return unix.Timespec{Sec: t.Time.Unix(), Nsec: int64(t.Time.Nanosecond())}
}

// Chtimes sets the times. Setting them to now requires only the right to write.
func (f *File) Chtimes(as actas.Thread, atime, mtime SetTime) error {
	as.MustAct()
	f.changed = true
	ts := []unix.Timespec{atime.timespec(), mtime.timespec()}
	return f.changeIt(func() error {
		return unix.UtimesNanoAt(f.fd, "", ts, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW)
	})
}

// Touch moves the ctime and the change attribute of a volume's root, and changes nothing else of it: clients look again what
// is in it, also for names that were not there. It is on the disk when Touch returns, so that a power cut does not bring the
// ctime of before back.
func (o *Opener) Touch(v *exports.Volume) error {
	root, err := o.OpenIn(v, disk.FileID{}, UseAttr)
	if err != nil {
		return fmt.Errorf("open %s: %w", v.Path, err)
	}
	defer root.Close()
	// chown(2) that changes neither owner nor group sets the ctime, for which it needs no right.
	if err := root.Chown(actas.AsProcess(), NoChange, NoChange); err != nil {
		return fmt.Errorf("change %s: %w", v.Path, err)
	}
	return root.Sync(false)
}
