package export

import (
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// File is an open file of a volume, and the call in the volume that uses it. Its
// methods act as the thread that calls them, so they are for Workers; names are
// one component (ValidName). The errors are errnos.
type File struct {
	opener *Opener
	Volume *Volume
	ID     FileID
	Attr   Attr // when it was opened
	fd     int
}

// Close ends the use of the file.
func (f *File) Close() {
	_ = unix.Close(f.fd) // nothing is written through it
	f.Volume.calls.Done()
}

// Handle makes the file's handle.
func (f *File) Handle() []byte { return f.opener.key.Handle(f.Volume.ID, f.ID) }

// Stat tells the attributes. ESTALE of a file that has been removed, though it
// may live on while somebody has it open.
func (f *File) Stat() (Attr, error) { return fstat(f.fd) }

func fstat(fd int) (Attr, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Attr{}, err
	}
	if st.Nlink == 0 {
		return Attr{}, unix.ESTALE
	}
	return attrOf(&st), nil
}

// IsRoot tells whether the file is the volume's root directory.
func (f *File) IsRoot() bool {
	root, err := identifyByHandle(int(f.Volume.root.Fd()), "")
	return err == nil && root == f.ID
}

// Permission bits for Access, access(2).
const (
	MayRead  = unix.R_OK
	MayWrite = unix.W_OK
	MayExec  = unix.X_OK
)

// Access asks the kernel whether this thread may do something with the file.
func (f *File) Access(mode uint32) error { return access(f.fd, mode) }

func access(fd int, mode uint32) error {
	return unix.Faccessat2(fd, "", mode, unix.AT_EMPTY_PATH|unix.AT_EACCESS)
}

// proc is a path to the file for system calls that take no descriptor opened
// with O_PATH. A process may always follow its own.
func (f *File) proc() string { return fmt.Sprintf("/proc/self/fd/%d", f.fd) }

// openAt opens what has a name in the directory, or makes it.
func (f *File) openAt(name string, flags int, mode uint32, resolve uint64) (*File, error) {
	fd, err := unix.Openat2(f.fd, name, &unix.OpenHow{
		Flags:   uint64(flags) | unix.O_CLOEXEC,
		Mode:    uint64(mode),
		Resolve: resolve | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, err
	}
	if !f.Volume.begin() {
		_ = unix.Close(fd) // nothing was written through it
		return nil, unix.ESTALE
	}
	child := &File{opener: f.opener, Volume: f.Volume, fd: fd}
	if child.Attr, err = child.Stat(); err == nil {
		child.ID, err = identifyByHandle(fd, "")
	}
	if err != nil {
		child.Close()
		return nil, err
	}
	return child, nil
}

// within is how names are resolved: never up, never through a symbolic link,
// never into what is mounted.
const within = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS

// component refuses a name that the kernel would take for a path. Whoever calls
// has checked it; a mistake there must not reach the disk.
func component(name string) error {
	if !ValidName(name) {
		return unix.EINVAL
	}
	return nil
}

// Lookup opens what has a name in the directory, "." for itself. What is mounted there is not
// entered: EACCES.
func (f *File) Lookup(name string) (*File, error) {
	if name != "." && !ValidName(name) {
		return nil, unix.EINVAL
	}
	child, err := f.openAt(name, unix.O_PATH|unix.O_NOFOLLOW, 0, within)
	if errors.Is(err, unix.EXDEV) {
		return nil, unix.EACCES
	}
	return child, err
}

// Readlink tells what a symbolic link holds. EINVAL of anything else.
func (f *File) Readlink() ([]byte, error) {
	if !f.Attr.IsSymlink() {
		return nil, unix.EINVAL
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(f.fd, "", buf)
	return buf[:max(n, 0)], err
}

// The methods that make something answer EEXIST if the name is taken. The mode
// is narrowed by nothing but the directory's default ACL: the process's umask
// is 0.

// Create makes a regular file.
func (f *File) Create(name string, mode uint32) (*File, error) {
	if err := component(name); err != nil {
		return nil, err
	}
	return f.openAt(name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, mode, within)
}

// Mkdir makes a directory.
func (f *File) Mkdir(name string, mode uint32) (*File, error) {
	if err := component(name); err != nil {
		return nil, err
	}
	if err := unix.Mkdirat(f.fd, name, mode); err != nil {
		return nil, err
	}
	return f.Lookup(name)
}

// Symlink makes a symbolic link.
func (f *File) Symlink(target, name string) (*File, error) {
	if err := component(name); err != nil {
		return nil, err
	}
	if err := unix.Symlinkat(target, f.fd, name); err != nil {
		return nil, err
	}
	return f.Lookup(name)
}

// Types of Mknod, inode(7).
const (
	TypeFIFO   = unix.S_IFIFO
	TypeSocket = unix.S_IFSOCK
	TypeChar   = unix.S_IFCHR
	TypeBlock  = unix.S_IFBLK
)

// Mknod makes a fifo, a socket or a device. EPERM for a device, unless the
// thread is root and has CAP_MKNOD.
func (f *File) Mknod(name string, fileType, mode, major, minor uint32) (*File, error) {
	if err := component(name); err != nil {
		return nil, err
	}
	if err := unix.Mknodat(f.fd, name, fileType|mode, int(unix.Mkdev(major, minor))); err != nil {
		return nil, err
	}
	return f.Lookup(name)
}

// Link gives the file another name. EXDEV into another volume.
func (f *File) Link(dir *File, name string) error {
	if err := component(name); err != nil {
		return err
	}
	if f.Volume != dir.Volume {
		return unix.EXDEV
	}
	// By descriptor alone it takes CAP_DAC_READ_SEARCH, linkat(2).
	return unix.Linkat(unix.AT_FDCWD, f.proc(), dir.fd, name, unix.AT_SYMLINK_FOLLOW)
}

// Remove removes a name that is no directory.
func (f *File) Remove(name string) error {
	if err := component(name); err != nil {
		return err
	}
	victim := f.victim(name)
	if err := unix.Unlinkat(f.fd, name, 0); err != nil {
		return err
	}
	f.opener.files.drop(f.Volume, victim)
	return nil
}

// Rmdir removes an empty directory.
func (f *File) Rmdir(name string) error {
	if err := component(name); err != nil {
		return err
	}
	return unix.Unlinkat(f.fd, name, unix.AT_REMOVEDIR)
}

// Rename moves a name to another, and replaces what has that as rename(2) does.
// EXDEV into another volume.
func (f *File) Rename(name string, to *File, newName string) error {
	if f.Volume != to.Volume {
		return unix.EXDEV
	}
	if err := errors.Join(component(name), component(newName)); err != nil {
		return unix.EINVAL
	}
	victim := to.victim(newName)
	if err := unix.Renameat(f.fd, name, to.fd, newName); err != nil {
		return err
	}
	f.opener.files.drop(f.Volume, victim)
	return nil
}

// victim is the file that a name is about to be taken from. If it was the last
// one, the file's space must not wait for a descriptor that is kept.
func (f *File) victim(name string) FileID {
	id, err := identifyByHandle(f.fd, name)
	if err != nil {
		return "" // nothing there, or nothing that could be open
	}
	return id
}

// Chmod sets the permission bits, with setuid, setgid and sticky. EOPNOTSUPP of
// a symbolic link.
func (f *File) Chmod(mode uint32) error {
	if f.Attr.IsSymlink() {
		return unix.EOPNOTSUPP
	}
	return unix.Chmod(f.proc(), mode)
}

// Truncate sets the size of a regular file, which takes the right to write it.
func (f *File) Truncate(size uint64) error {
	if size > math.MaxInt64 {
		return unix.EFBIG
	}
	if !f.Attr.IsRegular() {
		return unix.EINVAL // opening anything else has effects
	}
	return unix.Truncate(f.proc(), int64(size))
}

// NoChange leaves an owner, a group or a time as it is.
const NoChange = -1

// Chown sets the owner and the group.
func (f *File) Chown(uid, gid int) error {
	return unix.Fchownat(f.fd, "", uid, gid, unix.AT_EMPTY_PATH)
}

// SetTime is what becomes of one of a file's times.
type SetTime struct {
	Set  bool // else it is left alone
	Now  bool // else it becomes Time
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

// Chtimes sets the times. Setting them to now takes no more than the right to
// write.
func (f *File) Chtimes(atime, mtime SetTime) error {
	ts := []unix.Timespec{atime.timespec(), mtime.timespec()}
	if f.Attr.IsSymlink() {
		return unix.UtimesNanoAt(f.fd, "", ts, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW)
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, f.proc(), ts, 0)
}

// Sync brings the file's metadata, and a directory's names, to the disk. Only
// what OpenDir and Create have opened can be synced; nothing else needs to be.
func (f *File) Sync() error {
	err := unix.Fsync(f.fd)
	if errors.Is(err, unix.EBADF) { // O_PATH
		return nil
	}
	return err
}
