package export

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Opener opens files by their handles, which only the kernel can do without a
// path, and only for a process with CAP_DAC_READ_SEARCH, open_by_handle_at(2).
// Its methods run as root, on threads that no Workers use.
type Opener struct {
	table *Table
	key   *Key
	files *fileCache
}

// NewOpener makes an Opener of the volumes in a table.
func NewOpener(table *Table, key *Key) *Opener {
	return &Opener{table: table, key: key, files: newFileCache()}
}

// Close closes every file that was kept open.
func (o *Opener) Close() { o.files.close() }

// NeedsError says what the native engine needs here and does not have.
type NeedsError struct {
	What string
	Fix  string
	Err  error
}

func (e *NeedsError) Error() string { return fmt.Sprintf("%s (%v); %s", e.What, e.Err, e.Fix) }

func (e *NeedsError) Unwrap() error { return e.Err }

// Probe finds out, by doing it, whether files of the disk at dir can be opened
// by handle and threads of this process can act as other users. The error is a
// *NeedsError.
func Probe(dir string) error {
	root, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	handle, _, err := unix.NameToHandleAt(int(root.Fd()), "", unix.AT_EMPTY_PATH)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return &NeedsError{"the file system has no file handles", "use a disk with ext4, XFS or btrfs in place of an overlay", err}
	case err != nil:
		return &NeedsError{"file handles may not be asked for", "let the container's seccomp profile allow name_to_handle_at, or run it unconfined", err}
	}
	fd, err := unix.OpenByHandleAt(int(root.Fd()), handle, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return &NeedsError{"files can't be opened by handle", "run as root with the capability DAC_READ_SEARCH, outside a user namespace", err}
	}
	_ = unix.Close(fd) // O_PATH
	answer := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		answer <- become(&Identity{UID: anonymous, GID: anonymous})
	}()
	if err := <-answer; err != nil {
		return &NeedsError{"threads can't act as other users", "run as root with the capabilities SETUID and SETGID", err}
	}
	return nil
}

// volumeOf finds the volume of a handle and starts a call in it.
func (o *Opener) volumeOf(handle []byte) (*Volume, FileID, error) {
	id, file, err := o.key.Parse(handle)
	if err != nil {
		return nil, "", err
	}
	v, ok := o.table.ByID(id)
	if !ok || !v.begin() {
		return nil, "", unix.ESTALE
	}
	return v, file, nil
}

// openByHandle opens a file of a volume. ESTALE if it is gone.
func (v *Volume) openByHandle(file FileID, flags int) (int, error) {
	if len(file) < 2 || file[0] == fileIDByInode {
		return -1, unix.ESTALE // made by an engine that finds files otherwise
	}
	handle := unix.NewFileHandle(int32(file[0]), []byte(file[1:]))
	for {
		fd, err := unix.OpenByHandleAt(int(v.root.Fd()), handle, flags|unix.O_CLOEXEC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return fd, err
	}
}

// Root makes the handle of a volume's root directory.
func (o *Opener) Root(v *Volume) ([]byte, error) {
	if !v.begin() {
		return nil, unix.ESTALE
	}
	defer v.calls.Done()
	id, err := identifyByHandle(int(v.root.Fd()), "")
	if err != nil {
		return nil, err
	}
	return o.key.Handle(v.ID, id), nil
}

// Open opens any file so that its attributes can be read and, of a directory,
// names be looked up. It has no effect on a fifo or a device. ErrBadHandle,
// ESTALE.
func (o *Opener) Open(handle []byte) (*File, error) {
	return o.open(handle, unix.O_PATH|unix.O_NOFOLLOW)
}

// OpenDir opens a directory so that it can be changed and synced. ENOTDIR if it
// is none.
func (o *Opener) OpenDir(handle []byte) (*File, error) {
	f, err := o.open(handle, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, unix.ELOOP) { // a symbolic link
		err = unix.ENOTDIR
	}
	return f, err
}

func (o *Opener) open(handle []byte, flags int) (*File, error) {
	v, id, err := o.volumeOf(handle)
	if err != nil {
		return nil, err
	}
	fd, err := v.openByHandle(id, flags)
	if err != nil {
		v.calls.Done()
		return nil, err
	}
	f := &File{opener: o, Volume: v, ID: id, fd: fd}
	if f.Attr, err = f.Stat(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Parent opens the directory above one, if it lies in the volume: a directory
// that was moved out on the disk still has a valid handle, and must lead nowhere
// else. The root's parent is the root.
func (o *Opener) Parent(dir *File) (*File, error) {
	root, err := identifyByHandle(int(dir.Volume.root.Fd()), "")
	if err != nil {
		return nil, err
	}
	if dir.ID == root {
		return o.open(o.key.Handle(dir.Volume.ID, root), unix.O_PATH|unix.O_DIRECTORY)
	}
	parent, err := dir.openAt("..", unix.O_PATH|unix.O_DIRECTORY, 0, unix.RESOLVE_NO_XDEV)
	if err != nil {
		return nil, err
	}
	for at := parent; ; {
		if at.ID == root {
			if at != parent {
				at.Close()
			}
			return parent, nil
		}
		next, err := at.openAt("..", unix.O_PATH|unix.O_DIRECTORY, 0, unix.RESOLVE_NO_XDEV)
		same := err == nil && next.ID == at.ID // the root of the file system
		if at != parent {
			at.Close()
		}
		if err != nil || same {
			if next != nil {
				next.Close()
			}
			parent.Close()
			return nil, errors.Join(unix.ENOENT, err)
		}
		at = next
	}
}
