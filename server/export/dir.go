package export

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/space"
)

// Dir is an open directory of a volume. Names passed to its methods are one
// component. Its methods never follow a symbolic link. Its errors contain the
// errno of the system call. They act as the process's user. Where the server counts, those
// that change names lock them.
//
// The export does not end while a Dir is open.
type Dir struct {
	*os.File
	volume *Volume
}

// Close releases the directory.
func (d *Dir) Close() error {
	defer d.volume.calls.Done()
	return d.File.Close()
}

// ValidName reports whether a client may use a name: one component that is not "."
// or "..". The file system limits its length.
func ValidName[T string | []byte](name T) bool {
	switch string(name) {
	case "", ".", "..":
		return false
	}
	for i := range len(name) {
		if name[i] == '/' || name[i] == 0 {
			return false
		}
	}
	return true
}

// Attr has the attributes of a file, from fstatat(2).
type Attr struct {
	Mode                uint32 // type and permission bits as in st_mode, inode(7)
	Nlink, UID, GID     uint32
	Size                int64
	Used                uint64 // bytes on the disk
	Ino                 uint64
	Major, Minor        uint32 // of a device
	Atime, Mtime, Ctime time.Time

	device uint64 // with Ino, the key for counting
}

func attrOf(st *unix.Stat_t) Attr {
	return Attr{
		Mode:  st.Mode,
		Nlink: uint32(st.Nlink), // 64 bits on amd64, 32 on arm64
		UID:   st.Uid,
		GID:   st.Gid,
		Size:  st.Size,
		Used:  uint64(st.Blocks) * 512,
		Ino:   st.Ino,
		Major: unix.Major(st.Rdev),
		Minor: unix.Minor(st.Rdev),
		Atime: time.Unix(st.Atim.Unix()),
		Mtime: time.Unix(st.Mtim.Unix()),
		Ctime: time.Unix(st.Ctim.Unix()),

		device: st.Dev,
	}
}

func (a *Attr) inode() space.Inode { return space.Inode{Device: a.device, Number: a.Ino} }

// IsRegular reports whether it is a regular file.
func (a *Attr) IsRegular() bool { return a.Mode&unix.S_IFMT == unix.S_IFREG }

// IsDir reports whether it is a directory.
func (a *Attr) IsDir() bool { return a.Mode&unix.S_IFMT == unix.S_IFDIR }

// IsSymlink reports whether it is a symbolic link.
func (a *Attr) IsSymlink() bool { return a.Mode&unix.S_IFMT == unix.S_IFLNK }

// Lstat returns the attributes of a file.
func (d *Dir) Lstat(name string) (Attr, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Attr{}, &os.PathError{Op: "fstatat", Path: name, Err: err}
	}
	return attrOf(&st), nil
}

// Identify returns the ID of a file, or of the directory itself if name is empty.
func (d *Dir) Identify(name string) (FileID, error) { return identify(d.File, name) }

// OpenFile opens a regular file for reading or writing, or creates it, depending
// on flags. It refuses other types before opening them, because opening a fifo or
// a device has side effects.
func (d *Dir) OpenFile(name string, flags int, mode os.FileMode) (*DirFile, error) {
	if flags&unix.O_CREAT == 0 {
		return d.openFile(name, flags, mode)
	}
	var file *DirFile
	err := d.changeNames(nil, func(*space.Charge) (err error) {
		file, err = d.openFile(name, flags, mode)
		return err
	})
	return file, err
}

func (d *Dir) openFile(name string, flags int, mode os.FileMode) (*DirFile, error) {
	a, err := d.Lstat(name)
	if err == nil && !a.IsRegular() {
		return nil, &os.PathError{Op: "openat", Path: name, Err: unix.EINVAL}
	}
	isNew := errors.Is(err, os.ErrNotExist)
	if isNew && flags&unix.O_CREAT != 0 {
		room, err := d.reserve(d.volume.account.ForNew())
		if err != nil {
			return nil, &os.PathError{Op: "openat", Path: name, Err: err}
		}
		defer room.Release()
	}
	flags |= unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(int(d.Fd()), name, flags, uint32(mode.Perm()))
	if err != nil {
		return nil, &os.PathError{Op: "openat", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, &os.PathError{Op: "openat", Path: name, Err: errors.Join(unix.EINVAL, err, f.Close())}
	}
	return d.charged(f, isNew)
}

// Mkdir makes a directory.
func (d *Dir) Mkdir(name string, mode os.FileMode) error {
	return pathError("mkdirat", name, d.makeName(name, func() error {
		return unix.Mkdirat(int(d.Fd()), name, uint32(mode.Perm()))
	}))
}

// Symlink makes a symbolic link.
func (d *Dir) Symlink(target, name string) error {
	return pathError("symlinkat", name, d.makeName(name, func() error {
		return unix.Symlinkat(target, int(d.Fd()), name)
	}))
}

// Readlink returns the target of a symbolic link.
func (d *Dir) Readlink(name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(d.Fd()), name, buf)
	if err != nil {
		return "", pathError("readlinkat", name, err)
	}
	return string(buf[:n]), nil
}

