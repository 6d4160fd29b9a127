package tree

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Statx is what statx(2) says of a file.
type Statx struct{ unix.Statx_t }

func (s *Statx) is(kind uint32) bool { return uint32(s.Mode)&unix.S_IFMT == kind }

// IsDir reports whether it is a directory.
func (s *Statx) IsDir() bool { return s.is(unix.S_IFDIR) }

// IsRegular reports whether it is a regular file.
func (s *Statx) IsRegular() bool { return s.is(unix.S_IFREG) }

// IsDevice reports whether it is a device.
func (s *Statx) IsDevice() bool { return s.is(unix.S_IFCHR) || s.is(unix.S_IFBLK) }

// IsOn reports whether it is on the same disk as another file.
func (s *Statx) IsOn(other *Statx) bool {
	return s.Dev_major == other.Dev_major && s.Dev_minor == other.Dev_minor
}

// IsMounted reports whether it is what is mounted there, which may be of the same disk.
func (s *Statx) IsMounted() bool { return s.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 }

// Stat returns what there is to know of an open file, which may be O_PATH.
func Stat(fd int) (st Statx, err error) {
	if err := statx(fd, &st.Statx_t); err != nil {
		return st, fmt.Errorf("stat: %w", err)
	}
	return st, nil
}

// StatIn returns what there is to know of a name in an open directory, which may be O_PATH. It follows no link.
func StatIn(dir int, name string) (st Statx, err error) {
	err = unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st.Statx_t)
	return st, err
}

// SyncAll syncs the whole disk that a file is on.
func SyncAll(f *os.File) error {
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("sync the disk: %w", err)
	}
	return nil
}

// Source is a file that is to be cloned, with all that is to be read of it but its data.
type Source struct {
	entry    Entry
	metadata metadata
	data     int  // open to be read, -1 if it is no regular file
	plain    bool // it has no extended attributes
}

