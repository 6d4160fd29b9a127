package quota

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/tree"
)

// workName is a directory in the root of a tree while AssignTree is at it, for
// what it makes anew. One that is left from before is emptied and used again. If
// somebody puts something into it meanwhile, it stays, as a directory like others.
const workName = ".podnas-adopting-41c97b"

// AssignTree assigns a directory and everything below it to a project, and returns
// how many entries the project then has. It can be called again after an
// interruption, or for a tree that is assigned already. Set the limit after it:
// beyond a limit nothing can be assigned.
//
// Before Linux 6.17, and on ext4 even later, the kernel can't assign a project to a
// symbolic link, fifo, socket or device. Without one they can't be renamed, even in
// their own directory (EXDEV). So AssignTree recreates them, with the same owner,
// mode, times and extended attributes: a program that listens on a socket must then
// be restarted, and a link with several names becomes several links. A fifo, socket
// or device with several names is left unchanged, and not counted.
//
// AssignTree follows no link, enters no mount, and opens no fifo and no device.
//
// Programs may use the tree meanwhile. AssignTree pauses often, and repeats until it
// finds nothing more to assign: a pass can miss a directory that is moved. It assigns
// a directory only when it enters it, because entries without the project can't be
// renamed in one that has it (EXDEV, and mv then copies): files for a moment, and
// directories until they are entered. A link, fifo or socket that is replaced at the
// very moment of its recreation may come back as it was.
func (p *Projects) AssignTree(ctx context.Context, dir *os.File, id uint32) (files int, err error) {
	a := adoption{id: id}
	if err := p.Assign(dir, id); err != nil {
		return 0, err
	}
	if err := a.begin(ctx, dir); err != nil {
		return 0, fmt.Errorf("create a work directory: %w", err)
	}
	err = a.passes(ctx, dir)
	// Also where the walk was cut short: nothing of podnas's may stay there.
	if endErr := a.end(dir); errors.Is(endErr, unix.ENOTEMPTY) && err == nil {
		a.shared = true
		err = a.passes(ctx, dir)
	} else if !errors.Is(endErr, unix.ENOTEMPTY) {
		err = errors.Join(err, endErr)
	}
	return a.files, errors.Join(err, a.work.Close())
}

// adoption is one AssignTree.
type adoption struct {
	id     uint32
	work   *os.File
	shared bool // work is not empty, and is walked like other directories
	// Of this pass:
	files   int
	changed bool // something was not under the project
}

func (a *adoption) begin(ctx context.Context, root *os.File) error {
	before, err := timesOf(root)
	if err != nil {
		return err
	}
	err = unix.Mkdirat(int(root.Fd()), workName, 0o700)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	if err := setTimes(root, before); err != nil {
		return err
	}
	fd, err := unix.Openat(int(root.Fd()), workName, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	a.work = os.NewFile(uintptr(fd), workName)
	// One of before can be under another project.
	_, err = tree.Empty(ctx, a.work)
	_, markErr := setProject(a.work, a.id, true)
	return errors.Join(err, markErr)
}

// end removes the work directory. Its error is ENOTEMPTY if somebody has put something into it.
func (a *adoption) end(root *os.File) error {
	before, err := timesOf(root)
	if err != nil {
		return err
	}
	if err := unix.Unlinkat(int(root.Fd()), workName, unix.AT_REMOVEDIR); err != nil {
		return err
	}
	return setTimes(root, before)
}

// passes goes through the tree until nothing is left to assign.
func (a *adoption) passes(ctx context.Context, root *os.File) (err error) {
	for a.changed = true; a.changed && err == nil; {
		a.changed, a.files = false, 0
		err = a.pass(ctx, root)
	}
	return err
}

// pass goes through the tree once.
func (a *adoption) pass(ctx context.Context, root *os.File) error {
	dirs := -1 // root is not counted
	enter := func(dir *os.File) error {
		dirs++
		changed, err := setProject(dir, a.id, true)
		a.changed = a.changed || changed
		if err != nil {
			return fmt.Errorf("mark directory %q with project %d: %w", dir.Name(), a.id, err)
		}
		return nil
	}
	err := tree.Walk(ctx, root, enter, func(e *tree.Entry) error {
		if e.Type() == unix.S_IFDIR {
			if e.Path() == workName && !a.shared {
				return fs.SkipDir
			}
			return nil
		}
		marked, err := a.mark(e)
		if err != nil {
			return fmt.Errorf("mark %q with project %d: %w", e.Path(), a.id, err)
		}
		if marked {
			a.files++
		}
		return nil
	})
	a.files += max(dirs, 0)
	return err
}

// mark assigns a non-directory to the project, and reports whether it has it.
func (a *adoption) mark(e *tree.Entry) (bool, error) {
	if e.Type() == unix.S_IFREG {
		f, err := e.Open()
		if err != nil {
			return false, err
		}
		defer f.Close()
		changed, err := setProject(f, a.id, false)
		a.changed = a.changed || changed
		return true, err
	}
	changed, err := setNodeProject(e.FD, a.id)
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EPERM) {
		a.changed = a.changed || changed
		return err == nil, err
	}
	return a.renew(e)
}

