package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// position is a directory in a tree, and the path to it. It needs one descriptor at
// any depth, and two while it changes. To go up it opens "..", or, if the directory was
// moved, it walks the names from the root again. It accepts either only if it leads to
// the same inode as before.
type position struct {
	root *os.File // the user's
	dir  *os.File // where it is; nil after an up that did not work
	way  []step   // the first is the root
}

type step struct {
	name  string
	inode inode
	// below and unread are a Walker's: what it still has to do here.
	below  below
	unread bool  // there are more names, from offset
	offset int64 // in the directory, see getdents64(2)
}

// inode identifies a directory. On btrfs the number alone does not: each subvolume has
// numbers of its own.
type inode struct{ device, number uint64 }

func inodeOf(st *unix.Statx_t) inode {
	return inode{unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino}
}

// begin sets the position to the root of a tree.
func (p *position) begin(root *os.File) error {
	dir, err := openDir(root, ".")
	if err != nil {
		return fmt.Errorf("open %s: %w", root.Name(), err)
	}
	p.root = root
	return p.down(dir, ".", new(unix.Statx_t))
}

func (p *position) close() {
	if p.dir != nil {
		_ = p.dir.Close() // only read from
		p.dir = nil
	}
}

// down goes to a directory in this one, which it takes over, and says what that is.
func (p *position) down(dir *os.File, name string, st *unix.Statx_t) error {
	if err := statx(int(dir.Fd()), st); err != nil {
		_ = dir.Close() // only read from
		return err
	}
	p.close()
	p.dir = dir
	p.way = append(p.way, step{name: name, inode: inodeOf(st)})
	return nil
}

// up goes back to the parent directory; above the root is nothing. If the parent can't be
// found any more, the error is fs.ErrNotExist; the position is then one level up too, but
// without a directory.
func (p *position) up() error {
	p.way = p.way[:len(p.way)-1]
	if len(p.way) == 0 {
		p.close()
		return nil
	}
	above, err := p.parent()
	p.close()
	if err != nil {
		above, err = p.again()
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
	return check(above, p.way[len(p.way)-1].inode)
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
			at, err = check(next, s.inode)
		}
	}
	if err != nil {
		return nil, err
	}
	return at, nil
}

// check closes the directory and returns fs.ErrNotExist if it is another one.
func check(dir *os.File, was inode) (*os.File, error) {
	var st unix.Statx_t
	err := statx(int(dir.Fd()), &st)
	if err == nil && inodeOf(&st) != was {
		err = fs.ErrNotExist
	}
	if err != nil {
		_ = dir.Close() // only read from
		return nil, err
	}
	return dir, nil
}

// onDevice reports whether a file is on the device of the root.
func (p *position) onDevice(st *unix.Statx_t) bool {
	return inodeOf(st).device == p.way[0].inode.device
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
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS,
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