// OpenSource opens a file that is open, perhaps with O_PATH, to be cloned. st is what Stat has said of it: the clone gets that, whatever
// the file's mode is now.
func OpenSource(fd int, st *Statx) (s *Source, err error) {
	s = &Source{entry: Entry{FD: fd, Stat: st.Statx_t}, metadata: metadata{status: statusOf(&st.Statx_t)}, data: -1}
	if st.IsRegular() {
		// Its system calls are by descriptors: by paths in /proc, as for what is O_PATH, it takes half as long again.
		if s.data, err = unix.Open(procPath(fd), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return nil, fmt.Errorf("open: %w", err)
		}
		if s.plain = hasNoAttributes(s.data); s.plain {
			return s, nil
		}
	}
	if s.metadata, err = readMetadata(fd, &st.Statx_t); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close closes what OpenSource has opened.
func (s *Source) Close() {
	if s.data >= 0 {
		_ = unix.Close(s.data) // only read from
	}
}

// Clone makes a file like the source under a new name in a directory: with its owner, mode, times and extended attributes.
// A regular file shares its blocks, and has the name before it is complete. A directory is empty. The error is EOPNOTSUPP
// where the disk can't share blocks.
func (s *Source) Clone(dir *os.File, name string) error {
	switch s.entry.Type() {
	case unix.S_IFREG:
		return s.cloneFile(dir, name)
	case unix.S_IFDIR:
		if err := unix.Mkdirat(int(dir.Fd()), name, 0o700); err != nil {
			return fmt.Errorf("make a directory: %w", err)
		}
		return applyAt(dir, name, &s.metadata)
	}
	return s.entry.node(dir, name, &s.metadata)
}

func (s *Source) cloneFile(dir *os.File, name string) (err error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if s.entry.Stat.Size > 0 {
		if err := s.share(fd); err != nil {
			return fmt.Errorf("share its blocks: %w", err)
		}
	}
	if s.plain && hasNoAttributes(fd) {
		return s.entry.applyPlain(fd)
	}
	return s.metadata.apply(fd)
}

// share has a new file share the blocks of the source.
func (s *Source) share(fd int) error {
	err := cloneData(fd, s.data)
	if errors.Is(err, unix.EINVAL) && !SameCOW(fd, s.data) && SwitchCOW(fd) == nil {
		return cloneData(fd, s.data)
	}
	return err
}

func cloneData(to, from int) error {
	for {
		if err := unix.IoctlFileClone(to, from); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// hasNoAttributes reports whether it is known that an open file has no extended attributes.
func hasNoAttributes(fd int) bool {
	n, err := unix.Flistxattr(fd, nil)
	return err == nil && n == 0
}

// applyPlain is metadata.apply for a new file that is open, and has no extended attributes, as its source.
func (e *Entry) applyPlain(fd int) error {
	uid, gid := int(e.Stat.Uid), int(e.Stat.Gid)
	if uid != os.Geteuid() || gid != os.Getegid() {
		if err := unix.Fchown(fd, uid, gid); err != nil && !forRoot(err) {
			return fmt.Errorf("change the owner: %w", err)
		}
	}
	if err := unix.Fchmod(fd, uint32(e.Stat.Mode)&^unix.S_IFMT); err != nil {
		return fmt.Errorf("change the mode: %w", err)
	}
	times := []unix.Timespec{{Sec: e.Stat.Atime.Sec, Nsec: int64(e.Stat.Atime.Nsec)}, {Sec: e.Stat.Mtime.Sec, Nsec: int64(e.Stat.Mtime.Nsec)}}
	if err := unix.UtimesNanoAt(fd, "", times, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("set the times: %w", err)
	}
	return nil
}

// Fill has fill add names to a directory in dir, which keeps its owner, mode, times and extended attributes. Without
// CAP_DAC_OVERRIDE the mode restricts the owner, too, so it is another one meanwhile.
func Fill(dir *os.File, name string, fill func(*os.File) error) error {
	fd, err := openAt(dir, name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer unix.Close(fd)
	st, err := Stat(fd)
	if err != nil {
		return err
	}
	if err := unix.Chmod(procPath(fd), 0o700); err != nil {
		return fmt.Errorf("change the mode: %w", err)
	}
	m, err := readMetadata(fd, &st.Statx_t)
	if err != nil {
		return err
	}
	into, err := openDir(dir, name)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer into.Close()
	if err := fill(into); err != nil {
		return err
	}
	return m.apply(fd)
}

// MoveDir moves a directory to a new name in another one.
func MoveDir(from *os.File, name string, to *os.File, newName string) error {
	move := func() error {
		return unix.Renameat2(int(from.Fd()), name, int(to.Fd()), newName, unix.RENAME_NOREPLACE)
	}
	err := move()
	if !errors.Is(err, unix.EACCES) {
		return err
	}
	// To change its "..", the directory itself must be writable for who has no CAP_DAC_OVERRIDE.
	fd, err := openAt(from, name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	st, err := Stat(fd)
	if err != nil {
		return err
	}
	if err := unix.Chmod(procPath(fd), 0o700); err != nil {
		return err
	}
	return errors.Join(move(), unix.Chmod(procPath(fd), uint32(st.Mode)&^unix.S_IFMT))
}

// OpenDirIn opens a directory by its path below another one with O_PATH. It follows no link, and enters no mount.
func OpenDirIn(dir *os.File, path string) (*os.File, error) {
	fd, err := openAt(dir, path, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// ErrOther is the error of LinkClone for a file that is not as it should be.
var ErrOther = errors.New("it is no clone of the file")

// ErrManyNames is the error of LinkClone for a clone that has too many names.
var ErrManyNames = errors.New("it has too many names")

// maxNames is how many names LinkClone lets a clone come to have. btrfs has at most 65,535 of a file.
const maxNames = 60_000

// LinkClone gives a clone of a file another name in another directory. st is what Stat says of the file, which has not changed
// since: the clone can have as many more names as the file has.
func LinkClone(from *os.File, name string, to *os.File, newName string, st *Statx) error {
	have, err := StatIn(int(from.Fd()), name)
	if err != nil {
		return err
	}
	const ofType = unix.S_IFMT
	if have.Mode&ofType != st.Mode&ofType || have.Size != st.Size || have.Mtime != st.Mtime {
		return ErrOther
	}
	if uint64(have.Nlink)+uint64(st.Nlink) > maxNames {
		return ErrManyNames
	}
	return unix.Linkat(int(from.Fd()), name, int(to.Fd()), newName, 0)
}