// Remove removes a file or an empty directory.
func (d *Dir) Remove(name string) error {
	return pathError("unlinkat", name, d.takeName(name, func() error {
		err := unix.Unlinkat(int(d.Fd()), name, 0)
		if errors.Is(err, unix.EISDIR) {
			err = unix.Unlinkat(int(d.Fd()), name, unix.AT_REMOVEDIR)
		}
		return err
	}))
}

// Rename renames a file within the volume, and replaces an existing file like
// rename(2).
func (d *Dir) Rename(name string, to *Dir, newName string) error {
	return pathError("renameat", name, to.giveName(newName, d, name, func() error {
		err := unix.Renameat(int(d.Fd()), name, int(to.Fd()), newName)
		if err == nil {
			d.volume.account.Moved(int(to.Fd()), newName)
		}
		return err
	}))
}

// Chmod sets the permission bits of a file. It ignores a symbolic link, which has none.
func (d *Dir) Chmod(name string, mode os.FileMode) error {
	// fchmodat(2) would follow a link, and fchmodat2(2) came with Linux 6.6. An
	// O_PATH descriptor holds the file itself, and /proc leads to it.
	f, err := openEntry(int(d.Fd()), name)
	if err != nil {
		return pathError("openat", name, err)
	}
	defer f.close()
	var st unix.Stat_t
	if err := unix.Fstat(f.fd(), &st); err != nil || st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return pathError("fstat", name, err)
	}
	return pathError("chmod", name, unix.Chmod(procPath(f.fd()), uint32(mode.Perm())))
}

// Lchown sets the owner and the group of a file.
func (d *Dir) Lchown(name string, uid, gid int) error {
	return pathError("fchownat", name, unix.Fchownat(int(d.Fd()), name, uid, gid, unix.AT_SYMLINK_NOFOLLOW))
}

// Chtimes sets the times of a file.
func (d *Dir) Chtimes(name string, atime, mtime time.Time) error {
	at, err := unix.TimeToTimespec(atime)
	if err != nil {
		return pathError("utimensat", name, err)
	}
	mt, err := unix.TimeToTimespec(mtime)
	if err != nil {
		return pathError("utimensat", name, err)
	}
	ts := []unix.Timespec{at, mt}
	return pathError("utimensat", name, unix.UtimesNanoAt(int(d.Fd()), name, ts, unix.AT_SYMLINK_NOFOLLOW))
}

// Statfs has the size and free space of a volume, in bytes and files, and the
// limits for names.
type Statfs struct {
	space.Room
	NameMax, LinkMax uint32
}

// Statfs returns the size and free space of the volume.
func (v *Volume) Statfs() (Statfs, error) {
	if !v.begin() {
		return Statfs{}, unix.ESTALE
	}
	defer v.calls.Done()
	var st unix.Statfs_t
	// On XFS and ext4 statfs of a directory returns its project's limit as the size;
	// of a file it does not.
	if err := unix.Fstatfs(int(v.root.Fd()), &st); err != nil {
		return Statfs{}, fmt.Errorf("statfs: %w", err)
	}
	room := Statfs{
		Room: space.Room{
			Size:      uint64(space.BytesOf(st.Blocks, st.Bsize)),
			Free:      uint64(space.BytesOf(st.Bfree, st.Bsize)),
			Available: uint64(space.BytesOf(st.Bavail, st.Bsize)),
			Files:     st.Files,
			FreeFiles: st.Ffree,
		},
		NameMax: uint32(st.Namelen),
		LinkMax: linkMax(st.Type),
	}
	if v.account != nil {
		v.account.LimitTo(&room.Room)
	}
	return room, nil
}

// linkMax is the maximum link count of a file. The kernel does not expose it:
// glibc's pathconf(3) has such a table too.
func linkMax(fsType int64) uint32 {
	switch fsType {
	case unix.EXT4_SUPER_MAGIC:
		return 65_000
	case unix.XFS_SUPER_MAGIC:
		return 1<<31 - 1
	case unix.BTRFS_SUPER_MAGIC:
		return 65_535
	}
	return 127 // glibc's guess
}

func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Path: name, Err: err}
}
