package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// entry copies an entry of the current directory, unless it is a directory: enter
// creates those.
func (j *job) entry(e *Entry) error {
	if e.Type() == unix.S_IFDIR {
		if j.isHub(e.Name) || inodeOf(&e.Stat) == j.to.way[0].inode {
			return fs.SkipDir // the copy is inside of its source
		}
		return nil
	}
	if j.isHub(e.Name) {
		return nil
	}
	var err error
	if e.Stat.Nlink > 1 && (!j.Shared || j.several.Has(e.Stat.Ino)) {
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

// link copies a file with several names into the hub, and links it here. So its
// other names can be linked too, in this run and in another.
func (j *job) link(e *Entry) error {
	if err := j.openHub(); err != nil {
		return err
	}
	hub, at := int(j.hub.Fd()), int(j.to.dir.Fd())
	// With its birth time, because a removed file's number can be reused.
	key := fmt.Sprintf("%x-%x-%x-%x-%x", e.Stat.Dev_major, e.Stat.Dev_minor, e.Stat.Ino, e.Stat.Btime.Sec, e.Stat.Btime.Nsec)
	made, err := statAt(hub, key)
	if err != nil {
		return err
	}
	if made == nil || !j.linked.Has(e.Stat.Ino) {
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
		j.linked.Add(e.Stat.Ino)
		if made, err = statAt(hub, key); err != nil || made == nil {
			return errors.Join(err, errors.New("its copy was removed meanwhile"))
		}
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

// place copies an entry to a name in a directory, unless it is there already.
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

// CopyNode copies a symbolic link, fifo, socket or device, with all its metadata,
// to a name in a directory.
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

// placeFile copies a regular file.
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

// createIn creates a file for writing, without a name if the disk supports that.
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

// Open opens a regular file or a directory for reading. The entry's type is known,
// so it can't be a fifo or a device.
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

// sameContent reports whether st is of a complete copy.
func (e *Entry) sameContent(st *unix.Stat_t) bool {
	sec, nsec := st.Mtim.Unix()
	return e.Type() == st.Mode&unix.S_IFMT && int64(e.Stat.Size) == st.Size &&
		e.Stat.Mtime.Sec == sec && int64(e.Stat.Mtime.Nsec) == nsec
}

// sameRights reports whether the copy has the owner and mode of the entry, which
// can change without the content.
func (e *Entry) sameRights(st *unix.Stat_t) bool {
	return uint32(e.Stat.Mode) == st.Mode && e.Stat.Uid == st.Uid && e.Stat.Gid == st.Gid
}

// applyAt applies metadata to a name in a directory.
func applyAt(dir *os.File, name string, m *metadata) error {
	fd, err := openAt(dir, name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return m.apply(fd)
}

// statAt returns nil if the name does not exist.
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