// renew recreates an entry that lacks the project: new entries inherit it from the
// directory.
func (a *adoption) renew(e *tree.Entry) (bool, error) {
	const name = "new"
	dir, work := int(e.Dir.Fd()), int(a.work.Fd())
	// The project of such an entry can't be read, but it can't be linked into
	// a directory of another project.
	err := unix.Linkat(dir, e.Name, work, name, 0)
	switch {
	case err == nil:
		return true, unix.Unlinkat(work, name, 0)
	case errors.Is(err, unix.ENOENT): // removed meanwhile
		return false, nil
	case !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.EMLINK):
		return false, err
	}
	if e.Stat.Nlink > 1 && e.Type() != unix.S_IFLNK {
		return false, nil
	}
	a.changed = true
	before, err := timesOf(e.Dir)
	if err != nil {
		return false, err
	}
	if err := e.CopyNode(a.work, name); err != nil {
		return false, errors.Join(err, ignoreMissing(unix.Unlinkat(work, name, 0)))
	}
	var now unix.Stat_t
	err = unix.Fstatat(dir, e.Name, &now, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) || err == nil && now.Ino != e.Stat.Ino {
		// Somebody has removed it or put another thing in its place.
		return false, unix.Unlinkat(work, name, 0)
	}
	if err == nil {
		err = unix.Renameat(work, name, dir, e.Name)
	}
	if err != nil {
		return false, errors.Join(err, unix.Unlinkat(work, name, 0))
	}
	return true, setTimes(e.Dir, before)
}

func ignoreMissing(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// nodeAttributes is struct file_attr of linux/fs.h (Linux 6.17).
type nodeAttributes struct {
	xflags                                uint64
	extSize, extents, project, cowExtSize uint32
}

// setNodeProject sets the project of a file that can't be opened, by file_getattr(2)
// and file_setattr(2). changed: it had another. fd may be O_PATH.
func setNodeProject(fd int, id uint32) (changed bool, err error) {
	path, err := unix.BytePtrFromString(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return false, err
	}
	var a nodeAttributes
	call := func(number uintptr) error {
		at := unix.AT_FDCWD // a variable: the constant is negative
		_, _, errno := unix.Syscall6(number, uintptr(at), uintptr(unsafe.Pointer(path)),
			uintptr(unsafe.Pointer(&a)), unsafe.Sizeof(a), 0, 0)
		return errnoError(errno)
	}
	if err := call(unix.SYS_FILE_GETATTR); err != nil || a.project == id {
		return false, err
	}
	a.project = id
	return true, call(unix.SYS_FILE_SETATTR)
}

// timesOf returns the access and modification time of a directory, for setTimes:
// adopting is not a change of what is in it.
func timesOf(dir *os.File) ([]unix.Timespec, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return nil, fmt.Errorf("stat %s: %w", dir.Name(), err)
	}
	return []unix.Timespec{st.Atim, st.Mtim}, nil
}

func setTimes(dir *os.File, times []unix.Timespec) error {
	if err := unix.UtimesNanoAt(int(dir.Fd()), ".", times, 0); err != nil {
		return fmt.Errorf("set the times of %s: %w", dir.Name(), err)
	}
	return nil
}
