package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// position is a directory in a tree, and the path to it. It needs two descriptors
// at any depth. To go up it opens "..", or, if the directory was moved, it walks
// the names from the root again. It accepts either only if it leads to the same
// inode as before.
type position struct {
	root *os.File
	dir  *os.File // where it is; nil after an up that did not work
	way  []step   // the first is the root
	dev  unix.Stat_t
}

type step struct {
	name string
	ino  uint64
}

// begin sets the position to the root of a tree, by descriptors of its own.
func (p *position) begin(root *os.File) error {
	var err error
	if p.root, err = openDir(root, "."); err != nil {
		return fmt.Errorf("open %s: %w", root.Name(), err)
	}
	if p.dir, err = openDir(root, "."); err == nil {
		err = unix.Fstat(int(p.dir.Fd()), &p.dev)
	}
	p.way = []step{{".", p.dev.Ino}}
	if err != nil {
		p.close()
	}
	return err
}

func (p *position) close() {
	for _, f := range []*os.File{p.root, p.dir} {
		if f != nil {
			_ = f.Close() // only read from
		}
	}
}

// down goes to a directory in this one and takes it over.
func (p *position) down(dir *os.File, name string, ino uint64) {
	_ = p.dir.Close() // only read from
	p.dir = dir
	p.way = append(p.way, step{name, ino})
}

// up goes back to the parent directory. If that can't be found any more, the error
// is fs.ErrNotExist; the position is then one level up too, but without a
// directory.
func (p *position) up() error {
	p.way = p.way[:len(p.way)-1]
	above, err := p.parent()
	if err != nil {
		above, err = p.again()
	}
	if p.dir != nil {
		_ = p.dir.Close() // only read from
	}
	p.dir = above
	return err
}

// parent opens "..".
func (p *position) parent() (*os.File, error) {
	if p.dir == nil {
		return nil, fs.ErrNotExist
	}
	above, err := openDir(p.dir, "..")
	if err != nil {
		return nil, err
	}
	return p.check(above, p.way[len(p.way)-1].ino)
}

// again walks the whole path from the root.
func (p *position) again() (*os.File, error) {
	at, err := openDir(p.root, ".")
	for _, s := range p.way[1:] {
		if err != nil {
			break
		}
		var next *os.File
		next, err = openDir(at, s.name)
		_ = at.Close() // only read from
		if vanished(err) {
			err = fs.ErrNotExist
		}
		if err == nil {
			at, err = p.check(next, s.ino)
		}
	}
	if err != nil {
		return nil, err
	}
	return at, nil
}

// check closes the directory and returns fs.ErrNotExist if it is another one.
func (p *position) check(dir *os.File, ino uint64) (*os.File, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(dir.Fd()), &st)
	if err == nil && (st.Ino != ino || st.Dev != p.dev.Dev) {
		err = fs.ErrNotExist
	}
	if err != nil {
		_ = dir.Close() // only read from
		return nil, err
	}
	return dir, nil
}

func (p *position) sameDevice(st *unix.Statx_t) bool {
	return unix.Mkdev(st.Dev_major, st.Dev_minor) == p.dev.Dev
}

// pathOf is the path of a name here, for messages.
func (p *position) pathOf(name string) string {
	const most = 20
	s := name
	for i := len(p.way) - 1; i > 0; i-- {
		if len(p.way)-i > most {
			return path.Join("...", s)
		}
		s = path.Join(p.way[i].name, s)
	}
	return s
}

// vanished reports whether an error of opening a file means that it is gone, was
// replaced by another type, or is the root of a mount.
func vanished(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) ||
		errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV)
}

// openAt opens what is in dir without following a link or entering a mount.
func openAt(dir *os.File, name string, flags uint64) (int, error) {
	how := unix.OpenHow{
		Flags:   flags | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV,
	}
	for {
		fd, err := unix.Openat2(int(dir.Fd()), name, &how)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue // EAGAIN: something was renamed while ".." was looked up
		case errors.Is(err, unix.EPERM) && how.Flags&unix.O_NOATIME != 0:
			how.Flags &^= unix.O_NOATIME // for the owner and root only
			continue
		}
		return fd, err
	}
}

// openDir opens a directory in dir for reading.
func openDir(dir *os.File, name string) (*os.File, error) {
	fd, err := openAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOATIME)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// unlock gives the owner all rights to a directory in dir, because without
// CAP_DAC_OVERRIDE the mode restricts its owner too.
func unlock(dir *os.File, name string) error {
	fd, err := openAt(dir, name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Chmod(procPath(fd), 0o700)
}

func statx(fd int, st *unix.Statx_t) error {
	return unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_BTIME, st)
}

// procPath names an open file, O_PATH or not, for the calls that have no form
// with a descriptor.
func procPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }
