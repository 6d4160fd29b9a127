package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// entry copies an entry of the directory that the walk is in. Directories are
// made by enter.
func (j *job) entry(e *Entry) error {
	if e.Type() == unix.S_IFDIR {
		if j.isHub(e.Name) || e.Stat.Ino == j.to.way[0].ino && j.to.sameDevice(&e.Stat) {
			return fs.SkipDir // the copy is made inside of its source
		}
		return nil
	}
	if j.isHub(e.Name) {
		return nil
	}
	var err error
	if e.Stat.Nlink > 1 {
		err = j.link(e)
	} else {
		err = j.place(j.to.dir, e.Name, e)
	}
	if err != nil {
		return fmt.Errorf("%q: %w", e.Path(), err)
	}
	j.Files.Add(1)
	return nil
}

// link copies a file with several names: into the hub first, then it gets its
// name here. So it is found for its other names, in this run and in another.
func (j *job) link(e *Entry) error {
	if err := j.openHub(); err != nil {
		return err
	}
	hub, at := int(j.hub.Fd()), int(j.to.dir.Fd())
	// The time of its birth, as the number of a removed file is used again.
	key := fmt.Sprintf("%x-%x-%x-%x-%x", e.Stat.Dev_major, e.Stat.Dev_minor, e.Stat.Ino, e.Stat.Btime.Sec, e.Stat.Btime.Nsec)
	if !j.linked[key] {
		// An earlier copy that went past this may have it complete.
		if have, err := statAt(at, e.Name); err != nil {
			return err
		} else if have != nil && e.sameContent(have) {
			if err := unix.Linkat(at, e.Name, hub, key, 0); err != nil && !errors.Is(err, unix.EEXIST) {
				return err
			}
		}
		if err := j.place(j.hub, key, e); err != nil {
			return err
		}
		j.linked[key] = true
	}
	made, err := statAt(hub, key)
	if err != nil || made == nil {
		return errors.Join(err, errors.New("its copy was removed meanwhile"))
	}
	have, err := statAt(at, e.Name)
	if err != nil {
		return err
	}
	if have != nil {
		if have.Ino == made.Ino {
			return nil
		}
		if err := j.discard(j.to.dir, e.Name); err != nil {
			return err
		}
	}
	return unix.Linkat(hub, key, at, e.Name, 0)
}

// place makes a copy of an entry with a name in a directory, unless it is there
// already.
func (j *job) place(dir *os.File, name string, e *Entry) error {
	m, err := readMetadata(e.FD, &e.Stat)
	if err != nil {
		return err
	}
	have, err := statAt(int(dir.Fd()), name)
	if err != nil {
		return err
	}
	if have != nil && e.sameContent(have) {
		if e.Type() == unix.S_IFREG {
			j.Bytes.Add(min(have.Size, have.Blocks*512))
		}
		if e.sameRights(have) {
			return nil
		}
		return applyAt(dir, name, &m)
	}
	if have != nil {
		if err := j.discard(dir, name); err != nil {
			return err
		}
	}
	if e.Type() == unix.S_IFREG {
		return j.placeFile(dir, name, e, &m)
	}
	return e.node(dir, name, &m)
}

// CopyNode makes a copy of a symbolic link, fifo, socket or device, with all its
// metadata, under a name in a directory.
func (e *Entry) CopyNode(dir *os.File, name string) error {
	m, err := readMetadata(e.FD, &e.Stat)
	if err != nil {
		return err
	}
	return e.node(dir, name, &m)
}

func (e *Entry) node(dir *os.File, name string, m *metadata) error {
	if e.Type() == unix.S_IFLNK {
		// Not longer than the longest path.
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(e.FD, "", target)
		if err != nil {
			return fmt.Errorf("read the link: %w", err)
		}
		if err := unix.Symlinkat(string(target[:n]), int(dir.Fd()), name); err != nil {
			return fmt.Errorf("make a link: %w", err)
		}
	} else {
		device := unix.Mkdev(e.Stat.Rdev_major, e.Stat.Rdev_minor)
		if err := unix.Mknodat(int(dir.Fd()), name, e.Type()|0o600, int(device)); err != nil {
			return fmt.Errorf("make a node: %w", err)
		}
	}
	return applyAt(dir, name, m)
}

// placeFile makes a copy of a regular file.
func (j *job) placeFile(dir *os.File, name string, e *Entry, m *metadata) (err error) {
	src, err := e.Open()
	if err != nil {
		return err
	}
	defer src.Close()
	dst, named, err := createIn(dir, name)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	if err := j.copyData(j.ctx, dst, src, int64(e.Stat.Size)); err != nil {
		return err
	}
	if err := m.apply(int(dst.Fd())); err != nil || named {
		return err
	}
	return unix.Linkat(unix.AT_FDCWD, procPath(int(dst.Fd())), int(dir.Fd()), name, unix.AT_SYMLINK_FOLLOW)
}

// createIn makes a file for writing, without a name if the disk can do that.
func createIn(dir *os.File, name string) (f *os.File, named bool, err error) {
	fd, err := unix.Openat(int(dir.Fd()), ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) {
		named = true
		fd, err = unix.Openat(int(dir.Fd()), name, unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	}
	if err != nil {
		return nil, false, err
	}
	return os.NewFile(uintptr(fd), name), named, nil
}

// Open opens a regular file or a directory for reading. What the entry is was
// settled before, so this can't be a fifo or a device.
func (e *Entry) Open() (*os.File, error) {
	fd, err := unix.Open(procPath(e.FD), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOATIME, 0)
	if errors.Is(err, unix.EPERM) { // O_NOATIME is for the owner and root only
		fd, err = unix.Open(procPath(e.FD), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	return os.NewFile(uintptr(fd), e.Name), nil
}

// sameContent tells whether st is that of a complete copy.
func (e *Entry) sameContent(st *unix.Stat_t) bool {
	sec, nsec := st.Mtim.Unix()
	return e.Type() == st.Mode&unix.S_IFMT && int64(e.Stat.Size) == st.Size &&
		e.Stat.Mtime.Sec == sec && int64(e.Stat.Mtime.Nsec) == nsec
}

// sameRights tells whether the copy has the owner and mode of the entry, which
// can change when the content does not.
func (e *Entry) sameRights(st *unix.Stat_t) bool {
	return uint32(e.Stat.Mode) == st.Mode && e.Stat.Uid == st.Uid && e.Stat.Gid == st.Gid
}

// applyAt applies metadata to what has a name in a directory.
func applyAt(dir *os.File, name string, m *metadata) error {
	fd, err := openAt(dir, name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return m.apply(fd)
}

// statAt returns nil where nothing has the name.
func statAt(dir int, name string) (*unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &st, nil
}
