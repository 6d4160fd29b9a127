package inode

import (
	"errors"
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
	opener  *Opener
	Volume  *exports.Volume
	ID      disk.FileID
	Attr    disk.Attr // when it was opened with UseAttr, or made; with UseNames since StatLocked
	use     Use
	fd      int             // of own or kept
	own     disk.Descriptor // none if it is kept
	kept    *openFile       // nil if it is not
	since   uint64          // durable.File.Sample
	isNew   bool            // made by this call
	created bool            // and kept with a descriptor to write to it
	charge  *space.Charge   // if the call may change the file and the server counts
	held    bool            // f must release the charge, not kept
	names   *names          // with UseNames: the lock of the directory's names
	changes uint64          // of names, before Attr; never: Attr is not set
	changed bool            // by a method, since Attr
	opened  bool            // it is a Held's, or what one holds
	by      *Held           // through which it is open; nil: none
}

// Close releases the file and f, which is reused. Call it once, when no sync of the file is
// pending.
func (f *File) Close() {
	if f.kept != nil {
		f.opener.files.release(f.kept)
	}
	f.own.Close()
	if f.held {
		f.charge.Leave("")
	}
	opener, volume := f.opener, f.Volume
	opener.directories.leave(f.names)
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

// Stat returns the attributes. The error is ESTALE if the file was removed, even
// if it is still open somewhere, unless it is a Held's: then it has no links.
func (f *File) Stat() (disk.Attr, error) {
	key := f.heldKey()
	kept := f.opener.held.keeps(key)
	a, err := look(f.Volume, f.fd, f.charge)
	if kept && a.Nlink > 0 && f.opener.held.keeps(key) { // twice: a removal that fails keeps it only for a moment
		a.Nlink--
	}
	if err == nil && a.Nlink == 0 && !f.opened {
		err = unix.ESTALE
	}
	if f.use.isData() && errors.Is(err, unix.ESTALE) {
		f.opener.files.drop(f.Volume, f.ID)
	}
	return a, err
}

// Latest returns Attr, or the new attributes if a method has changed the file.
func (f *File) Latest() (disk.Attr, error) {
	if f.changed {
		return f.Stat()
	}
	return f.Attr, nil
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
	if f.kept != nil {
		return &f.kept.File
	}
	alone := f.opener.newOpenFile(fileKey{f.Volume, f.ID}, UseAttr, f.fd, nil) // of f's descriptor, not shared
	alone.init(new(durable.State))
	return &alone.File
}

// look returns the attributes of an open file, and settles its charge if it has one.
func look(v *exports.Volume, fd int, c *space.Charge) (disk.Attr, error) {
	var st unix.Stat_t
	if err := c.Look(fd, &st, v.FS.Quick); err != nil {
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

// openAt opens or creates a name in the directory.
func (f *File) openAt(name []byte, flags int, mode uint32, resolve uint64) (*File, error) {
	var path [unix.NAME_MAX + 1]byte // ends with 0
	if copy(path[:unix.NAME_MAX], name) < len(name) {
		return nil, unix.ENAMETOOLONG
	}
	how := unix.OpenHow{
		Flags:   uint64(flags) | unix.O_CLOEXEC,
		Mode:    uint64(mode),
		Resolve: resolve | unix.RESOLVE_NO_MAGICLINKS,
	}
	x := f.Volume.Files.Index()
	removals := x.Removals()
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
	child := f.opener.newFile(f.Volume, d)
	var err error
	if child.Attr, err = child.Stat(); err == nil {
		child.ID, err = f.Volume.Files.Identify(child.fd, nil)
	} else if errors.Is(err, unix.ESTALE) { // which would be said of the directory
		err = unix.ENOENT // it was removed since it was opened
	}
	if err != nil {
		child.Close()
		return nil, err
	}
	x.Saw(f.fd, f.Attr.Ino, name, child.Attr.Ino, child.Attr.IsDir(), removals)
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
	child, err := f.openAt(name, unix.O_PATH|unix.O_NOFOLLOW, 0, disk.Within)
	if errors.Is(err, unix.EXDEV) {
		return nil, unix.EACCES
	}
	return child, err
}

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

// The methods that make, remove or rename something are for a directory that is open with
// UseNames and whose names the caller has locked, LockNames.
//
// Those that create something return EEXIST if the name exists. Only the directory's
// default ACL restricts the mode: the process's umask is 0.

// Create makes a regular file. It stays open, because its creator will write to it next.
func (f *File) Create(as actas.Thread, name string, mode uint32) (*File, error) {
	made, err := f.make(as, name, func() (*File, error) {
		return f.openAt([]byte(name), unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, mode, disk.Within)
	})
	if err != nil {
		return nil, err
	}
	made.keptAs(f.opener.keep(fileKey{made.Volume, made.ID}, UseWrite, made.own.Take(), made.charge))
	made.created, made.held = true, false // the charge is the kept one's
	return made, nil
}

// make makes a file with a name by do, in reserved space, and charges the volume for it.
func (f *File) make(as actas.Thread, name string, do func() (*File, error)) (*File, error) {
	as.MustAct()
	if err := component(name); err != nil {
		return nil, err
	}
	room, err := f.roomFor(name, f.Volume.Account.ForNew())
	if err != nil {
		return nil, err
	}
	defer room.Release()
	child, err := do()
	if err != nil {
		return nil, err
	}
	f.made(child)
	return child, nil
}

// makeNode is make of what is opened after it was made.
func (f *File) makeNode(as actas.Thread, name string, do func() error) (*File, error) {
	return f.make(as, name, func() (*File, error) {
		if err := do(); err != nil {
			return nil, err
		}
		return f.Lookup([]byte(name))
	})
}

// roomFor reserves space for a new file. If there is none, but the name exists, it
// returns no error, because the kernel will return EEXIST.
func (f *File) roomFor(name string, n space.Amount) (space.Reservation, error) {
	room, err := f.Volume.Account.Reserve(n)
	if err != nil {
		if _, taken := f.Volume.Files.Identify(f.fd, []byte(name)); taken == nil {
			return space.Reservation{}, nil
		}
	}
	return room, err
}

// made charges the volume for a new file.
func (f *File) made(child *File) {
	child.isNew = true
	if a := f.Volume.Account; a != nil {
		st := child.Volume.FS.StatOfNew(&child.Attr)
		child.charge, child.held = a.EnterNew(child.fd, &st), true
	}
}

// Lacks reports whether it is certain that the directory has no such name.
func (f *File) Lacks(name string) bool {
	_, err := f.Volume.Files.Identify(f.fd, []byte(name))
	return errors.Is(err, unix.ENOENT)
}

// Unmake removes a name that this call has made, as far as it is still that of the file that was made, and
// nobody else uses that: no client has it open, it has no data, and no other name.
func (f *File) Unmake(as actas.Thread, made *File, name string) (removed bool, err error) {
	if !made.isNew || f.opener.held.held(made.heldKey()) {
		return false, nil
	}
	a, err := made.Stat()
	switch {
	case err != nil:
		return false, err
	case a.IsRegular() && a.Used > 0, !a.IsDir() && a.Nlink > 1:
		return false, nil
	}
	switch is, err := f.Volume.Files.Identify(f.fd, []byte(name)); {
	case err != nil:
		return false, err
	case is != made.ID:
		return false, nil
	}
	if a.IsDir() {
		err = f.Rmdir(as, name)
	} else {
		err = f.Remove(as, name)
	}
	return err == nil, err
}

// Mkdir makes a directory.
func (f *File) Mkdir(as actas.Thread, name string, mode uint32) (*File, error) {
	return f.makeNode(as, name, func() error { return unix.Mkdirat(f.fd, name, mode) })
}

// Symlink makes a symbolic link.
func (f *File) Symlink(as actas.Thread, target, name string) (*File, error) {
	return f.makeNode(as, name, func() error { return unix.Symlinkat(target, f.fd, name) })
}

// Types of Mknod, inode(7).
const (
	TypeFIFO   = unix.S_IFIFO
	TypeSocket = unix.S_IFSOCK
	TypeChar   = unix.S_IFCHR
	TypeBlock  = unix.S_IFBLK
)

// Mknod creates a fifo, a socket or a device. The error is EPERM for a device,
// unless the thread is root and has CAP_MKNOD.
func (f *File) Mknod(as actas.Thread, name string, fileType, mode, major, minor uint32) (*File, error) {
	return f.makeNode(as, name, func() error {
		return unix.Mknodat(f.fd, name, fileType|mode, int(unix.Mkdev(major, minor)))
	})
}

// Link gives the file another name, in a directory whose names the caller has locked. The
// error is EXDEV for another volume.
func (f *File) Link(as actas.Thread, dir *File, name string) error {
	as.MustAct()
	if err := component(name); err != nil {
		return err
	}
	if f.Volume != dir.Volume {
		return unix.EXDEV
	}
	if held := f.opener.held.removing(f.heldKey()); held != nil {
		defer f.opener.release(held)
		held.names.Lock()
		defer held.names.Unlock()
		a, err := f.Stat()
		if err == nil && a.Nlink == 0 {
			err = unix.ENOENT // as the kernel has it: what is removed does not come back
		}
		if err != nil {
			return err
		}
	}
	if err := f.hold(); err != nil {
		return err
	}
	room, err := dir.roomFor(name, space.ForName())
	if err != nil {
		return err
	}
	defer room.Release()
	defer f.beginChange().end()
	x := f.Volume.Files.Index()
	removals := x.Removals()
	// Without a path it needs CAP_DAC_READ_SEARCH, linkat(2).
	if err := unix.Linkat(unix.AT_FDCWD, f.proc(), dir.fd, name, unix.AT_SYMLINK_FOLLOW); err != nil {
		return err
	}
	x.Saw(dir.fd, dir.Attr.Ino, []byte(name), f.Attr.Ino, false, removals)
	return nil
}

// settle charges the file's current usage, where the server counts.
func (f *File) settle() {
	if f.charge != nil {
		_, _ = f.Stat() // what can't be looked at stays as it was
	}
}

// Remove removes a name that is no directory.
func (f *File) Remove(as actas.Thread, name string) error { return f.unlink(as, name, 0) }

// Rmdir removes an empty directory.
func (f *File) Rmdir(as actas.Thread, name string) error {
	return f.unlink(as, name, unix.AT_REMOVEDIR)
}

func (f *File) unlink(as actas.Thread, name string, flags int) error {
	as.MustAct()
	if err := component(name); err != nil {
		return err
	}
	v := f.victim(name)
	v.take()
	v.keep(as, name)
	return v.taken(unix.Unlinkat(f.fd, name, flags))
}

// Rename renames a file, and replaces an existing one like rename(2). If both names are of
// the same file nothing happens, and changed is false. The error is EXDEV for another volume.
func (f *File) Rename(as actas.Thread, name string, to *File, newName string) (changed bool, err error) {
	as.MustAct()
	if f.Volume != to.Volume {
		return false, unix.EXDEV
	}
	if err := errors.Join(component(name), component(newName)); err != nil {
		return false, unix.EINVAL
	}
	x := f.Volume.Files.Index()
	x.Moving()
	defer x.Moved()
	moved, err := f.Volume.Files.Identify(f.fd, []byte(name)) // its ctime changes
	if err == nil && f.renameTo(name, to, newName, moved) == nil {
		f.renamed(name, to, newName, moved)
		return true, nil
	}
	// There is something with the new name, or it fails.
	defer f.opener.beginChange(f.Volume, moved).end()
	v := to.victim(newName)
	v.same = v.id == moved && !moved.IsZero()
	v.take()
	v.taking.Renamed(f.fd, name)
	if f.ID != to.ID || name != newName {
		v.keep(as, newName)
	}
	err = v.taken(f.Volume.Account.Rename(to.charge, !v.id.IsZero(), to.settle, func() error {
		return unix.Renameat(f.fd, name, to.fd, newName)
	}))
	if err == nil && !v.same {
		f.renamed(name, to, newName, moved)
	}
	return err == nil && !v.same, err
}

// renameTo renames a file to a name that is free, without asking before whether it is.
func (f *File) renameTo(name string, to *File, newName string, moved disk.FileID) error {
	defer f.opener.beginChange(f.Volume, moved).end()
	return f.Volume.Account.Rename(to.charge, false, to.settle, func() error {
		return unix.Renameat2(f.fd, name, to.fd, newName, unix.RENAME_NOREPLACE)
	})
}

// renamed tells the account and the index of a new name.
func (f *File) renamed(name string, to *File, newName string, moved disk.FileID) {
	f.Volume.Account.Moved(to.fd, newName)
	f.Volume.Files.Index().Renamed(f.Attr.Ino, name, to.fd, to.Attr.Ino, newName, &moved)
}

// Chmod sets the permission bits, setuid, setgid and sticky. The error is
// EOPNOTSUPP for a symbolic link.
func (f *File) Chmod(as actas.Thread, mode uint32) error {
	as.MustAct()
	if f.Attr.IsSymlink() {
		return unix.EOPNOTSUPP
	}
	f.changed = true
	defer f.beginChange().end()
	return f.setMode(func() error { return f.chmod(mode) })
}

// setMode does what sets the mode for a client.
func (f *File) setMode(do func() error) error {
	if m := &f.opener.modes; f.opener.table.Only != nil || m.some.Load() {
		return m.set(f.heldKey(), do)
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
	if f.kept != nil {
		return f.kept.use == UseAttr
	}
	return f.use == UseAttr && !f.created
}

// hold gets the charge of a file before a change, if the server counts.
func (f *File) hold() error {
	if f.Volume.Account == nil || f.charge != nil {
		return nil
	}
	f.charge, f.held = f.Volume.Account.Enter(f.Volume.FS.Inode(&f.Attr)), true
	_, err := f.Stat() // so that only the change is charged
	return err
}

// NoChange means that an owner or a group does not change.
const NoChange = -1

// Chown sets the owner and the group.
func (f *File) Chown(as actas.Thread, uid, gid int) error {
	as.MustAct()
	f.changed = true
	defer f.beginChange().end()
	err := unix.Fchownat(f.fd, "", uid, gid, unix.AT_EMPTY_PATH)
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
	defer f.beginChange().end()
	ts := []unix.Timespec{atime.timespec(), mtime.timespec()}
	return unix.UtimesNanoAt(f.fd, "", ts, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW)
}
